// Opens authenticated connections between this rank and its peers, on demand, both ways through the same call: ranks
// that are to share a link both call connect() for each other (a schedule in which i sends to j is one in which j
// receives from i). The rank with the higher number in the communicator that joined dials, the other accepts.
//
// The dialler decides the kind: a Unix socket if that is the connection kind and the socket can be reached, else TCP,
// all streams at once. The acceptor accepts both.
//
// Each communicator has a connector; the connectors of a rank in one family share their listeners (listeners.h). In
// claims a rank uses its number in the communicator that joined.
//
// Threads: listen(), set_peers() and watch_stalls() by the thread that joins; then connect() and split() by the one
// thread that runs the communicator's operations. Several connectors may be in connect() at the same time.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/config.h"
#include "base/failure.h"
#include "base/rank_table.h"
#include "base/stall.h"
#include "join/peer_info.h"
#include "join/unique_id.h"
#include "net/byte_stream.h"
#include "os/clock.h"
#include "transport/connections/reconnector.h"

namespace tutti::internal {

enum class ConnectionKind : std::uint8_t { kUnix, kTcp };

// How two ranks are to be connected.
struct ConnectionSpec {
  ConnectionKind kind = ConnectionKind::kTcp;
  int streams = 0;  // of TCP; 0: as the settings say
  // For Unix sockets: ranks in other network namespaces must also reach them. Abstract names are limited to the
  // namespace; paths are not.
  bool across_namespaces = false;
};

// An authenticated connection to a peer.
struct PeerConnection {
  ConnectionKind kind = ConnectionKind::kTcp;
  int peer = -1;
  bool dialled = false;         // by this side
  std::int64_t silence_ms = 0;  // of TCP: the limit of net::is_silent()
  // Of TCP, if streams are made anew (null: they are not): makes them, and what it must know of the peer.
  std::shared_ptr<Reconnector> reconnector{};
  Reconnector::Peer reconnect_peer{};
  std::vector<net::ByteStream> streams;  // one Unix socket, or the TCP streams in the same order on both sides
};

class Connector {
 public:
  // Listens: abstract Unix socket and/or TCP as `allow_unix`, `allow_tcp` say, on addresses and
  // ports as the settings say. Fills the address fields of *info; `best` comes first, as Job::address. For
  // communicator 0.
  static Result<std::unique_ptr<Connector>> listen(const Settings& settings, bool allow_unix, bool allow_tcp, int rank,
                                                   const Secret& secret, const std::string& best, PeerInfo* info);
  virtual ~Connector() = default;
  // For peers of this machine in other network namespaces, to which abstract names do not lead. Each rank listens on a
  // Unix socket by path, too (fills info->unix_path); opens the paths of those that it will dial, by their PeerInfo;
  // and removes its own when all have. What a rank could not open it reaches over TCP.
  virtual Status listen_on_path(PeerInfo* info) = 0;
  virtual void open_paths(const RankTable<PeerInfo>& peers) = 0;
  virtual void remove_path() = 0;
  // The address book, before the first connect(), and how this rank is to be connected with each, by rank.
  virtual void set_peers(RankTable<PeerInfo> peers, std::vector<ConnectionSpec> specs) = 0;
  // Looks after the listeners while no connect() does: closes connections that do not prove the secret. Does not wait.
  // True: should be called again soon. After set_peers(); any thread.
  virtual bool attend_listeners() = 0;
  // Makes the streams of this rank's links anew. After begin(), the control tree's thread must run its poll loop.
  [[nodiscard]] virtual Reconnector& reconnector() = 0;
  // Called while connect() waits. Outlives the connector.
  virtual void watch_stalls(StallWatch* watch) = 0;

  // The connector of the new communicator `communicator`, whose number is unique in the job. `members`: the rank here
  // of each of its ranks, including this one. From now on connections for it are kept. It may outlive this one.
  [[nodiscard]] virtual std::unique_ptr<Connector> split(std::uint64_t communicator, const std::vector<int>& members,
                                                         const Settings& settings) const = 0;

  // Connects to all of `peers` (none of which may have been connected before), working on all of them
  // at once. Fails with kTimeout naming the missing ranks, or as soon as `failure` has failed.
  virtual Result<std::vector<PeerConnection>> connect(const std::vector<int>& peers, const FailureState& failure,
                                                      Deadline deadline) = 0;

  // The same for connections that all communicators of a family use: both ranks call it, for any communicator. It
  // passes each connection to `take` as soon as it exists, because other threads may wait for it. Several threads may
  // call it at the same time, for several communicators and different peers.
  using Take = std::function<Status(PeerConnection)>;
  virtual Status connect_shared(const std::vector<int>& peers, const Take& take, const FailureState& failure,
                                Deadline deadline) const = 0;
  // The peer's number in the communicator that joined, and this communicator's.
  [[nodiscard]] virtual int job_rank(int peer) const = 0;
  [[nodiscard]] virtual std::uint64_t communicator() const = 0;
};

}  // namespace tutti::internal
