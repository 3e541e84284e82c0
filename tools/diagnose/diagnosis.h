// Says of the communicators of some processes which ranks are late, stopped, or call something else, and who waits for
// whom.
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
  bool stuck = false;  // a rank has waited for kStuckMs, or its process is stopped, or the communicator has failed
  std::vector<Finding> findings;
};

inline constexpr std::int64_t kStuckMs = 1000;
// A rank is late if at least half of the operations that all ranks have begun lately began last on it, and the others
// waited for it at least so long on average, counted from the last one of them.
inline constexpr std::int64_t kLateNs = 200'000;
inline constexpr int kLeastCompared = 16;  // operations

// Communicators whose ranks are all outside of operations have a finding, too. Those with trouble come first.
std::vector<CommunicatorFindings> diagnose(const std::vector<observe::SeenProcess>& processes);

// "350 ms", "12.1 s", "3 min".
std::string describe_time(std::int64_t ms);

}  // namespace tutti::internal::tools
