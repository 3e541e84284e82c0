// Pairs of connected shm links.
#pragma once

#include "conformance.h"

namespace tutti::internal::transport::conformance {

// As between two threads of one process. `own_processor`: as in LinkOptions.
Pair threads_pair(bool own_processor = true);
// What two processes would have, in one: zero-copy sends go through regions and their descriptors.
Pair processes_pair(bool own_processor = true);

}  // namespace tutti::internal::transport::conformance
