#include "executor/cpu_executor.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace tutti::internal::executor {

using schedule::Step;
using schedule::StepKind;

namespace {

// Peers end their epochs in a failed operation's buffers within microseconds; a peer that has been stopped does not.
constexpr int kQuiesceYields = 1000;
constexpr std::chrono::milliseconds kQuiesceSleep{1};

}  // namespace

Status CpuExecutor::run(const Operation& op) {
  const Plan& plan = *op.plan;
  if (op.bytes() <= plan.small_bytes) [[likely]] {
    waiter_.begin(*this, op.bytes(), op.fingerprint.sequence);
    // What lacks memory throws, and must not leave the peers waiting for this rank's revocation.
    Status status = guarded([&] { return run_in_order(op); });
    if (!status.is_ok()) [[unlikely]]
      reclaim_buffers(plan);
    return status;
  }
  return run_large(op);
}

Status CpuExecutor::run_large(const Operation& op) {
  const Plan& plan = *op.plan;
  // An upper bound of any step's bytes: a chunk exceeds an equal share by less than two cut units.
  const std::uint32_t parts = plan.schedule.shape.chunks_per_block();
  const std::size_t block_bytes = op.block_elements * op.element_bytes;
  const std::size_t chunk_bytes = parts == 1 ? block_bytes : block_bytes / parts + 128;
  const bool in_region = (op.buffers[0].region | op.buffers[1].region | op.buffers[2].region) != 0;
  const std::size_t step_bytes = chunk_bytes * plan.max_step_chunks;
  waiter_.begin(*this, step_bytes, op.fingerprint.sequence);
  const bool sliced = chunk_bytes > plan.slice_chunk_bytes;
  // Below the first bound nothing goes by zero copy, not even from buffers in regions.
  const bool sends_no_zcopy = step_bytes <= plan.in_order_region_bytes && !sliced;
  const bool in_order = sends_no_zcopy || (!in_region && step_bytes <= plan.in_order_bytes && !sliced);
  // What lacks memory throws, and must not leave the buffers with the peers.
  Status status = guarded([&] {
    if (!sends_no_zcopy) {
      for (transport::Link* link : plan.links) link->begin_operation();
    }
    return in_order ? run_in_order(op) : run_by_lanes(op);
  });
  if (!status.is_ok()) [[unlikely]]
    reclaim_buffers(plan);
  return status;
}

// After an error the caller may free what peers are still reading and writing: run() must not return before they have
// ended their epochs. revoke() comes first on all links, and ends this rank's own epochs with it, so that ranks which
// have failed do not wait for each other.
void CpuExecutor::reclaim_buffers(const Plan& plan) {
  for (transport::Link* link : plan.links) link->revoke();
  int yields = 0;
  for (transport::Link* link : plan.links) {
    while (!link->revoked()) {
      if (++yields < kQuiesceYields) {
        ::sched_yield();
      } else {
        std::this_thread::sleep_for(kQuiesceSleep);
      }
    }
  }
}

void CpuExecutor::list(std::vector<Waiting::For>* lanes) const {
  if (at_ != nullptr) {
    lanes->push_back({at_->link, at_->step.peer, at_->send != nullptr, at_->recv != nullptr});
    return;
  }
  for (std::size_t i = 0; i < op_->plan->lanes.size(); ++i) {
    const Lane& lane = op_->plan->lanes[i];
    if (lane.link == nullptr) continue;
    const std::uint32_t slice = lane.sends ? cursors_[i].release_slice : cursors_[i].slice;
    if (slice < slices_) lanes->push_back({lane.link, lane.peer, lane.sends, !lane.sends});
  }
}

Status CpuExecutor::mismatch(const Operation& op, std::int32_t peer, const transport::Fingerprint& theirs) {
  // What arrives under another number is left over from the calls that differ.
  unexplained_ = same_call(op.fingerprint, theirs) || op.fingerprint.sequence != theirs.sequence;
  return executor::mismatch(op.plan->schedule.rank, op.fingerprint, op.plan->identity, peer, theirs);
}

void CpuExecutor::run_local(const Operation& op, const Step& s, schedule::ByteRange r, bool streaming) {
  std::byte* target = target_of(op, s) + r.begin;
  const std::byte* source = source_of(op, s) + r.begin;
  if (s.kind == StepKind::kReduce) {
    const std::byte* operand = op.buffers[static_cast<int>(s.operand)].base + r.begin;
    combine(op, s, target, source, operand, r.size, false);
  } else if (target != source) {
    if (streaming) {
      reduction::copy_streaming(target, source, r.size);
    } else {
      std::memcpy(target, source, r.size);
    }
  }
}

}  // namespace tutti::internal::executor
