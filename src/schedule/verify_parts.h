// The parts of verify(), for verify*.cc only. Each assumes what the parts before it have shown.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "schedule/schedule.h"
#include "schedule/verify.h"

namespace tutti::schedule::parts {

// An error that names the step: "rank 2, step 5 (recv from 3, chunk 1): why".
Status at_step(const Schedule& schedule, std::size_t step, const std::string& why);

// Indices in range, buffers that exist, flags that tell the truth.
Status check_form(std::span<const Schedule> schedules);
// No races, out of place and in place.
Status check_races(std::span<const Schedule> schedules, Proof& proof);
// Data, matching of sends and receives, progress without buffering.
Status check_flow(std::span<const Schedule> schedules, Proof& proof);
// Progress in program order with one message per lane.
Status check_program_order(std::span<const Schedule> schedules);

}  // namespace tutti::schedule::parts
