#include "transport/ranks.h"

#include "transport/adapter.h"

namespace tutti::internal {

Transport* Ranks::connecting(int a, int b, std::optional<ChannelKind> meet_by) const {
  for (const auto& transport : transports) {
    if (meet_by && (!transport->meeting() || transport->meeting()->kind != *meet_by)) continue;
    if (transport->connects(*this, a, b)) return transport.get();
  }
  return nullptr;
}

}  // namespace tutti::internal
