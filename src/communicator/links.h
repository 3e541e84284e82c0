// Where links come from. A communicator asks for the links a plan needs when it is first run; whoever
// makes them decides the transport.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "bootstrap/connector.h"
#include "communicator/membership.h"
#include "transport/shm/segment.h"
#include "transport/transport.h"
#include "transport/verbs/rdma_context.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal {

// How many slots of each link within this machine long messages may fill. Where ranks take turns on a processor,
// what all their links have under way should stay in its level-2 cache, if it can. The same on every rank.
std::uint32_t slots_ahead(const Membership& membership);

class LinkMaker {
 public:
  virtual ~LinkMaker() = default;
  // Links to all of `peers`, in that order; both sides of each pair call this for each other.
  virtual Result<std::vector<std::unique_ptr<transport::Link>>> make(const std::vector<int>& peers,
                                                                     const FailureState& failure,
                                                                     Deadline deadline) = 0;
  // Told while make() waits. Outlives the maker.
  virtual void watch_stalls(StallWatch* watch) = 0;
};

// Through the Connector: shared memory over its Unix sockets, TCP over its TCP streams, RDMA by this rank's context
// (null if this rank has none). The wakeup fd outlives the maker and its links.
std::unique_ptr<LinkMaker> make_connected_links(std::unique_ptr<Connector> connector, const Membership& membership,
                                                const transport::WakeupFd& wakeup_fd,
                                                std::shared_ptr<transport::verbs::RdmaContext> rdma_context);

// What ranks that are threads of one process share. Kept alive by every one of them, so a late ring of
// a wakeup fd never meets a closed descriptor.
class ThreadRanks {
 public:
  // Connected by shared memory, or by `transports.network` if there is one.
  static Result<std::shared_ptr<ThreadRanks>> create(int ranks, const Transports& transports);
  ~ThreadRanks();

  [[nodiscard]] const transport::WakeupFd& wakeup_fd(int rank) const {
    return wakeup_fds_[static_cast<std::size_t>(rank)];
  }
  Result<std::unique_ptr<transport::Link>> link(const Membership& membership, int to);

 private:
  struct Impl;
  ThreadRanks();
  std::vector<transport::WakeupFd> wakeup_fds_;
  std::unique_ptr<Impl> impl_;
};
std::unique_ptr<LinkMaker> make_thread_links(std::shared_ptr<ThreadRanks> thread_ranks, const Membership& membership);

}  // namespace tutti::internal
