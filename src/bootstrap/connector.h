// Opens authenticated connections between this rank and its peers, on demand, both ways through the
// same call: ranks that are to share a link both call connect() for each other (a schedule in which i
// sends to j is one in which j receives from i). The higher rank dials, the lower one accepts.
//
// The dialler decides the kind: a Unix socket if shm is allowed and the peer is on this machine and
// the socket can be reached, else TCP, `streams` connections at once; one TCP connection where the ranks will
// only set up RDMA over it. The acceptor takes what comes.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/failure.h"
#include "base/stall.h"
#include "base/unique_fd.h"
#include "bootstrap/peer_info.h"
#include "bootstrap/unique_id.h"

namespace tutti::internal {

enum class ChannelKind : std::uint8_t { kUnix, kTcp };

// An authenticated connection to a peer, still blocking-neutral: sockets are non-blocking.
struct Channel {
  ChannelKind kind = ChannelKind::kTcp;
  int peer = -1;
  bool dialled = false;           // by this side
  std::vector<UniqueFd> sockets;  // one Unix socket, or the TCP streams in the same order on both sides
};

class Connector {
 public:
  // Listens: abstract Unix socket and/or TCP as `allowed_unix`, `allowed_tcp` say, on addresses and
  // ports as the settings say. Fills the address fields of *info.
  static Result<std::unique_ptr<Connector>> listen(const Settings& settings, bool allow_unix, bool allow_tcp, int rank,
                                                   const Secret& secret, PeerInfo* info);
  virtual ~Connector() = default;
  // Also listens on a Unix socket by path, for peers of this machine in other network namespaces.
  // Fills info->unix_path. The file is removed with the Connector.
  virtual Status listen_on_path(PeerInfo* info) = 0;
  // The address book, before the first connect(). `by_verbs`: peers with whom this rank sets up RDMA.
  virtual void set_peers(std::vector<PeerInfo> peers, std::vector<bool> by_verbs) = 0;
  // Told while connect() waits. Outlives the connector.
  virtual void watch_stalls(StallWatch* watch) = 0;

  // Connects to all of `peers` (none of which may have been connected before), working on all of them
  // at once. Fails with kTimeout naming the missing ranks, or as soon as `failure` has failed.
  virtual Result<std::vector<Channel>> connect(const std::vector<int>& peers, const FailureState& failure,
                                               Deadline deadline) = 0;
};

}  // namespace tutti::internal
