// Operations whose steps are kept for the trace.
#include "executor/lane_runner.h"
#include "os/ticks.h"

namespace tutti::internal::executor {

// As work(). One step may move the bytes of another: of the send that forwards them, or of the kReduce behind it.
bool LaneRunner::work_traced(std::uint32_t lane, std::uint32_t index, StepState& state) {
  const std::uint64_t before = ticks();
  const bool moved = work(lane, index, state);
  if (!moved) return false;
  std::uint64_t now = 0;
  for (const std::uint32_t step : {index, op_->plan->forward[index].send, op_->plan->fused_reduce[index].reduce}) {
    if (step == kNone) continue;
    const StepState& own = state_of(current_slice_, step);
    if (own.done == 0 || own.size == 0) continue;
    if (own.done == own.size && now == 0) now = ticks();
    marks_.note(place_of(current_slice_, step), op_->plan->schedule.steps[step], step, own.size, before,
                own.done == own.size ? now : 0);
  }
  return moved;
}

}  // namespace tutti::internal::executor
