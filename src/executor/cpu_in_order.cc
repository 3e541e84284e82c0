// Small messages: the steps one after another. See cpu_executor.h.
#include <algorithm>
#include <cstring>

#include "executor/cpu_executor.h"

namespace tutti::executor {

using schedule::ByteRange;

Status CpuExecutor::run_in_order(const Operation& op) {
  const schedule::Layout layout(op.plan->schedule.shape, op.block_elements, op.element_bytes);
  for (const InOrderStep& s : op.plan->in_order) {
    const ByteRange r = layout.bytes(s.step.range());
    if (r.size == 0) continue;
    Status status;
    if (s.send != nullptr) {
      status = send_all(op, s, r);
    } else if (s.recv != nullptr) {
      status = receive_all(op, s, r);
    } else {
      run_local(op, s.step, r, false);
    }
    if (!status.is_ok()) [[unlikely]]
      return status;
  }
  return {};
}

Status CpuExecutor::send_all(const Operation& op, const InOrderStep& s, ByteRange r) {
  transport::SendLane& lane = *s.send;
  const transport::Source& source = op.buffers[static_cast<int>(s.step.source)];
  std::size_t done = lane.push(op.print, source, r.begin, r.size);
  while (done < r.size) {
    at_ = &s;
    if (Status status = waiter_.idle(); !status.is_ok()) [[unlikely]]
      return status;
    const std::size_t n = lane.push(op.print, source, r.begin + done, r.size - done);
    if (n > 0) waiter_.progress();
    done += n;
  }
  return {};
}

Status CpuExecutor::receive_all(const Operation& op, const InOrderStep& s, ByteRange r) {
  transport::RecvLane& lane = *s.recv;
  std::size_t done = 0;
  do {
    const transport::RecvLane::View view = lane.peek(r.size - done);
    // Whole elements only; a stream transport may have cut one in two, and the rest follows.
    const std::size_t n = op.whole(std::min(view.size, r.size - done));
    if (n == 0) {
      at_ = &s;
      if (Status status = waiter_.idle(); !status.is_ok()) [[unlikely]]
        return status;
      continue;
    }
    if (view.print != op.print) [[unlikely]] {
      return mismatch(op, s.step.peer, view.print);
    }
    store(op, s.step, r.begin + done, view.data, n, false);
    if (!lane.consume(n)) [[unlikely]]
      continue;
    waiter_.progress();
    done += n;
  } while (done < r.size);
  return {};
}

}  // namespace tutti::executor
