// The state that the processes of a round share with the harness, in memory that all of them map. It survives processes
// that are killed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "script.h"

namespace tutti::internal::test::chaos {

inline constexpr int kNotBegun = -2;
inline constexpr int kThrough = 1'000'000;  // as a step: only the end follows

inline constexpr std::size_t kTextBytes = 700;

// The first error of a communicator on a rank.
struct Error {
  std::atomic<int> code{0};
  int step = 0;
  char text[kTextBytes] = {};
};

// A thread inside the library. `name` is a literal, which has one address in all processes of a round.
struct Inside {
  std::atomic<const char*> name{nullptr};
  std::atomic<std::int64_t> since_ns{0};  // 0: not inside
};

// The ranks that have gone on together at the end of a round.
struct Company {
  std::atomic<bool> wanted{false};      // this rank has the communicator that the others go on from
  std::atomic<std::uint32_t> ranks{0};  // bits; 0: none
  char error[kTextBytes] = {};          // why it could not
};

struct RankBoard {
  std::atomic<int> step{kNotBegun};
  std::atomic<int> called[kMaxComms] = {};  // 1 + the last step at which it called this communicator
  std::atomic<bool> finished{false};
  Inside inside;
  Inside aborting;
  std::atomic<int> abort_wanted{0};  // bit: communicator
  Error errors[kMaxComms];
  Company company;
  std::atomic<bool> is_wrong{false};
  char wrong_kind[24] = {};
  char wrong[kTextBytes] = {};
};

struct ProcessBoard {
  std::atomic<int> signal{0};  // that has ended it; the process waits until the harness has looked at it
  char left_over[kTextBytes] = {};
};

struct InProcessControl {
  RankBoard ranks[kMaxRanks];
  ProcessBoard processes[kMaxRanks];
  std::atomic<bool> struck[kMaxMishaps] = {};  // the mishap has happened
  std::atomic<bool> ids_made{false};
  std::atomic<bool> no_ids{false};
  std::atomic<bool> absent_may_go{false};
  char ids[kMaxComms][TUTTI_UNIQUE_ID_BYTES] = {};
};

}  // namespace tutti::internal::test::chaos
