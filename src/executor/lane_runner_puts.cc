// Results that are written to the buffers of the peers.
#include <algorithm>

#include "executor/lane_runner.h"

namespace tutti::internal::executor {
namespace {

using schedule::Step;
using schedule::StepKind;

constexpr std::size_t kLine = 64;
// Written to two targets from the level-1 cache.
constexpr std::size_t kDirectPutBlockBytes = 32 * 1024;

}  // namespace

// Direct put: if the forwarding step could write the value into the buffer that the peer has advertised, writes it
// there and here in one pass.
bool LaneRunner::direct_put_some(const Lane& lane, std::uint32_t index, StepState& state,
                                 const transport::RecvLane::View& view, std::size_t n) {
  const Forward& forward = op_->plan->forward[index];
  if (!direct_puts_ || !combines_ || forward.send == kNone) return false;
  const Lane& out_lane = op_->plan->lanes[forward.lane];
  const Cursor& c = cursors_[forward.lane];
  if (c.slice != current_slice_ || out_lane.steps[c.position] != forward.send) return false;
  StepState& send = state_of(current_slice_, forward.send);
  if (send.done != state.done) return false;
  const std::span<std::byte> room = out_lane.link->send().reserve_remote(n);
  n = op_->whole(std::min(n, room.size()));
  if (n == 0) return false;
  const Step& step = op_->plan->schedule.steps[index];
  const bool divides = step.final && op_->divisor > 1;
  const StepOffsets at = state.begin.after(state.done);
  if (step.kind == StepKind::kRecvReduce && !divides && op_->kernels != nullptr) {
    const auto combine = streaming_ ? op_->kernels->combine_twice_streaming : op_->kernels->combine_twice;
    combine(target_at(*op_, step, at), room.data(), source_at(*op_, step, at), view.data, op_->elements(n));
  } else {
    direct_put_in_blocks(step, at, room.first(n), view.data);
  }
  if (!lane.link->recv().consume(n)) return true;
  out_lane.link->send().commit(fingerprint_of(*op_, op_->plan->schedule.steps[forward.send]), n);
  send.done += n;
  state.done += n;
  return true;
}

// The same if no kernel makes the value and writes it twice in one pass: goes through the level-1 cache.
void LaneRunner::direct_put_in_blocks(const Step& step, const StepOffsets& begin, std::span<std::byte> room,
                                      const std::byte* received) const {
  const auto write = streaming_ ? &copy_streaming : &copy_bytes;
  alignas(kLine) std::byte block[kDirectPutBlockBytes];
  const std::size_t most = op_->whole(kDirectPutBlockBytes);
  for (std::size_t i = 0; i < room.size(); i += most) {
    const std::size_t size = std::min(most, room.size() - i);
    const StepOffsets at = begin.after(i);
    const std::byte* value = received + i;
    if (step.kind == StepKind::kRecvReduce) {
      combine(*op_, step, block, source_at(*op_, step, at), value, size, false);
      value = block;
    }
    std::byte* target = target_at(*op_, step, at);
    if (value != target) write(target, value, size);
    write(room.data() + i, value, size);
  }
}

}  // namespace tutti::internal::executor
