// Ranks connected by TCP (src/transport/tcp).
#pragma once

#include "transport/adapter.h"

namespace tutti::internal {

// See TransportEntry.
std::shared_ptr<Transport> make_tcp_transport(const std::optional<std::string>& option, bool asked);

}  // namespace tutti::internal
