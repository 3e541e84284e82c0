// The ranks of a communicator, for a transport: on which hosts they run, and how they share the processors. All ranks
// derive the same values from the same address table, except for the fields about this rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/rank_table.h"
#include "join/peer_info.h"
#include "transport/connections/connector.h"

namespace tutti::internal {

class Transport;
// In the order of the registry.
using Transports = std::vector<std::shared_ptr<Transport>>;

// For a machine that does not report it.
inline constexpr std::size_t kUsualLevel2Bytes = 2 * 1024 * 1024;

struct Ranks {
  int rank = 0;                         // this one
  Settings settings;                    // this rank's, with rank 0's values of those that rank 0 decides
  int node = -1;                        // the only NUMA node on whose processors it could run when it joined; -1: there
                                        // were several
  std::vector<int> far_nodes;           // NUMA nodes of its machine on whose processors it may not run
  RankTable<PeerInfo> peers;            // by rank; their `rank` is that of the communicator that joined
  std::vector<std::vector<int>> hosts;  // ranks that can share memory, by host, in rank order
  std::vector<int> host_of;             // by rank: its index in hosts
  std::vector<std::string> memory_troubles;      // by rank: why it cannot share memory; empty: it, or each, can
  double ranks_per_cpu_here = 1;                 // on this rank's machine, with other ranks that are known there
  bool oversubscribed = false;                   // more ranks on this rank's machine than processors they may use
  std::size_t level2_bytes = kUsualLevel2Bytes;  // of a processor: the smallest of all ranks
  MemoryReads reads_processes{};                 // the most restrictive setting of any rank
  double port_gbits = 0;                         // of the slowest known port to the network; 0: unknown
  Transports transports;                         // rank 0's

  [[nodiscard]] int ranks() const { return static_cast<int>(peers.size()); }
  [[nodiscard]] bool same_host(int a, int b) const {
    return host_of[static_cast<std::size_t>(a)] == host_of[static_cast<std::size_t>(b)];
  }
  // Whether both can share memory with other processes, by their own tests.
  [[nodiscard]] bool can_share_memory(int a, int b) const {
    return memory_troubles.empty() || (memory_troubles[static_cast<std::size_t>(a)].empty() &&
                                       memory_troubles[static_cast<std::size_t>(b)].empty());
  }
  // The transport that connects ranks a and b, with connection kind `kind` if that is given. Null: none.
  [[nodiscard]] Transport* connecting(int a, int b, std::optional<ConnectionKind> kind = std::nullopt) const;
};

}  // namespace tutti::internal
