// The ranks of a communicator as a transport sees them: on which hosts they run, and how they share the processors.
// All ranks derive the same values from the same address table, except for the fields that are this rank's own.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "join/peer_info.h"
#include "transport/connections/connector.h"

namespace tutti::internal {

class Transport;
// In the order of the registry.
using Transports = std::vector<std::shared_ptr<Transport>>;

// Of a machine that does not tell.
inline constexpr std::size_t kUsualLevel2Bytes = 2 * 1024 * 1024;

struct Ranks {
  int rank = 0;                         // this one
  int node = -1;                        // the NUMA node on whose processors alone it could run when it joined; -1: none
  std::vector<int> far_nodes;           // NUMA nodes of its machine on whose processors it may not run
  std::vector<PeerInfo> peers;          // by rank
  std::vector<std::vector<int>> hosts;  // ranks that can share memory, by host, in rank order
  std::vector<int> host_of;             // by rank: its index in hosts
  std::vector<std::string> memory_troubles;      // by rank: why it cannot share memory; empty: it can
  double ranks_per_cpu_here = 1;                 // on this rank's machine, with other ranks that are known there
  bool oversubscribed = false;                   // more ranks on this rank's machine than processors they may use
  std::size_t level2_bytes = kUsualLevel2Bytes;  // that a processor has, the least of all
  MemoryReads reads_processes{};                 // the least that a rank wants
  double port_gbits = 0;  // of the slowest port to the network of those that are known; 0: none is
  Transports transports;  // rank 0's

  [[nodiscard]] int ranks() const { return static_cast<int>(peers.size()); }
  [[nodiscard]] bool same_host(int a, int b) const {
    return host_of[static_cast<std::size_t>(a)] == host_of[static_cast<std::size_t>(b)];
  }
  // Whether both can share memory with other processes, as far as these have looked.
  [[nodiscard]] bool can_share_memory(int a, int b) const {
    return memory_troubles[static_cast<std::size_t>(a)].empty() && memory_troubles[static_cast<std::size_t>(b)].empty();
  }
  // The transport that connects ranks a and b; of those whose ranks meet by `kind`, if that is given. Null: none.
  [[nodiscard]] Transport* connecting(int a, int b, std::optional<ConnectionKind> kind = std::nullopt) const;
};

}  // namespace tutti::internal
