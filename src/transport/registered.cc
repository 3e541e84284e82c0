// Nothing else belongs into this file: the linker takes it whole, or leaves it where a program has its own.
#include "transport/registry.h"

namespace tutti::internal {

std::span<const TransportEntry> registered_transports() {
  return standard_transports();
}

}  // namespace tutti::internal
