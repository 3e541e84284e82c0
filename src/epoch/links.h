// Makes links. A communicator requests the links of a plan when it first runs; the link maker chooses the transport.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/failure.h"
#include "epoch/membership.h"
#include "os/mutex.h"
#include "transport/adapter.h"
#include "transport/connections/connector.h"
#include "transport/transport.h"
#include "transport/wakeup_fd.h"

namespace tutti::internal {

// Links to some peers, while they are being made. Made and used by one thread at a time.
class MakingLinks {
 public:
  enum class State : std::uint8_t {
    kWaits,   // for peers, which signal the rank's wakeup fd
    kBlocks,  // needs a blocking step: block()
    kMade,
  };
  MakingLinks() = default;
  MakingLinks(const MakingLinks&) = delete;
  MakingLinks& operator=(const MakingLinks&) = delete;
  virtual ~MakingLinks() = default;
  // Continues as far as possible without waiting. An error, including a timeout, ends it.
  virtual Result<State> advance() = 0;
  // REQUIRES: kBlocks. Makes missing connections; advance() must follow.
  virtual Status block() = 0;
  // REQUIRES: kWaits. Waits a little, or until a peer has sent something.
  virtual void rest() = 0;
  // REQUIRES: kMade. In the order of the peers. Once.
  virtual std::vector<std::unique_ptr<transport::Link>> take() = 0;
  // Adds the known cause to an error of these functions; it may query other ranks.
  virtual Status explain(Status status) = 0;
};

class LinkMaker {
 public:
  virtual ~LinkMaker() = default;
  // Links to all of `peers`; both sides of each pair call this for each other. The maker outlives it.
  virtual std::unique_ptr<MakingLinks> begin(std::vector<int> peers, const FailureState& failure,
                                             Deadline deadline) = 0;
  // Called while links are made. Outlives the maker.
  virtual void watch_stalls(StallWatch* watch) = 0;
};

// Continues and waits until they are made.
Result<std::vector<std::unique_ptr<transport::Link>>> finish(MakingLinks& making);

// Through the Connector, each link by the transport that connects its ranks. All outlive the maker and its links.
std::unique_ptr<LinkMaker> make_connected_links(Connector& connector, const Membership& membership,
                                                const transport::WakeupFd& wakeup_fd);

// Shared state of ranks that are threads of one process. Each of them keeps it alive, so a late signal to a wakeup fd
// never uses a closed descriptor.
class ThreadRanks {
 public:
  // Connected by the first of the transports that has a thread network, if any has.
  static Result<std::shared_ptr<ThreadRanks>> create(int ranks, const Transports& transports);
  // The shared state of the new communicator `communicator` with these `members`: each of them calls this once, and the
  // first call makes it. `transports`: that communicator's. Any thread.
  Result<std::shared_ptr<ThreadRanks>> split(std::uint64_t communicator, const std::vector<int>& members,
                                             const Transports& transports) TUTTI_EXCLUDES(mutex_);

  [[nodiscard]] const transport::WakeupFd& wakeup_fd(int rank) const {
    return wakeup_fds_[static_cast<std::size_t>(rank)];
  }
  // Null: they connect like processes.
  [[nodiscard]] ThreadNetwork* network() const { return network_.get(); }
  // By rank.
  [[nodiscard]] std::span<const transport::WakeupFd> wakeup_fds() const { return wakeup_fds_; }

 private:
  // A new communicator, until all of its ranks have called, or those that had have ended.
  struct Child {
    std::weak_ptr<ThreadRanks> ranks;
    int came = 0;
  };
  ThreadRanks() = default;
  static Result<std::shared_ptr<ThreadRanks>> connect(std::vector<transport::WakeupFd> wakeup_fds,
                                                      const Transports& transports);
  std::vector<transport::WakeupFd> wakeup_fds_;
  std::unique_ptr<ThreadNetwork> network_;
  Mutex mutex_;
  std::map<std::uint64_t, Child> children_ TUTTI_GUARDED_BY(mutex_);
};
// REQUIRES: they have a network.
std::unique_ptr<LinkMaker> make_thread_links(std::shared_ptr<ThreadRanks> thread_ranks, const Membership& membership);

}  // namespace tutti::internal
