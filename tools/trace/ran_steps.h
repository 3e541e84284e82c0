// The times of the messages of one collective, as they ran and as they were predicted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "observe/trace_reader.h"
#include "tools/trace/members.h"
#include "tools/trace/predictions.h"

namespace tutti::internal::tools {

// Sums over the messages from one rank to another: of the time that only the link held them up (delays.h).
struct LinkTimes {
  double ran_us = 0;
  double predicted_us = 0;
};
using Links = std::map<std::pair<int, int>, LinkTimes>;  // by sender and receiver

// A rank's part of the collective. Times of all ranks on one clock.
struct RankPart {
  const observe::TracedOperation* operation = nullptr;
  const observe::TracedSteps* steps = nullptr;
  std::int64_t shift_ns = 0;
};

// REQUIRES: `parts` has all ranks. Empty: the steps of the ranks do not belong together, or not to these schedules.
std::optional<Links> link_times(const std::vector<RankPart>& parts, const Predicted& predicted);

}  // namespace tutti::internal::tools
