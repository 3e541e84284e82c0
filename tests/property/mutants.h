// Mutants of a correct schedule, each with one defect, for testing the verifier.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace tutti::internal::schedule {

struct Mutant {
  std::string what;
  Schedule schedule;
  // If the steps are the same, only moved or with fewer dependencies: original[i] is the former index of step i. Empty
  // if the steps themselves changed.
  std::vector<std::uint32_t> original;
};

// Drops, duplicates, swaps, redirects every step, alters its range, buffers, kind and `final`, and drops
// every dependency, one at a time.
// `order`: of ranks, and also swaps the operands of every combination.
std::vector<Mutant> mutants_of(const Schedule& schedule, Order order);

// Whether the mutant is equivalent to the original, by an argument that is independent of the verifier: same messages
// in every lane, and all conflicting accesses still ordered, in the same direction, in the closure of all waiting. Or
// it reads the input where the original reads a mere copy of it, or the reverse.
bool is_equivalent(const Schedule& schedule, const Mutant& mutant);

}  // namespace tutti::internal::schedule
