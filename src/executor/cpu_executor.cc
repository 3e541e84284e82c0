#include "executor/cpu_executor.h"

#include <algorithm>

#include "os/look_again.h"
#include "os/ticks.h"

namespace tutti::internal::executor {

using schedule::Step;
using schedule::StepKind;

namespace {

template <class AnyLayout>
void locate_all(const Operation& op, const AnyLayout& layout, LocatedSteps* located) {
  located->steps.clear();
  located->all_short = op.table == nullptr && op.user == nullptr;
  for (const InOrderStep& s : op.plan->in_order) {
    const auto [at, bytes] = locate(layout, s.step);
    if (bytes == 0) continue;
    const bool combines = s.step.kind == StepKind::kRecvReduce;
    LocatedStep& step = located->steps.emplace_back();
    step.send = s.send;
    step.recv = s.recv;
    if (s.send != nullptr || combines) step.source = &source_of(op, s.step.source, s.step.source_chunk);
    if (s.recv != nullptr) step.target = &source_of(op, s.step.target, s.step.target_chunk);
    step.at = at;
    step.bytes = bytes;
    step.step = &s;
    if (!located->all_short) continue;  // the rest is for the fast path
    step.elements = op.kernels != nullptr ? op.elements(bytes) : 0;
    step.combines = combines;
    step.divides = combines && s.step.final && op.divisor > 1;
    const bool has_lines = s.link == nullptr || (s.send != nullptr ? s.send->has_lines() : s.recv->has_lines());
    located->all_short = bytes <= transport::kShortMessageBytes && has_lines;
  }
}

void locate_all(const Operation& op, LocatedSteps* located) {
  if (op.table != nullptr) {
    locate_all(op, schedule::TableLayout(op.table->places), located);
  } else {
    locate_all(op, schedule::Layout(op.plan->schedule.shape, op.block_elements, op.element_bytes), located);
  }
}

// False if the set of steps with bytes has changed.
bool relocate(const Operation& op, LocatedSteps* located) {
  const schedule::TableLayout layout(op.table->places);
  for (LocatedStep& s : located->steps) {
    const auto [at, bytes] = locate(layout, s.step->step);
    if (bytes == 0) return false;
    s.at = at;
    s.bytes = bytes;
  }
  return located->steps.size() == op.plan->in_order.size();
}

}  // namespace

Status CpuExecutor::run(const Operation& op, std::uint32_t number, std::size_t done) {
  Status status;
  waits_ = true;
  // If memory is missing this throws; peers must then neither keep the buffers nor wait for this rank.
  try {
    status = begin(op, number, done);
    if (by_lanes_ && status.is_ok()) [[unlikely]]
      status = lanes_.run();
  } catch (...) {
    status = Status::of_exception();
  }
  if (!status.is_ok()) [[unlikely]]
    reclaim(op);
  return status;
}

Result<Progress> CpuExecutor::start(const Operation& op, std::uint32_t number) {
  waits_ = false;
  Status status = begin(op, number, 0);
  if (!status.is_ok()) return status;
  return by_lanes_ ? Progress::kMoved : Progress::kDone;
}

Result<Progress> CpuExecutor::advance(std::int64_t now_ns) {
  auto progress = lanes_.advance(now_ns);
  if (progress.is_ok() && *progress == Progress::kDone) by_lanes_ = false;
  return progress;
}

inline Status CpuExecutor::begin(const Operation& op, std::uint32_t number, std::size_t done) {
  by_lanes_ = false;
  at_ = nullptr;
  if (all_steps_ != nullptr) [[unlikely]]
    begin_log(op, number);
  if (op.bytes <= op.plan->small_bytes) [[likely]] {
    waiter_.begin(*this, op.bytes, number);
    return steps_ == nullptr ? run_in_order(op, op.located, done) : run_in_order<true>(op, op.located, done);
  }
  if (begin_large(op, number)) {
    return steps_ == nullptr ? run_in_order(op, nullptr, 0) : run_in_order<true>(op, nullptr, 0);
  }
  by_lanes_ = true;
  lanes_.begin(op);
  return {};
}

void CpuExecutor::begin_log(const Operation& op, std::uint32_t number) {
  // A check before or behind an operation is not in the trace, and leaves that operation's steps.
  steps_ = nullptr;
  if (!is_check(op.fingerprint)) {
    const bool kept = all_steps_->begin(
        {number, op.plan->identity.hash, op.bytes, static_cast<std::uint32_t>(op.element_bytes), op.table != nullptr});
    if (kept) steps_ = all_steps_;
  }
  lanes_.set_step_log(steps_);
}

// -- In order.
//
// A rank that waits at one step cannot do the others, and no transport promises to store a message that the peer does
// not receive: so a rank that has waited for long continues by lanes from its present step. When nothing moves
// anywhere, all ranks therefore run by lanes, which needs no buffer space.

inline Status CpuExecutor::send_all(const Operation& op, const LocatedStep& s, std::size_t* sent) {
  transport::SendLane& lane = *s.send;
  const transport::Fingerprint& fingerprint = fingerprint_of(op, s.step->step);
  if (s.bytes <= transport::kShortMessageBytes && lane.push_short(fingerprint, s.source->base + s.at.source, s.bytes))
      [[likely]] {
    *sent = s.bytes;
    return {};
  }
  std::size_t done = lane.push(fingerprint, *s.source, s.at.source, s.bytes);
  while (waits_ && done < s.bytes && !waiter_.stalled()) {
    at_ = &s;
    if (Status status = waiter_.idle(); !status.is_ok()) [[unlikely]]
      return status;
    const std::size_t n = lane.push(fingerprint, *s.source, s.at.source + done, s.bytes - done);
    if (n > 0) waiter_.progress();
    done += n;
  }
  *sent = done;
  return {};
}

inline Status CpuExecutor::receive_all(const Operation& op, const LocatedStep& s, std::size_t* received) {
  transport::RecvLane& lane = *s.recv;
  const Step& step = s.step->step;
  const transport::Fingerprint& fingerprint = fingerprint_of(op, step);
  if (s.bytes <= transport::kShortMessageBytes && lane.has_lines() &&
      receive_short(lane, fingerprint, s.bytes, waits_ ? waiter_.hot_looks() : 1,
                    [&](const std::byte* data) { store(op, step, s.at, data, s.bytes, false); })) [[likely]] {
    waiter_.progress();
    *received = s.bytes;
    return {};
  }
  std::size_t done = 0;
  do {
    const transport::RecvLane::View view = lane.peek(s.bytes - done);
    // Whole elements only; a stream transport may have cut one in two, and the rest follows.
    const std::size_t n = op.whole(std::min(view.size, s.bytes - done));
    if (n == 0) {
      // A different call may send less than an element of this one.
      if (view.size > 0 && view.fingerprint != fingerprint) [[unlikely]]
        return mismatch(op, step, view.fingerprint);
      if (!waits_ || waiter_.waits_long()) [[unlikely]]
        break;
      at_ = &s;
      if (Status status = waiter_.idle(); !status.is_ok()) [[unlikely]]
        return status;
      continue;
    }
    if (view.fingerprint != fingerprint) [[unlikely]] {
      return mismatch(op, step, view.fingerprint);
    }
    store(op, step, s.at.after(done), view.data, n, false);
    if (!lane.consume(n)) [[unlikely]]
      continue;
    waiter_.progress();
    done += n;
  } while (done < s.bytes);
  *received = done;
  return {};
}

template <bool kTraced>
Status CpuExecutor::run_in_order(const Operation& op, const LocatedSteps* located, std::size_t done) {
  if (located == nullptr) {
    locate_all(op, &located_);
    located = &located_;
  }
  if constexpr (kTraced) steps_->set_in_order();
  for (const LocatedStep& s : std::span(located->steps).subspan(done)) {
    [[maybe_unused]] const std::uint64_t begun = kTraced ? ticks() : 0;
    const auto note = [&] {
      if constexpr (kTraced) {
        const Step& step = s.step->step;
        steps_->add({s.step->index, static_cast<std::uint32_t>(step.kind), step.peer, s.bytes, begun, ticks()});
      }
    };
    if (s.step->link == nullptr) {
      run_local(op, s.step->step, s.at, s.bytes, false);
      note();
      continue;
    }
    std::size_t moved = 0;
    Status status = s.send != nullptr ? send_all(op, s, &moved) : receive_all(op, s, &moved);
    if (!status.is_ok()) [[unlikely]]
      return status;
    if (moved < s.bytes) [[unlikely]] {
      by_lanes_ = true;
      lanes_.take_over(op, s.step->index, moved);
      return {};
    }
    note();
  }
  return {};
}

void CpuExecutor::locate(const Operation& op, LocatedSteps* located) {
  if (op.bytes > op.plan->small_bytes) {
    located->steps.clear();
    located->all_short = false;
    return;
  }
  if (op.located == located && op.table != nullptr && relocate(op, located)) return;
  locate_all(op, located);
}

std::size_t CpuExecutor::run_short_in_default_mode(const Operation& op, const transport::Fingerprint& fingerprint,
                                                   std::span<const LocatedStep> steps) {
  const InFloatMode mode;
  return run_short(op, fingerprint, steps, [] {});
}

// -- The choice between in order and by lanes.

bool CpuExecutor::begin_large(const Operation& op, std::uint32_t number) {
  const Plan& plan = *op.plan;
  // An upper bound for the bytes of any step: a chunk exceeds an equal share by less than two cut units. A unit is a
  // cache line if elements are not longer, and at most the longest element.
  const std::uint32_t parts = plan.schedule.shape.chunks_per_block();
  const std::size_t block_bytes = op.table != nullptr ? op.table->largest : op.block_elements * op.element_bytes;
  const std::size_t chunk_bytes =
      parts == 1 ? block_bytes
                 : block_bytes / parts +
                       2 * (op.odd_elements ? kMostElementBytes : std::max<std::size_t>(64, op.element_bytes));
  const bool in_region = (op.buffers[0].region | op.buffers[1].region | op.buffers[2].region) != 0;
  const std::size_t step_bytes = chunk_bytes * plan.max_step_chunks;
  waiter_.begin(*this, step_bytes, number);
  bool in_order = step_bytes <= plan.in_order_bytes && chunk_bytes <= plan.slice_chunk_bytes;
  // By lanes, links also put directly and read the peer's memory, if this rank sends nothing.
  if (!in_order || step_bytes > plan.no_zcopy_bytes) {
    const bool reads = step_bytes <= plan.most_read_bytes;
    const transport::MemoryUse use{.reading = reads ? std::max(plan.reading, op.reading) : transport::Reading::kNever,
                                   .only_moves = plan.reading != transport::Reading::kNever,
                                   .read_in_turns = step_bytes >= plan.read_in_turns_bytes,
                                   .rewrites_input = plan.rewrites_in_place && op.in_place()};
    for (transport::Link* link : plan.links) {
      link->begin_operation(use);
      // In order, no check covers memory that the peer still reads.
      const transport::LaneTraits& traits = link->send().traits();
      if (step_bytes >= traits.zcopy_any_bytes || (in_region && step_bytes >= traits.zcopy_bytes)) in_order = false;
      if (step_bytes >= link->recv().traits().zcopy_any_bytes) in_order = false;
    }
  }
  return in_order;
}

// After an error the caller may free buffers that peers still read and write: run() must not return before they have
// ended their accesses. revoke() comes first, on all links, and also ends this rank's accesses, so that failed ranks do
// not wait for each other.
void CpuExecutor::revoke(const Operation& op) {
  for (transport::Link* link : op.plan->links) link->revoke();
}

bool CpuExecutor::reclaimed(const Operation& op) {
  return std::all_of(op.plan->links.begin(), op.plan->links.end(),
                     [](transport::Link* link) { return link->revoked(); });
}

// Peers end their accesses to a failed operation's buffers within microseconds; a stopped peer does not.
void CpuExecutor::reclaim(const Operation& op) {
  revoke(op);
  for (LookAgain look; !reclaimed(op);) look.pause();
}

void CpuExecutor::list_sends(std::vector<Waiting::For>* lanes) const {
  if (by_lanes_) lanes_.list_sends(lanes);
}

void CpuExecutor::list(std::vector<Waiting::For>* lanes) const {
  if (by_lanes_) return lanes_.list(lanes);
  if (at_ == nullptr) return;
  const InOrderStep& step = *at_->step;
  lanes->push_back({step.link, step.step.peer, at_->send != nullptr, at_->recv != nullptr});
}

}  // namespace tutti::internal::executor
