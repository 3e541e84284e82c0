// Small messages: the steps one after another. See cpu_executor.h.
//
// A rank that waits at one step cannot do the others, and no transport promises to hold a message that the peer does
// not take: so a rank that has waited for long goes on by lanes, from where it stands. When nothing at all moves, all
// ranks therefore run by lanes, which needs no room anywhere.
#include <algorithm>
#include <cstring>

#include "executor/cpu_executor.h"

namespace tutti::internal::executor {

using schedule::ByteRange;

inline Status CpuExecutor::send_all(const Operation& op, const InOrderStep& s, ByteRange r, std::size_t* sent) {
  transport::SendLane& lane = *s.send;
  const transport::Source& source = op.buffers[static_cast<int>(s.step.source)];
  std::size_t done = lane.push(op.fingerprint, source, r.begin, r.size);
  while (done < r.size && !waiter_.stalled()) {
    at_ = &s;
    if (Status status = waiter_.idle(); !status.is_ok()) [[unlikely]]
      return status;
    const std::size_t n = lane.push(op.fingerprint, source, r.begin + done, r.size - done);
    if (n > 0) waiter_.progress();
    done += n;
  }
  *sent = done;
  return {};
}

inline Status CpuExecutor::receive_all(const Operation& op, const InOrderStep& s, ByteRange r, std::size_t* received) {
  transport::RecvLane& lane = *s.recv;
  std::size_t done = 0;
  do {
    const transport::RecvLane::View view = lane.peek(r.size - done);
    // Whole elements only; a stream transport may have cut one in two, and the rest follows.
    const std::size_t n = op.whole(std::min(view.size, r.size - done));
    if (n == 0) {
      if (waiter_.waits_long()) [[unlikely]]
        break;
      at_ = &s;
      if (Status status = waiter_.idle(); !status.is_ok()) [[unlikely]]
        return status;
      continue;
    }
    if (view.fingerprint != op.fingerprint) [[unlikely]] {
      return mismatch(op, s.step.peer, view.fingerprint);
    }
    store(op, s.step, r.begin + done, view.data, n, false);
    if (!lane.consume(n)) [[unlikely]]
      continue;
    waiter_.progress();
    done += n;
  } while (done < r.size);
  *received = done;
  return {};
}

Status CpuExecutor::run_in_order(const Operation& op) {
  const schedule::Layout layout(op.plan->schedule.shape, op.block_elements, op.element_bytes);
  for (const InOrderStep& s : op.plan->in_order) {
    const ByteRange r = layout.bytes(s.step.range());
    if (r.size == 0) continue;
    if (s.link == nullptr) {
      run_local(op, s.step, r, false);
      continue;
    }
    std::size_t done = 0;
    Status status = s.send != nullptr ? send_all(op, s, r, &done) : receive_all(op, s, r, &done);
    if (!status.is_ok()) [[unlikely]]
      return status;
    if (done < r.size) [[unlikely]]
      return go_on_by_lanes(op, s.index, done);
  }
  return {};
}

// Takes the operation over into the state that run_by_lanes() would have here: all steps before `index` are done, and
// of that step `done` bytes. Messages are too short for zero copy, and no buffers were advertised: nothing of what
// lanes add is open.
Status CpuExecutor::go_on_by_lanes(const Operation& op, std::uint32_t index, std::size_t done) {
  prepare(op);
  direct_puts_ = false;
  open_slice(0);
  for (std::uint32_t i = 0; i < index; ++i) {
    StepState& state = state_of(0, i);
    state.done = state.released = state.size;
  }
  state_of(0, index).done = done;
  const FusedReduce& fused_reduce = op.plan->fused_reduce[index];
  if (fused_reduce.reduce != kNone) state_of(0, fused_reduce.reduce).done = done;
  for (std::size_t i = 0; i < op.plan->lanes.size(); ++i) {
    const Lane& lane = op.plan->lanes[i];
    if (!lane.sends) continue;
    // Where its stream was when the operation began.
    for (const std::uint32_t step : lane.steps) cursors_[i].released -= state_of(0, step).done;
  }
  return move_lanes();
}

}  // namespace tutti::internal::executor
