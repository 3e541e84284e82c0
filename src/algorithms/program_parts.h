// Shared definitions of the program*.cc files.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "algorithms/program.h"

namespace tutti::internal::algorithms {

inline constexpr std::int64_t kMostChunks = 1 << 20;
// Limit of statements for one rank: more cannot be proven or run.
inline constexpr std::size_t kMostRuns = 1'000'000;
// Limit of numbers, names and operators that a rank evaluates: ten for each of five operands of that many statements.
// This takes about 0.2 s, for expressions of any length.
inline constexpr std::size_t kMostEvaluated = 50 * kMostRuns;
inline constexpr std::size_t kMostSteps = 1 << 20;
inline constexpr std::size_t kMostStatements = 100'000;
inline constexpr std::size_t kMostRanksOfSteps = 4096;
inline constexpr std::array<const char*, 5> kStepKinds = {"send", "recv", "recv_reduce", "copy", "reduce"};
inline constexpr std::array<const char*, 3> kBuffers = {"input", "output", "scratch"};
// Positions of the names in expressions. The first ones are the same on every rank: `when` and `chunks` may use only
// these, statements all.
enum Given : std::size_t {
  kRanks,
  kHosts,
  kEqualHosts,
  kHostsInOrder,
  kMostLocalRanks,
  kAlikeGivens,
  kRank = kAlikeGivens,
  kRoot,
  kHost,
  kLocalRank,
  kLocalRanks,
  kGivens
};
inline constexpr std::array<const char*, kGivens> kGivenNames = {
    "ranks", "hosts", "equal_hosts", "hosts_in_order", "most_local_ranks",
    "rank",  "root",  "host",        "local_rank",     "local_ranks"};

}  // namespace tutti::internal::algorithms
