// What the parts of program.h share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "algorithms/program.h"

namespace tutti::internal::algorithms {

inline constexpr std::int64_t kMostChunks = 1 << 20;
// Of one rank: more can be neither proven nor run.
inline constexpr std::size_t kMostRuns = 1'000'000;
inline constexpr std::size_t kMostSteps = 1 << 20;
inline constexpr std::size_t kMostStatements = 100'000;
inline constexpr std::size_t kMostRanksOfSteps = 4096;
inline constexpr std::array<const char*, 5> kStepKinds = {"send", "recv", "recv_reduce", "copy", "reduce"};
inline constexpr std::array<const char*, 3> kBuffers = {"input", "output", "scratch"};
// Positions of what every expression may name.
enum Given : std::size_t { kRanks, kRank, kRoot, kGivens };

}  // namespace tutti::internal::algorithms
