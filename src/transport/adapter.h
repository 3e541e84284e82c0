// The interface of a transport to communicators: which ranks it connects, which data these must exchange before, how to
// make a link. The registry (registry.h) lists the transports; TUTTI_TRANSPORTS chooses among them.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/collectives.h"
#include "base/config.h"
#include "base/failure.h"
#include "base/message_costs.h"
#include "base/status.h"
#include "os/clock.h"
#include "transport/connections/connector.h"
#include "transport/ranks.h"
#include "transport/transport.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal {

// Connects ranks that are threads of one process and were made together.
class ThreadNetwork {
 public:
  ThreadNetwork() = default;
  ThreadNetwork(const ThreadNetwork&) = delete;
  ThreadNetwork& operator=(const ThreadNetwork&) = delete;
  virtual ~ThreadNetwork() = default;
  // This rank's end of a link to `to`. The k-th call of this rank for `to` matches the k-th call of `to` for this rank.
  // `wakeup_fds`: by rank; they outlive the link. Any thread.
  virtual Result<std::unique_ptr<transport::Link>> link(const Ranks& ranks, int to,
                                                        std::span<const transport::WakeupFd> wakeup_fds) = 0;
};

// The rank that makes a link. All outlive the link.
struct LinkOwner {
  const Ranks& ranks;
  const transport::WakeupFd& wakeup_fd;
  const FailureState& failure;
};

// This side of a link, before the peer has necessarily made its own.
class BegunLink {
 public:
  virtual ~BegunLink() = default;
  // Null: the peer has not made its side yet. Not called again after a link or an error.
  virtual Result<std::unique_ptr<transport::Link>> finish() = 0;
  // Readable when the peer has sent something, perhaps about this link.
  [[nodiscard]] virtual int socket() const = 0;
};

// For a transport whose links share connections: the connections of this rank, one set for all communicators of a
// family. Ranks are numbered as in the communicator that joined. Any thread.
class SharedConnections {
 public:
  enum class State : std::uint8_t {
    kNone,
    kBeingMade,  // by the thread that has claimed it
    kMade,
    kOutOfReach,  // ranks that cannot use it: they need links of another transport
  };
  SharedConnections() = default;
  SharedConnections(const SharedConnections&) = delete;
  SharedConnections& operator=(const SharedConnections&) = delete;
  virtual ~SharedConnections() = default;

  virtual State state(int job_rank) = 0;
  // True: the caller must make the connection, and then call add() or give_up(). False: another thread makes it, or it
  // exists.
  virtual bool claim(int job_rank) = 0;
  virtual Status add(int job_rank, PeerConnection channel, const LinkOwner& owner) = 0;
  // Does nothing if the connection exists.
  virtual void give_up(int job_rank) = 0;
  // Waits until a connection is made or given up, at most `longest_ms`.
  virtual void await_change(int longest_ms) = 0;

  // Null: the connection does not exist, or not any longer. REQUIRES: the communicator has and had no other link to
  // that rank.
  virtual Result<std::unique_ptr<BegunLink>> begin_link(int job_rank, std::uint64_t communicator, int peer,
                                                        const LinkOwner& owner) = 0;
  // The communicator has ended.
  virtual void forget(std::uint64_t communicator) = 0;
};

// A transport, for one rank of a job. Used by one thread at a time.
//
// Every rank has its own object, made from rank 0's setting. Values that are "the same on every rank" follow only from
// data that all ranks have: that setting, the address table, the descriptions of tell().
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // As in the registry.
  [[nodiscard]] virtual std::string_view name() const = 0;
  // For selection without measurements. The same on every rank.
  [[nodiscard]] virtual TransportCosts costs(const Ranks& ranks) const = 0;
  // If all links use this transport, longer chunks are cut so that the data in flight stays in the cache. The same on
  // every rank.
  [[nodiscard]] virtual std::size_t slice_bytes(const Ranks& ranks, Collective collective) const = 0;

  // Whether two ranks can share memory through this transport; then they are on one host. Only ranks of one machine can
  // (PeerInfo::same_machine). Transitive; the same on every rank.
  [[nodiscard]] virtual bool shares_memory(const PeerInfo& a, const PeerInfo& b) const = 0;
  // The description that this rank sends to all others; connects() depends on it. The transport opens its devices here.
  // Empty optional: no rank sends a description; the same on every rank.
  virtual Result<std::optional<std::string>> tell(const Ranks& ranks) = 0;
  // The descriptions of all ranks, by rank, if there are any.
  virtual Status hear(const std::vector<std::string>& told, const Ranks& ranks) = 0;
  // Instead of tell(), for a communicator of some of the ranks of `parent`'s: opens the same devices, or shares them.
  // hear() with the descriptions of these ranks follows. REQUIRES: both have the same name.
  virtual void inherit(const Transport& parent) = 0;
  // Whether it can connect ranks a and b; after hear(). If several transports can, the first of the registry does. The
  // same on every rank, and for (b, a).
  [[nodiscard]] virtual bool connects(const Ranks& ranks, int a, int b) const = 0;

  // The connection over which two ranks make their link. Empty optional: the transport connects only threads of one
  // process (make_thread_network).
  [[nodiscard]] virtual std::optional<ConnectionSpec> connects_by() const = 0;
  // Makes the links. Null: make_link() makes them, each over its own connection.
  [[nodiscard]] virtual SharedConnections* shared_connections() = 0;
  // Whether make_link() waits until the peer calls it as well.
  [[nodiscard]] virtual bool waits_for_peer() const = 0;
  // REQUIRES: the channel has the kind of connects_by(), and its peer makes the other end of the link; there are no
  // shared connections.
  virtual Result<std::unique_ptr<transport::Link>> make_link(PeerConnection channel, const LinkOwner& owner,
                                                             Deadline deadline) = 0;
  // For ranks that are threads of one process. Null: threads connect as processes do.
  virtual Result<std::unique_ptr<ThreadNetwork>> make_thread_network(int ranks) const = 0;
};

// A transport inherits the functions that it does not need from here.
class PlainTransport : public Transport {
 public:
  [[nodiscard]] bool shares_memory(const PeerInfo&, const PeerInfo&) const override { return false; }
  Result<std::optional<std::string>> tell(const Ranks&) override { return std::optional<std::string>(); }
  Status hear(const std::vector<std::string>&, const Ranks&) override { return {}; }
  void inherit(const Transport&) override {}
  [[nodiscard]] SharedConnections* shared_connections() override { return nullptr; }
  [[nodiscard]] bool waits_for_peer() const override { return false; }
  Result<std::unique_ptr<ThreadNetwork>> make_thread_network(int) const override {
    return std::unique_ptr<ThreadNetwork>();
  }
};

}  // namespace tutti::internal
