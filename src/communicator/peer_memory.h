// Memory that peers on this machine can map, for the API: see memory/region.h.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "memory/region.h"

namespace tutti::internal {

inline Result<void*> allocate_peer_memory(std::size_t bytes) {
  return memory::RegionRegistry::instance().allocate(bytes);
}
inline Status free_peer_memory(void* address) {
  return memory::RegionRegistry::instance().free(address);
}

}  // namespace tutti::internal
