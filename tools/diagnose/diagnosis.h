// The diagnosis of some communicators, from what their processes do: the ranks that are late, stopped, or call
// something else, and the ranks for which others wait.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "observe/reader.h"

namespace tutti::internal::tools {

struct Finding {
  // In the order of a report.
  enum class Kind : std::uint8_t {
    kFailed,
    kStopped,
    kEnded,
    kDiffers,
    kOperation,
    kBehind,
    kWaits,
    kLate,
    kUnread,
    kConclusion
  };
  Kind kind = Kind::kOperation;
  std::vector<int> ranks;  // that it is about, in rising order
  std::string text;        // a sentence without a full stop
};

struct CommunicatorFindings {
  std::uint64_t id = 0;
  int ranks = 0;
  bool stuck = false;  // a rank waits for long, or its process is stopped, or it waits in a failed communicator;
                       // or did so when its process ended
  bool failed = false;
  std::vector<Finding> findings;
};

inline constexpr std::int64_t kStuckMs = 5000;
// A rank is late if it began at least three quarters of the last operations after all others, and this long after the
// last one of these on average.
inline constexpr std::int64_t kLateNs = 200'000;
inline constexpr int kLeastCompared = 16;  // operations

// after_ms: how long a wait is long. Communicators whose ranks are all outside of operations have a finding, too. Those
// that are stuck come first, then those that have failed.
std::vector<CommunicatorFindings> diagnose(const std::vector<observe::SeenProcess>& processes,
                                           std::int64_t after_ms = kStuckMs);

// "operation 17, all_reduce(count 100, float, sum)".
std::string describe(const observe::SeenCall& call);
// "send of 400 bytes to rank 3".
std::string describe(const observe::SeenRank::Transfer& transfer);
// "ranks 1, 3", "ranks 1-8 and others".
std::string describe_awaited(const observe::SeenRank::Wait& wait);
// "350 ms", "12.1 s", "3 min".
std::string describe_time(std::int64_t ms);

}  // namespace tutti::internal::tools
