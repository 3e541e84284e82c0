// How long the operations of a rank took, if TUTTI_METRICS is set: counts, sums and histograms for each collective,
// send and receive, by size. The rank writes them into the file of events (layout.h), without locks; other threads and
// processes read them (reader.h).
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/collectives.h"

namespace tutti::internal::observe {

// The kinds of operations: the collectives by their numbers, then sends and receives.
inline constexpr int kSends = kCollectives;
inline constexpr int kReceives = kCollectives + 1;
inline constexpr std::size_t kKinds = kCollectives + 2;

// Sizes up to 64 bytes, up to 8 times as much, ..., up to 1 GiB, and above.
inline constexpr std::size_t kSizeClasses = 10;
inline constexpr std::uint64_t kSmallestClassBytes = 64;
constexpr std::size_t size_class(std::uint64_t bytes) {
  if (bytes <= kSmallestClassBytes) return 0;
  const auto width = static_cast<std::size_t>(std::bit_width((bytes - 1) / kSmallestClassBytes));
  return width > 3 * (kSizeClasses - 2) ? kSizeClasses - 1 : (width + 2) / 3;
}
// The most bytes of a class. REQUIRES: not the last one, which has no limit.
constexpr std::uint64_t limit_bytes(std::size_t size_class) {
  return kSmallestClassBytes << (3 * size_class);
}

// Times up to 1 us, up to 4 times as much, ..., up to 16.8 s, and above.
inline constexpr std::size_t kBuckets = 14;
constexpr std::size_t bucket_of(std::uint64_t ns) {
  const std::uint64_t us = ns / 1000 + (ns % 1000 != 0 ? 1 : 0);
  if (us <= 1) return 0;
  const auto width = static_cast<std::size_t>(std::bit_width(us - 1));
  return width > 2 * (kBuckets - 2) ? kBuckets - 1 : (width + 1) / 2;
}
// The longest time of a bucket. REQUIRES: not the last one, which has no limit.
constexpr std::uint64_t limit_us(std::size_t bucket) {
  return std::uint64_t{1} << (2 * bucket);
}

// All words of these have one writer, and are numbers that only grow, except `last`.
struct Measure {
  std::atomic<std::uint64_t> bytes;      // of the vectors of all calls
  std::atomic<std::uint64_t> ns;         // the time inside all calls
  std::atomic<std::uint64_t> waited_ms;  // Measures::waited_ms for these calls
  std::atomic<std::uint64_t> last;  // the number of the last collective; in the upper half the rank of the last long
                                    // wait, plus 1
  std::array<std::atomic<std::uint64_t>, kBuckets> calls;
};

// A rank for which this rank has waited.
struct Late {
  std::atomic<std::uint64_t> rank;  // plus 1; 0: none yet
  std::atomic<std::uint64_t> waits;
  std::atomic<std::uint64_t> waited_ms;
};
inline constexpr std::size_t kLateRanks = 32;

// What a rank has sent over one transport to the ranks of one host.
struct Sent {
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> reconnects;
  std::atomic<std::uint64_t> used;  // 1: the texts are complete
  std::array<char, 16> transport;
  std::array<char, 48> host;
};
// More pairs than these share the last one, with the texts kOthers.
inline constexpr std::size_t kSentRows = 20;
inline constexpr char kOthers[] = "others";

struct Measures {
  std::atomic<std::uint64_t> hosts;  // of the communicator; 0: unknown
  // Of operations in which nothing moved for so long that the rank noted it (Event::waited): how many, and the sum of
  // the longest such time of each.
  std::atomic<std::uint64_t> waits;
  std::atomic<std::uint64_t> waited_ms;
  // The same, by the rank that was awaited; if more ranks than these are late, the sums above include the others.
  std::array<Late, kLateRanks> late;
  std::array<std::array<Measure, kSizeClasses>, kKinds> kinds;
  std::array<Sent, kSentRows> sent;
};
inline constexpr std::size_t kMeasuresBytes = 28672;  // whole pages
static_assert(sizeof(Measures) <= kMeasuresBytes && kMeasuresBytes % 4096 == 0);

// An operation that has ended well.
struct Measured {
  int kind = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ns = 0;
  std::uint32_t number = 0;  // of a collective
};
// The longest noted wait of an operation.
struct LongWait {
  std::uint32_t ms = 0;  // 0: none
  int rank = -1;         // for which; -1: unknown
};

// One thread at a time writes.
void add(Measures& measures, const Measured& operation);
void add(Measures& measures, int kind, std::uint64_t bytes, const LongWait& wait);
struct SentTo {
  std::uint64_t bytes = 0;
  std::uint64_t reconnects = 0;  // of the connections
};
// What has been sent so far, by transport and host.
using AllSent = std::map<std::pair<std::string, std::string>, SentTo>;
void set_sent(Measures& measures, const AllSent& sent);

// Nanoseconds of that many ticks(), which may be negative. The first call of a process measures the counter for a
// millisecond.
std::uint64_t ns_of_ticks(std::int64_t ticks);

// ---- What readers get

struct SeenMeasure {
  int kind = 0;
  std::size_t size_class = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ns = 0;
  std::uint64_t waited_ms = 0;
  std::uint32_t last = 0;
  int awaited = -1;  // the rank of the last long wait; -1: none, or unknown
  std::array<std::uint64_t, kBuckets> calls{};

  [[nodiscard]] std::uint64_t count() const;
};

struct SeenLate {
  int rank = 0;
  std::uint64_t waits = 0;
  std::uint64_t waited_ms = 0;
};

struct SeenSent {
  std::string transport;
  std::string host;
  SentTo to;
};

struct SeenMeasures {
  int hosts = 0;  // 0: unknown
  std::uint64_t waits = 0;
  std::uint64_t waited_ms = 0;
  std::vector<SeenLate> late;
  std::vector<SeenMeasure> operations;  // by kind and size; only those with calls
  std::vector<SeenSent> sent;
};

// While the rank writes them, or of any memory.
SeenMeasures read(const Measures& measures);

// The last measures of a communicator that this process had.
struct EndedMeasures {
  std::uint64_t communicator = 0;
  int rank = 0;
  int ranks = 0;
  SeenMeasures measures;
};

// Any thread. From now on the measures of communicators that end are kept, the last 256 of them. Returns how many have
// ended so far.
std::uint64_t keep_ended();
void note_ended(EndedMeasures ended);
// Those after the first *position, which becomes how many have ended so far.
std::vector<EndedMeasures> ended_after(std::uint64_t* position);

}  // namespace tutti::internal::observe
