// Pairs of connected shm links.
#pragma once

#include "conformance.h"

namespace tutti::internal::transport::conformance {

// As between two threads of one process. `own_processor`, `far`: as in LinkOptions.
Pair threads_pair(bool own_processor = true, bool far = false);
// What two processes would have, in one: zero-copy sends go through regions and their descriptors.
Pair processes_pair(bool own_processor = true, bool far = false);

}  // namespace tutti::internal::transport::conformance
