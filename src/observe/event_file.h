// The file of events of this process (layout.h): made with its first ring, closed with its last.
#pragma once

#include <cstddef>
#include <cstdint>

#include "observe/layout.h"
#include "observe/measures.h"

namespace tutti::internal::observe {

struct RingPlace {
  Ring* ring = nullptr;          // zeros; null: none, because the kernel refuses memory or a descriptor
  Measures* measures = nullptr;  // zeros; null: TUTTI_METRICS is not set
  std::size_t index = 0;         // in the file
  std::uint64_t file = 0;        // which one
};

// Any thread. A forked child uses none of its parent's rings: it makes its own file, and what it gives back is only
// unmapped.
RingPlace take_ring();
void give_back(const RingPlace& place);
// Whether it is in a file of this process, and not in the file of a parent that has forked it.
bool is_own(const RingPlace& place);

}  // namespace tutti::internal::observe
