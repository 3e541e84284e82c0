// Ranks connected by TCP (src/transport/tcp).
#pragma once

#include "communicator/transports.h"

namespace tutti::internal {

// See TransportEntry.
std::shared_ptr<Transport> make_tcp_transport(const std::optional<std::string>& option, bool asked);

}  // namespace tutti::internal
