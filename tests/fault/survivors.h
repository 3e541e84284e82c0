// Shared parts of the tests of survivor mode.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>

#include "faults.h"

namespace tutti::internal::test {

inline constexpr int kMostRanks = 8;
inline constexpr int kMostCalls = 600;
inline constexpr std::uint64_t kRootDied = std::uint64_t{1} << 63;

// The contributors of a call as bits, or kRootDied, by rank; 0: the rank did not complete it.
using Log = std::array<std::array<std::atomic<std::uint64_t>, kMostRanks>, kMostCalls>;

inline std::uint64_t contributors_of(tuttiComm_t comm) {
  std::array<int, kMostRanks> ranks{};
  int count = 0;
  if (tuttiCommGetContributors(comm, ranks.data(), kMostRanks, &count) != tuttiSuccess) return 0;
  std::uint64_t bits = 0;
  for (int i = 0; i < count; ++i) bits |= std::uint64_t{1} << ranks[static_cast<std::size_t>(i)];
  return bits;
}

inline bool is_in(std::uint64_t set, int rank) {
  return (set >> rank & 1) != 0;
}

}  // namespace tutti::internal::test
