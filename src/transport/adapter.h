// What a communicator must know of a transport to use it: which ranks it connects, what these must tell each other
// before, how a link is made. The registry (registry.h) lists them; TUTTI_TRANSPORTS chooses among them.
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

// What connects ranks that are threads of one process and were made together.
class ThreadNetwork {
 public:
  ThreadNetwork() = default;
  ThreadNetwork(const ThreadNetwork&) = delete;
  ThreadNetwork& operator=(const ThreadNetwork&) = delete;
  virtual ~ThreadNetwork() = default;
  // The end of a link to `to` of the rank that these are for; its k-th call for `to` meets the k-th of `to` for
  // it. `wakeup_fds`: by rank; they outlive the link. Any thread.
  virtual Result<std::unique_ptr<transport::Link>> link(const Ranks& ranks, int to,
                                                        std::span<const transport::WakeupFd> wakeup_fds) = 0;
};

// The rank that makes a link. All outlive the link.
struct LinkOwner {
  const Ranks& ranks;
  const transport::WakeupFd& wakeup_fd;
  const FailureState& failure;
};

// This side of a link, while the peer has perhaps not made its own yet.
class BegunLink {
 public:
  virtual ~BegunLink() = default;
  // Null: it has not. After a link, or an error, not called again.
  virtual Result<std::unique_ptr<transport::Link>> finish() = 0;
  // Readable when the peer has said something, perhaps about this link.
  [[nodiscard]] virtual int socket() const = 0;
};

// Of a transport whose links need no connection of their own: the connections of this rank with others, once for all
// communicators of a family. Ranks have their numbers in the communicator that joined. Any thread.
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
  // If there is none: the caller makes it, and ends that by add() or give_up(). False: it is none of the caller's.
  virtual bool claim(int job_rank) = 0;
  virtual Status add(int job_rank, PeerConnection channel, const LinkOwner& owner) = 0;
  // Nothing if it is made.
  virtual void give_up(int job_rank) = 0;
  // Until something is made or given up, or so long.
  virtual void await_change(int longest_ms) = 0;

  // Null: it is not made, or not any more. REQUIRES: the communicator has no other link to that rank, nor had one.
  virtual Result<std::unique_ptr<BegunLink>> begin_link(int job_rank, std::uint64_t communicator, int peer,
                                                        const LinkOwner& owner) = 0;
  // The communicator has ended.
  virtual void forget(std::uint64_t communicator) = 0;
};

// A transport as one rank of a job uses it. By one thread at a time.
//
// Every rank has its own, made from rank 0's setting. What is "the same on every rank" follows from what all ranks
// know: that setting, the address book, what all have told.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  // As in the registry.
  [[nodiscard]] virtual std::string_view name() const = 0;
  // For selection, where nothing was measured. The same on every rank.
  [[nodiscard]] virtual TransportCosts costs(const Ranks& ranks) const = 0;
  // Chunks beyond this are cut so that what is under way stays in the cache, where all links are of this transport. The
  // same on every rank.
  [[nodiscard]] virtual std::size_t slice_bytes(const Ranks& ranks, Collective collective) const = 0;

  // Whether two ranks can share memory by it: they are of one host then. Only ranks of one machine can
  // (PeerInfo::same_machine). Transitive; the same on every rank.
  [[nodiscard]] virtual bool shares_memory(const PeerInfo& a, const PeerInfo& b) const = 0;
  // What this rank must tell all others before it is known which ranks are connected; this is where it opens what it
  // needs. Nothing: no rank tells anything, the same on every rank.
  virtual Result<std::optional<std::string>> tell(const Settings& settings, const Ranks& ranks) = 0;
  // What all have told, by rank, if they have.
  virtual Status hear(const std::vector<std::string>& told, const Ranks& ranks) = 0;
  // Instead of tell(), for a communicator of some of the ranks of `parent`'s: opens what tell() has opened there, or
  // shares it. What these ranks told there it then hears. REQUIRES: the two have one name.
  virtual void inherit(const Transport& parent) = 0;
  // Whether it can connect ranks a and b, once all have told. Of several transports that can, the first of the registry
  // does. The same on every rank, and for (b, a).
  [[nodiscard]] virtual bool connects(const Ranks& ranks, int a, int b) const = 0;

  // The connection over which two ranks that it connects make their link. Nothing: it connects threads of one process
  // alone (make_thread_network).
  [[nodiscard]] virtual std::optional<ConnectionSpec> connects_by() const = 0;
  // By which links are made. Null: by make_link(), over connections of their own.
  [[nodiscard]] virtual SharedConnections* shared_connections() = 0;
  // Whether make_link() waits for the peer to call it, too.
  [[nodiscard]] virtual bool waits_for_peer() const = 0;
  // REQUIRES: the channel is of connects_by()'s kind, to a rank that makes its end of the link as well; there are no
  // shared connections.
  virtual Result<std::unique_ptr<transport::Link>> make_link(PeerConnection channel, const LinkOwner& owner,
                                                             Deadline deadline) = 0;
  // For ranks that are threads of one process. Null: it has nothing for them that it has not for processes.
  virtual Result<std::unique_ptr<ThreadNetwork>> make_thread_network(int ranks) const = 0;
};

// What a transport does not have it inherits from here.
class PlainTransport : public Transport {
 public:
  [[nodiscard]] bool shares_memory(const PeerInfo&, const PeerInfo&) const override { return false; }
  Result<std::optional<std::string>> tell(const Settings&, const Ranks&) override {
    return std::optional<std::string>();
  }
  Status hear(const std::vector<std::string>&, const Ranks&) override { return {}; }
  void inherit(const Transport&) override {}
  [[nodiscard]] SharedConnections* shared_connections() override { return nullptr; }
  [[nodiscard]] bool waits_for_peer() const override { return false; }
  Result<std::unique_ptr<ThreadNetwork>> make_thread_network(int) const override {
    return std::unique_ptr<ThreadNetwork>();
  }
};

}  // namespace tutti::internal
