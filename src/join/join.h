// Joining: how the ranks of a job find each other and build the control tree.
//
// A unique id holds the addresses of a root service and a secret. Every rank connects to the root service once, which
// sends it its parent in a k-ary tree; it then connects only to that parent. While the tree is being connected, the
// root service detects deaths and notifies the ranks. Over the tree, each rank's PeerInfo is gathered and sent to all.
// Every connection begins with mutual authentication with the secret (net/auth.h): an unauthenticated peer gets no data
// and delays no rank.
//
// The tree's connections stay open for the life of the communicator and its family; one sleeping thread watches them
// (SocketTree). They carry failure notices and leave notices. A broken connection shows a death: if a dead rank splits
// the tree, each part has a neighbour of that rank, which notifies its part.
//
// Threads: any; join() and decline() block their caller, one per rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/descriptors.h"
#include "base/status.h"
#include "join/job.h"
#include "os/clock.h"

namespace tutti::internal {

// Starts the root service of a new job in this process: a thread that ends when the control tree of all ranks
// stands or the init timeout has passed.
Result<UniqueIdBytes> create_unique_id(const Settings& settings);
// The same at a known address, for jobs whose ranks know it in advance. The secret is derived from `job` (and
// TUTTI_SECRET if set). It must distinguish jobs whose roots share candidate ports, and not contain the address, which
// ranks may spell in several ways. `ports`: candidates. The service takes the first free one, and ranks try all of them
// until one authenticates.
struct KnownRoot {
  std::string host;
  std::vector<std::uint16_t> ports;
  std::string job;
};

// The maximum of open descriptors of one rank: its part of the tree and links to all others.
std::size_t descriptors_of_rank(int ranks, const Settings& settings);
DescriptorReservation reserve_descriptors(int ranks, const Settings& settings);

// `gives_up`: see Member.
Result<Job> join(const UniqueIdBytes& id, int rank, int ranks, const Settings& settings, Deadline deadline,
                 ControlTree::GivesUp gives_up = {});
// With one port in `root`, rank 0 must get that one; a taken port is an error.
Result<Job> join(const KnownRoot& root, int rank, int ranks, const Settings& settings, Deadline deadline);

// Called instead of join() by a rank that cannot take part: the others, which would wait for it, fail with its reason,
// if the root is found before the deadline.
void decline(const UniqueIdBytes& id, int rank, int ranks, const Status& why, Deadline deadline,
             ControlTree::GivesUp gives_up = {});
void decline(const KnownRoot& root, int rank, int ranks, const Status& why, Deadline deadline);

}  // namespace tutti::internal
