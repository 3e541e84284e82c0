// A tiny executor for tests: runs all ranks' schedules on real integers, one chunk at a time, in a seeded
// random order among all that may happen, without any buffering (a chunk moves when both ends are ready).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "schedule/schedule.h"

namespace tutti::internal::schedule {

struct Run {
  std::size_t block_elements = 0;
  std::size_t slice_begin = 0;  // the slice of every block that is processed
  std::size_t slice_elements = 0;
  bool in_place = false;
  Order order = Order::kAny;
  unsigned seed = 0;
};

using Vector = std::vector<std::uint32_t>;  // blocks x block_elements, including those that a buffer does not contain

// inputs[r] is rank r's whole vector; elements that the rank does not contribute are never read. Returns the output
// vectors; elements outside the slice or owed to others keep kUntouched, or in place the input. Reductions add, or
// compose (see below) if the order of ranks matters. An error if nothing can happen and not all is done.
inline constexpr std::uint32_t kUntouched = 0xdeadbeef;
// a, then b: maps x -> m x + n of numbers modulo 2^16, m in the upper half. Associative, and does not commute.
constexpr std::uint32_t compose(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t factor = (a >> 16) * (b >> 16);
  return factor << 16 | (((b >> 16) * (a & 0xffff) + b) & 0xffff);
}
Result<std::vector<Vector>> interpret(std::span<const Schedule> schedules, const std::vector<Vector>& inputs,
                                      const Run& run);

}  // namespace tutti::internal::schedule
