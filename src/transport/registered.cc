// This file must contain nothing else: the linker takes all of it, or none of it if a program has its own definition.
#include "transport/registry.h"

namespace tutti::internal {

std::span<const TransportEntry> registered_transports() {
  return standard_transports();
}

}  // namespace tutti::internal
