// Finds ranks that wait for each other because they have called different things.
//
// A rank in whose operation nothing moves reports its last calls, by number. Two ranks that called
// different things under one number, or decided differently how to run it, are wrong whatever else is
// going on, so a difference is proof; that a rank has not reported, or stands at another number, proves nothing (it may
// be late, or through).
#pragma once

#include <deque>
#include <vector>

#include "base/status.h"
#include "control/call_record.h"

namespace tutti::internal {

// Not thread-safe.
class CallLedger {
 public:
  // kMismatch, naming both ranks and calls, if `calls` of `rank` contradict what is known. *is_new: whether
  // any of them was not known already, from whichever rank.
  Status add(int rank, const std::vector<CallRecord>& calls, bool* is_new);

 private:
  struct Reported {
    CallRecord call;
    int rank;  // that first reported it, or first with its plan
  };
  std::deque<Reported> entries_;  // the latest last
};

}  // namespace tutti::internal
