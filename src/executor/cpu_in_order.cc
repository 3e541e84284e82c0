// Small messages: the steps one after another. See cpu_executor.h.
#include <algorithm>
#include <cstring>

#include "executor/cpu_executor.h"

namespace tutti::executor {

using schedule::ByteRange;
using schedule::Step;
using schedule::StepKind;

Status CpuExecutor::run_in_order(const Operation& op) {
  const Plan& plan = *op.plan;
  const schedule::Layout layout(plan.schedule.shape, op.block_elements, op.element_bytes);
  const Step* steps = plan.schedule.steps.data();
  const std::size_t count = plan.schedule.steps.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Step& s = steps[i];
    const ByteRange r = layout.bytes(s.range());
    if (r.size == 0) continue;
    Status status;
    if (s.kind == StepKind::kSend) {
      status = send_all(op, s, *plan.send_of[i], r);
    } else if (schedule::is_recv(s.kind)) {
      status = receive_all(op, s, *plan.recv_of[i], r);
    } else {
      run_local(op, s, r, false);
    }
    if (!status.is_ok()) [[unlikely]]
      return status;
  }
  return {};
}

Status CpuExecutor::send_all(const Operation& op, const Step& s, transport::SendLane& lane, ByteRange r) {
  const transport::Source& source = op.buffers[static_cast<int>(s.source)];
  std::size_t done = lane.push(op.print, source, r.begin, r.size);
  while (done < r.size) {
    if (Status status = waiter_.idle(); !status.is_ok()) [[unlikely]]
      return status;
    const std::size_t n = lane.push(op.print, source, r.begin + done, r.size - done);
    if (n > 0) waiter_.progress();
    done += n;
  }
  return {};
}

Status CpuExecutor::receive_all(const Operation& op, const Step& s, transport::RecvLane& lane, ByteRange r) {
  std::size_t done = 0;
  do {
    const transport::RecvLane::View view = lane.peek(r.size - done);
    // Whole elements only; a stream transport may have cut one in two, and the rest follows.
    const std::size_t n = op.whole(std::min(view.size, r.size - done));
    if (n == 0) {
      if (Status status = waiter_.idle(); !status.is_ok()) [[unlikely]]
        return status;
      continue;
    }
    if (view.print != op.print) [[unlikely]] {
      return mismatch(op.plan->schedule.rank, op.print, s.peer, view.print);
    }
    store(op, s, r.begin + done, view.data, n, false);
    lane.consume(n);
    waiter_.progress();
    done += n;
  } while (done < r.size);
  return {};
}

}  // namespace tutti::executor
