// Ranks connected by shared memory (src/transport/shm).
#pragma once

#include <cstdint>

#include "transport/adapter.h"

namespace tutti::internal {

// How many slots of each link within this machine long messages may fill. Where ranks take turns on a processor,
// what all their links have under way should stay in its level-2 cache, if it can. The same on every rank of a host.
std::uint32_t slots_ahead(const Ranks& ranks);

// See TransportEntry. "netns": only ranks of one network namespace.
std::shared_ptr<Transport> make_shm_transport(const std::optional<std::string>& option, bool asked);

}  // namespace tutti::internal
