// Pairs of connected shm links.
#pragma once

#include "conformance.h"

namespace tutti::internal::transport::conformance {

// As between two threads of one process.
Pair threads_pair();
// What two processes would have, in one: zero-copy sends go through regions and their descriptors.
Pair processes_pair();

}  // namespace tutti::internal::transport::conformance
