// What a rank tells of itself to the monitors of other hosts, over the control tree: bytes, with times relative to the
// moment.
//
// Threads: any; no function here has state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "monitor/live_communicators.h"
#include "observe/reader.h"

namespace tutti::internal::monitor {

// Of the rank that this process has in the communicator; at most kMostReportBytes. Empty: its events cannot be read.
std::string report_of_rank(std::uint64_t communicator, int rank);
// The same of a rank that was read.
std::string pack_rank(const observe::SeenProcess& process, const observe::SeenRank& rank);

// The process of the rank, with that rank alone, as of `now_ns` of this host. Nothing: the bytes are damaged, or empty.
std::optional<observe::SeenProcess> unpack_rank(const std::string& bytes, std::uint64_t communicator, int rank,
                                                int ranks, const PeerPlace& place, std::int64_t now_ns);

}  // namespace tutti::internal::monitor
