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
  enum class Kind : std::uint8_t { kFailed, kStopped, kDiffers, kOperation, kBehind, kWaits, kUnread, kConclusion };
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

// Communicators whose ranks are all outside of operations have a finding, too. Those with trouble come first.
std::vector<CommunicatorFindings> diagnose(const std::vector<observe::SeenProcess>& processes);

// "350 ms", "12.1 s", "3 min".
std::string describe_time(std::int64_t ms);

}  // namespace tutti::internal::tools
