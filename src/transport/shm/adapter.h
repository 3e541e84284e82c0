// Ranks connected by shared memory (src/transport/shm).
#pragma once

#include <cstdint>

#include "transport/adapter.h"

namespace tutti::internal {

// How many slots of each link within this machine long messages may fill. If ranks are oversubscribed, the data in
// flight on all their links should stay in a processor's level-2 cache, if possible. The same on every rank of a host.
std::uint32_t slots_ahead(const Ranks& ranks);

// See TransportEntry. "netns": only ranks of one network namespace.
std::shared_ptr<Transport> make_shm_transport(const std::optional<std::string>& option, bool asked);

}  // namespace tutti::internal
