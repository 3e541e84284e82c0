// Lists of calls that cover the arguments' domain: the same list on every rank.
#pragma once

#include <vector>

#include "trial.h"

namespace tutti::internal::test {

// Every collective x datatype x operator; in place and not; counts of 0, 1, below and above the number of
// ranks, and `large`; kinds of memory and alignments in turn.
std::vector<Spec> every_type(int ranks, std::size_t large);
// Every collective on float sums, at the sizes where the path through the library changes (a slot, a slice, several
// slices), each at -1, +0 and +1 element, up to `most_bytes` for a vector.
std::vector<Spec> every_size(int ranks, std::size_t most_bytes);
// Every root of the collectives that have one.
std::vector<Spec> every_root(int ranks);
// Every `stride`-th of them. REQUIRES: `stride` has no factor in common with the number of variants of a size or type,
// which follow each other in the lists above; then each variant is left of some sizes and types.
std::vector<Spec> sample(const std::vector<Spec>& specs, std::size_t stride);
// One collective at some sizes, including barriers: for forced algorithms.
std::vector<Spec> some_of(Collective collective, int ranks);

}  // namespace tutti::internal::test
