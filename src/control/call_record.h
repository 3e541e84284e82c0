// A rank's report of its calls to the other ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::internal {

// Numbers of operations are modulo 2^32, which some programs reach within minutes. The two differ by less than half of
// that: ranks are within a few operations of each other, and if one is not, its absence ends the waits of the job.
constexpr bool is_before(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>(a - b) < 0;
}

// One operation that a rank has called. Records of two ranks with the same number differ in `call` exactly if the ranks
// have called different operations.
struct CallRecord {
  std::uint32_t sequence = 0;
  std::array<std::uint64_t, 2> call{};
  std::uint64_t before = 0;  // a hash of all operations before this one
  std::string text;
  std::string plan;  // how the rank runs it; empty if it has not decided yet
};

// All calls of a rank.
struct CallSummary {
  std::uint32_t operations = 0;   // modulo 2^32
  std::uint64_t hash = 0;         // of all operations
  std::vector<CallRecord> calls;  // the last ones, oldest first
};

}  // namespace tutti::internal
