// Finds ranks that wait for each other because they have called different operations.
//
// A rank whose operation makes no progress reports its last calls, by number. If two ranks called different operations
// under one number, or decided differently how to run it, that is an error in every case, so a difference is proof. A
// missing report, or one with another number, proves nothing: the rank may be late, or may have finished.
#pragma once

#include <deque>
#include <vector>

#include "base/status.h"
#include "control/call_record.h"

namespace tutti::internal {

// Not thread-safe.
class CallLedger {
 public:
  // kMismatch, naming both ranks and calls, if `calls` of `rank` contradict what is known. *is_new: at least one of
  // them was not known from any rank.
  Status add(int rank, const std::vector<CallRecord>& calls, bool* is_new);

 private:
  struct Reported {
    CallRecord call;
    int rank;  // that reported it first, or first with its plan
  };
  std::deque<Reported> entries_;  // the latest is last
};

}  // namespace tutti::internal
