// The parts of verify(), for verify*.cc only. Each relies on the results of the parts before it.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "schedule/schedule.h"
#include "schedule/verify.h"

namespace tutti::internal::schedule::parts {

// Calls the interrupt, but not after every small amount of work.
class Pause {
 public:
  explicit Pause(const Interrupt& interrupt) : interrupt_(interrupt) {}
  // `work`: approximate number of steps or waits since the last call.
  Status after(std::size_t work) {
    done_ += work;
    if (done_ < kWork || !interrupt_) return Status::ok();
    done_ = 0;
    return interrupt_();
  }

 private:
  static constexpr std::size_t kWork = 4096;
  const Interrupt& interrupt_;
  std::size_t done_ = 0;
};

// An error that names the step: "rank 2, step 5 (recv from 3, chunk 1): why".
Status at_step(const Schedule& schedule, std::size_t step, const std::string& why);

// Checks that indices are in range, buffers exist and flags are correct.
Status check_form(std::span<const Schedule> schedules);
// No races, out of place and in place.
Status check_races(std::span<const Schedule> schedules, Proof& proof, Pause& pause);
// Data, matching of sends and receives, progress without buffering.
Status check_flow(std::span<const Schedule> schedules, Order order, Proof& proof, Pause& pause);
// Progress in program order with one message per lane.
Status check_program_order(std::span<const Schedule> schedules, Pause& pause);

}  // namespace tutti::internal::schedule::parts
