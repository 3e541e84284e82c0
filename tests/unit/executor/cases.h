// Operations on integers for the executor's tests: the data of each rank, and its expected result.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "rig.h"

namespace tutti::internal::test {

struct Case {
  const algorithms::AlgorithmEntry* entry = nullptr;
  int ranks = 1;
  int root = 0;
  std::size_t count = 1;
  std::size_t slice_chunk_bytes = 0;
  bool in_place = false;
};

// The count of a call whose vector has about `elements` elements in total.
inline std::size_t count_for(const algorithms::AlgorithmEntry& entry, int ranks, std::size_t elements) {
  return std::max<std::size_t>(1, elements / blocks_of(entry.collective, ranks));
}

// Runs it on the rig; the result may be an error.
Status run(const Case& c, Rig& rig);
// Runs it; the test fails unless every rank has the correct result and an unchanged input.
void check(const Case& c, Rig& rig);

}  // namespace tutti::internal::test
