// What this rank knows of the job's machine: who runs where, which transports are allowed, and what
// follows from that for selection and waiting. Every rank derives the same from the same address book.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "communicator/bootstrap.h"

namespace tutti {

// TUTTI_TRANSPORTS, read: a list of "shm", "shm:netns" (shared memory only within one network
// namespace), "tcp", "sim" or "sim:SEED" (threads of one process only; alone).
struct Transports {
  bool shm = false;
  bool shm_within_namespace_only = false;
  bool tcp = false;
  bool sim = false;
  std::uint64_t sim_seed = 1;
};
Result<Transports> parse_transports(const std::string& text);

// This rank's PeerInfo but for its addresses.
Result<PeerInfo> describe_self(int rank, const Settings& settings);

struct Membership {
  int rank = 0;
  std::vector<PeerInfo> peers;          // by rank
  std::vector<std::vector<int>> hosts;  // ranks that can share memory, by host, in rank order
  bool crowded = false;                 // more ranks on this machine than processors they may use
  double load = 1;                      // ranks per processor on the machine with most; the same on every rank
  bool one_process = false;             // all ranks are threads of this process
  std::string algorithm;                // forced, by rank 0's TUTTI_ALGORITHM; empty: none

  [[nodiscard]] int ranks() const { return static_cast<int>(peers.size()); }
};

// REQUIRES: peers[i].rank == i.
Result<Membership> make_membership(int rank, std::vector<PeerInfo> peers);

}  // namespace tutti
