// The layout of the file in which a process writes what its communicators do. Other processes read the file while its
// writer runs, computes, is stopped, or dumps core: "/memfd:tutti-events" among the descriptors of the process in
// /proc. With TUTTI_FLIGHT_RECORDER=DIR it is a file in DIR, which outlives its writer (recorded_file.h).
//
// The file begins with a Header. Rings of kRingBytes each follow at kHeaderBytes, one for each rank that the process
// has in a communicator; if TUTTI_METRICS is set, each of them with kMeasuresBytes behind it (measures.h). All numbers
// have the byte order of the machine.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/collectives.h"
#include "observe/origin.h"

namespace tutti::internal::observe {

inline constexpr std::array<char, 8> kMagic{'t', 'u', 't', 't', 'i', 'E', 'V', '\0'};
inline constexpr std::uint32_t kLayout = 4;  // other numbers cannot be read
inline constexpr char kFileName[] = "tutti-events";

template <class T>
using Word = std::atomic<T>;
static_assert(Word<std::uint32_t>::is_always_lock_free && sizeof(Word<std::uint32_t>) == 4);
static_assert(Word<std::uint64_t>::is_always_lock_free && sizeof(Word<std::uint64_t>) == 8);

struct Header {
  std::array<char, 8> magic;
  std::uint32_t layout;
  std::uint32_t rings_at;     // kHeaderBytes
  std::uint32_t ring_bytes;   // kRingBytes, with Measures kRingBytes + kMeasuresBytes
  std::uint32_t ring_events;  // kEvents
  Origin origin;
  Word<std::uint32_t> rings;  // how many have been used; some may be free again
};
inline constexpr std::size_t kHeaderBytes = 4096;
static_assert(sizeof(Header) <= kHeaderBytes);

inline constexpr std::uint32_t kEvents = 64;  // a power of two
inline constexpr std::uint32_t kPlans = 32;
inline constexpr std::uint32_t kAwaited = 8;

// One collective. `state` is written(number) while call, root, count and before are those of the collective with this
// number, and 0 while they are being written. The others follow while it runs. A reader reads the ring twice; what is
// the same in both is of one collective.
struct alignas(64) Event {
  Word<std::uint64_t> state;
  Word<std::uint32_t> call;  // of the operation's fingerprint (executor/fingerprint.h), without the plan
  Word<std::uint32_t> root;  // likewise, with a hash of all collectives before
  Word<std::uint64_t> count;
  Word<std::uint64_t> before;  // a hash of all collectives before
  Word<std::uint32_t> plan;    // the hash of how the rank runs it, whose text is in Ring::plans; 0: not known yet
  Word<std::uint64_t> begun;   // ticks; 0: not noted yet
  Word<std::uint64_t> ended;   // ticks; before `begun`: it has not ended, or too soon to be measured
  // The longest time in which nothing moved, in ms; in the upper half the first of the ranks for which this one waited,
  // plus 1. 0: no wait was long enough to be noted.
  Word<std::uint64_t> waited;

  static constexpr std::uint64_t written(std::uint32_t number) { return std::uint64_t{1} << 32 | number; }
};
static_assert(sizeof(Event) == 64);

// The part of Ring besides the tables.
struct Position {
  Word<std::uint64_t> communicator;  // the same number on all of its ranks; 0: the ring is free, or being made
  std::int32_t rank;
  std::int32_t ranks;
  Word<std::uint32_t> sequence;  // of the collective that began last
  Word<std::uint32_t> inside;    // 1: the rank is in an operation, that one or a transfer. Short ones do not set it
  // The send or receive that the rank is in; of a group the first one.
  Word<std::uint32_t> transfer;  // 0: none; 1: a send; 2: a receive
  Word<std::int32_t> transfer_peer;
  Word<std::uint64_t> transfer_bytes;
  // The last long wait. The rank writes it every 50 ms or more often as long as nothing moves.
  Word<std::int64_t> waited_ms;
  Word<std::int64_t> seen_ns;  // CLOCK_MONOTONIC of this report; 0: none since the operation began
  // Of one moment, some time after that of Header.
  Word<std::uint64_t> mark_ticks;
  Word<std::int64_t> mark_ns;    // CLOCK_MONOTONIC; written last; 0: none yet
  Word<std::uint32_t> awaiting;  // ranks for whose data or room it waits; at most kAwaited are listed
  std::array<Word<std::int32_t>, kAwaited> awaited;
  // A call that the ranks agree on, beside operations: tuttiCommAgree, tuttiCommShrink, ... While a rank joins, it has
  // a ring whose `communicator` is the job's number, and is in tuttiCommInitRank or tuttiCommInitEnv.
  Word<std::int64_t> agreeing_since_ns;  // CLOCK_MONOTONIC; 0: none. The text is complete before
  std::array<char, 64> agreement;
  // Since when the rank's next operation, which is queued, waits for other work of its stream. CLOCK_MONOTONIC; 0: none
  Word<std::int64_t> behind_since_ns;
  // The error that has failed the communicator, and whether the rank was in an operation then. `transfer` and the last
  // wait stay as they were.
  Word<std::int64_t> failed_ns;  // CLOCK_MONOTONIC
  Word<std::uint32_t> failed;    // Failed; written last
  std::array<char, 308> failure;
  // How many operations of each collective have begun.
  std::array<Word<std::uint64_t>, kCollectives> calls;
  // The last reading of the thread that runs the operations (thread_times.h).
  Word<std::int32_t> thread;       // 0: the process
  Word<std::uint64_t> read_ticks;  // written last; 0: none yet
  Word<std::int64_t> read_ns;      // CLOCK_MONOTONIC
  Word<std::uint64_t> run_ns;
  Word<std::uint64_t> delay_ns;

  enum Failed : std::uint32_t { kNot, kOutside, kInside };
};

// Of files that no library has written.
inline constexpr int kMostRanks = 1 << 20;
inline constexpr std::int64_t kMostNs = std::int64_t{1} << 62;

// How a rank runs some of its collectives. The row of a hash is the first free one of kPlanRows from hash % kPlans on;
// if none is free, the text is left out.
struct PlanText {
  Word<std::uint32_t> hash;  // written last; 0: free
  std::array<char, 60> text;
};
inline constexpr std::uint32_t kPlanRows = 8;

// What the rank did before a collective, if it had been outside of its operations for long; and what it waited for in
// it, if it waited for long. The place of a number is number % kCauses.
struct Causes {
  Word<std::uint32_t> number;  // of the collective; written last; 0: none
  // Microseconds. `outside` is the whole time; of it, the time in which the rank ran, in which it was runnable without
  // a processor, and in which it was inside collectives of other communicators. 0: not noted.
  Word<std::uint32_t> outside_us;
  Word<std::uint32_t> run_us;
  Word<std::uint32_t> delay_us;
  Word<std::uint32_t> elsewhere_us;
  // The rank, plus 1, for whose bytes this one waited longest; 0: for none that long. Likewise the rank to which it had
  // more to send than the network took.
  Word<std::uint32_t> data_from;
  Word<std::uint32_t> data_us;
  Word<std::uint32_t> room_at;
  Word<std::uint32_t> room_us;
  Word<std::uint32_t> inside_delay_us;  // in these waits, or between them, the thread was runnable without a processor
};
static_assert(sizeof(Causes) == 40);
inline constexpr std::uint32_t kCauses = 32;

struct Ring {
  Position at;
  std::array<PlanText, kPlans> plans;
  std::array<Event, kEvents> events;
  std::array<Causes, kCauses> causes;
};
inline constexpr std::size_t kRingBytes = 8192;  // whole pages; the first calls need only one
static_assert(sizeof(Ring) <= kRingBytes && kRingBytes % 4096 == 0);

}  // namespace tutti::internal::observe
