#include "transport/ranks.h"

#include "transport/adapter.h"

namespace tutti::internal {

Transport* Ranks::connecting(int a, int b, std::optional<ConnectionKind> kind) const {
  for (const auto& transport : transports) {
    if (kind && (!transport->connects_by() || transport->connects_by()->kind != *kind)) continue;
    if (transport->connects(*this, a, b)) return transport.get();
  }
  return nullptr;
}

}  // namespace tutti::internal
