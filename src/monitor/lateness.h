// Which ranks of a communicator begin its collectives after the others, and why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "monitor/diagnosis.h"

namespace tutti::internal::monitor {

// What a late rank did while the others waited for it, more than they before the same operations.
enum class Cause : std::uint8_t {
  kUnknown,
  kComputes,   // it ran
  kProcessor,  // it was runnable, but others had its processor
  kSleeps,     // it slept or waited outside of tutti, or was stopped
  kElsewhere,  // it was inside a collective of another communicator
  kLink,       // it came from the operation before late, because bytes come slowly to it
};
// "computes", "processor", "sleeps", "elsewhere", "link", "unknown".
const char* name_of(Cause cause);
// "it computes longer"; empty: unknown.
const char* describe(Cause cause);

// What it did for most of the time.
Cause main_cause(const observe::Outside& outside);
// "rank 2 computes", "rank 2 sleeps, or waits for something outside of tutti"; empty: unknown.
std::string describe_now(Cause cause, const std::string& who);

struct LateRank {
  int rank = 0;
  int last = 0;               // collectives that it began after all others
  std::int64_t late_ns = 0;   // how long after the last but one, in sum
  std::int64_t known_ns = 0;  // of this: before operations of which it has noted what it did
  std::int64_t kept_ns = 0;   // of this: it was kept in the operation before for longer than the others
  Cause cause = Cause::kUnknown;
};

// A link that holds up the operations, although the ranks at both ends are in them.
struct SlowLink {
  int from = 0;
  int to = 0;
  int times = 0;        // collectives in which the network did not take what `from` had ready, and `to` waited for it
  std::int64_t ns = 0;  // for how long, in sum
};

struct Lateness {
  int compared = 0;             // of the last collectives: those that all ranks have begun
  std::int64_t spread_ns = 0;   // from the first begin to the last, in sum
  std::vector<LateRank> ranks;  // that began at least one of them last, by rank
  std::vector<SlowLink> links;  // that take at least half of the time of their receiver's last operations
};

// A rank is late if it began at least three quarters of the last operations after all others, and this long after the
// last one of these on average.
inline constexpr std::int64_t kLateNs = 200'000;
inline constexpr int kLeastCompared = 16;  // operations

// Begins are compared if all ranks are of one host, because clocks of hosts differ.
Lateness lateness_of(const Members& members);
[[nodiscard]] bool is_late(const LateRank& rank, const Lateness& all);

}  // namespace tutti::internal::monitor
