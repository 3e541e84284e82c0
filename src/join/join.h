// How the ranks of a job find each other, and the control tree that stays afterwards.
//
// A unique id holds the addresses of a root service and a secret. Every rank connects to the root
// once and is told its parent in a k-ary tree; it connects there and to nobody else. While the tree is
// being connected the root sees who dies, and tells. Over the tree
// each rank's PeerInfo is gathered and handed to all. Every connection begins with a mutual proof of
// knowledge of the secret (net/auth.h): a stranger gets nothing and stops nothing.
//
// The tree's connections stay open for the life of the communicator and of those that are split from it, watched by
// one sleeping thread (SocketTree). They carry failure notices and leave notices, and their breaking is how a death is
// seen: each part into which a dead rank splits the tree has a neighbour of it, which tells the others.
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
// The same at a known address, for jobs that agree on it beforehand. `job` is what the secret is derived from (with
// TUTTI_SECRET if set): it must tell apart jobs whose roots share candidate ports, and not hold the address, which
// ranks may spell in several ways. `ports`: candidates; the service takes the first free one,
// and ranks try all of them in turn until one proves that it knows the secret.
struct KnownRoot {
  std::string host;
  std::vector<std::uint16_t> ports;
  std::string job;
};

// What one rank may have open at most: its part of the tree and links to all others.
std::size_t descriptors_of_rank(int ranks, const Settings& settings);
DescriptorReservation reserve_descriptors(int ranks, const Settings& settings);

Result<Job> join(const UniqueIdBytes& id, int rank, int ranks, const Settings& settings, Deadline deadline);
// With one port in `root`, rank 0 must get that one; a taken port is an error.
Result<Job> join(const KnownRoot& root, int rank, int ranks, const Settings& settings, Deadline deadline);

// In place of join(), by a rank that cannot take part: the others, which would wait for it, fail and are told why. As
// far as the root is found before the deadline.
void decline(const UniqueIdBytes& id, int rank, int ranks, const Status& why, Deadline deadline);
void decline(const KnownRoot& root, int rank, int ranks, const Status& why, Deadline deadline);

}  // namespace tutti::internal
