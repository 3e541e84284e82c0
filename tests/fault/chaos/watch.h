// Runs a round: starts its processes, triggers mishaps, checks that no process hangs, and reaps all of them.
#pragma once

#include <memory>
#include <vector>

#include "judge.h"

namespace tutti::internal::test::chaos {

struct Limits {
  int slack_ms = 30'000;   // how much longer than its timeout a call may take on a busy machine
  int round_ms = 240'000;  // a whole round
};

// Never hangs itself. `network`: the namespace of rounds with tiny buffers. REQUIRES: the process has one thread.
std::vector<Finding> run_round(const Round& round, const Limits& limits, int network);

}  // namespace tutti::internal::test::chaos
