// One rank's open RDMA ports with their registered memory, for all of its communicators of one family; and the links of
// each of these communicators.
//
// Ownership: link sets share the context, links share their set. Threads: the context any; a set as the communicator.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/unique_fd.h"
#include "transport/transport.h"
#include "transport/verbs/options.h"
#include "transport/verbs/ports/ports.h"

namespace tutti::internal::transport::verbs {

// The data that the two ranks of a link have about each other.
struct PeerPorts {
  int peer = -1;                          // rank, for messages
  std::vector<Port> ports;                // the peer's, as it has told them
  LocalPosition own_local;                // this rank among those of its machine
  LocalPosition peer_local;               // the peer among those of its own
  int rails = 0;                          // as Options, but the same on both sides
  int queue_pairs = 1;                    // as Options, but the same on both sides
  const FailureState* failure = nullptr;  // ends connect() at once; null: only the deadline does
};

// The RDMA links of one communicator.
class LinkSet {
 public:
  LinkSet() = default;
  LinkSet(const LinkSet&) = delete;
  LinkSet& operator=(const LinkSet&) = delete;
  virtual ~LinkSet() = default;
  // Makes the link together with the peer, over `socket`, an authenticated connection with no byte in flight, which
  // stays open as long as the link. `lower`: this rank is the lower of the two. Errors: kRemoteError for errors of the
  // peer, kSystemError for local ones, kTimeout.
  virtual Result<std::unique_ptr<Link>> connect(UniqueFd socket, bool lower, const PeerPorts& peer,
                                                Deadline deadline) = 0;
};

class RdmaContext {
 public:
  RdmaContext() = default;
  RdmaContext(const RdmaContext&) = delete;
  RdmaContext& operator=(const RdmaContext&) = delete;
  virtual ~RdmaContext() = default;
  // Opens the chosen ports and tests on each what a link needs (a queue pair, registered memory), so that errors show
  // here. Errors as choose_ports(), and kSystemError with the fix if the limit of locked memory is too low or the
  // device cannot be opened. `far_nodes`: see find_ports().
  static Result<std::shared_ptr<RdmaContext>> open(const Options& options, const std::vector<int>& far_nodes);

  // The ports, for the address table.
  [[nodiscard]] virtual const std::vector<Port>& ports() const = 0;
  // For one communicator.
  [[nodiscard]] virtual std::shared_ptr<LinkSet> make_link_set() = 0;
};

}  // namespace tutti::internal::transport::verbs
