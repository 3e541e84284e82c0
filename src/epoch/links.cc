#include "epoch/links.h"

#include <fmt/core.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "base/rank_list.h"
#include "executor/engine.h"
#include "net/connect_wait.h"
#include "transport/checked/link.h"
#include "transport/connections/departures.h"

namespace tutti::internal {
namespace {

constexpr int kYields = 32;
constexpr int kLookMs = 5;

// The source of a communicator's links, and the watcher of waits for them.
struct Origin {
  Connector& connector;
  const Membership& membership;
  const transport::WakeupFd& wakeup_fd;
  StallWatch* stalls = nullptr;

  [[nodiscard]] SharedConnections* shared_with(int peer) const {
    Transport* const transport = membership.connecting(membership.rank, peer);
    return transport == nullptr ? nullptr : transport->shared_connections();
  }
  [[nodiscard]] SharedConnections::State state_with(int peer) const {
    return shared_with(peer)->state(connector.job_rank(peer));
  }
};

// The link as the settings want it.
std::unique_ptr<transport::Link> as_set(std::unique_ptr<transport::Link> link, int peer, const Membership& membership) {
  return membership.settings.checksum ? transport::checked::make_checked(std::move(link), peer) : std::move(link);
}

class MakingConnected final : public MakingLinks {
 public:
  MakingConnected(const Origin& origin, std::vector<int> peers, const FailureState& failure, Deadline deadline)
      : origin_(origin),
        peers_(std::move(peers)),
        failure_(failure),
        deadline_(deadline),
        wait_(&failure, deadline, origin.stalls),
        departures_(origin.membership.peers, failure) {
    for (const int peer : peers_) (origin.shared_with(peer) != nullptr ? shared_ : own_).push_back(peer);
    claimed_.reserve(shared_.size());
  }
  ~MakingConnected() override { give_up(); }

  Result<State> advance() override {
    if (!shared_.empty()) {
      auto state = begin();
      if (!state.is_ok() || *state != State::kMade) return state;
    }
    if (!own_.empty()) return State::kBlocks;
    return finish_begun();
  }

  Status block() override { return claimed_.empty() ? connect_own() : share_connections(); }

  void rest() override {
    if (!shared_.empty()) {
      origin_.shared_with(shared_.front())->await_change(kLookMs);
    } else if (looks_++ < kYields) {
      ::sched_yield();
    } else {
      std::vector<pollfd> sockets;
      for (const auto& [peer, link] : begun_) sockets.push_back({link->socket(), POLLIN, 0});
      // Not long: another thread may read the peer's message.
      (void)::poll(sockets.data(), sockets.size(), std::min(kLookMs, deadline_.left_ms(kLookMs)));
    }
  }

  std::vector<std::unique_ptr<transport::Link>> take() override {
    std::vector<std::unique_ptr<transport::Link>> links;
    for (const int peer : peers_) links.push_back(as_set(std::move(made_.at(peer)), peer, origin_.membership));
    return links;
  }

  // Adds the missing ranks to a timeout, if they are known.
  Status explain(Status status) override {
    if (status.code() != Code::kTimeout || origin_.stalls == nullptr || is_explained_) return status;
    const std::string missing = origin_.stalls->missing();
    if (failure_.failed()) return failure_.status();
    return missing.empty() ? status : Status::timeout("timed out while making connections: " + missing);
  }

 private:
  // Begins this side of the links over shared connections, and finds peers that need a connection of this communicator.
  // kBlocks: this object has claimed connections that do not exist yet. Other threads may be making others, perhaps for
  // other communicators; each thread waits only for the connections that it needs.
  Result<State> begin() {
    std::vector<int> others;
    for (const int peer : shared_) {
      SharedConnections& shared = *origin_.shared_with(peer);
      const int job_rank = origin_.connector.job_rank(peer);
      const SharedConnections::State state = shared.state(job_rank);
      if (state == SharedConnections::State::kOutOfReach) {
        own_.push_back(peer);
        continue;
      }
      if (state == SharedConnections::State::kMade) {
        auto link = shared.begin_link(job_rank, origin_.connector.communicator(), peer, owner());
        if (!link.is_ok()) return link.status();
        if (*link != nullptr) {
          begun_.emplace(peer, std::move(*link));
          continue;
        }
      }
      others.push_back(peer);
      if (shared.claim(job_rank)) claimed_.push_back(peer);
    }
    shared_ = std::move(others);
    if (!claimed_.empty()) return State::kBlocks;
    if (shared_.empty()) return State::kMade;
    Status s = wait_.go_on([&] { return departures_.look(shared_); }, [&] { return late(shared_); });
    if (!s.is_ok()) return s;
    return State::kWaits;
  }

  // Makes the connections that this object has claimed.
  Status share_connections() {
    const std::vector<int> mine = claimed_;
    const auto take = [&](PeerConnection channel) {
      const int peer = channel.peer;
      Status added = origin_.shared_with(peer)->add(origin_.connector.job_rank(peer), std::move(channel), owner());
      executor::Engine::wake_current();  // queued operations may wait for it
      if (added.is_ok()) std::erase(claimed_, peer);
      return added;
    };
    Status s = origin_.connector.connect_shared(mine, take, failure_, deadline_);
    give_up();
    return s;
  }

  void give_up() {
    for (const int peer : claimed_) origin_.shared_with(peer)->give_up(origin_.connector.job_rank(peer));
    if (!claimed_.empty()) executor::Engine::wake_current();
    claimed_.clear();
  }

  // Waits for peers that have not begun theirs.
  Result<State> finish_begun() {
    std::vector<int> waited_for;
    for (auto at = begun_.begin(); at != begun_.end();) {
      auto link = at->second->finish();
      if (!link.is_ok()) return link.status();
      if (*link == nullptr) {
        waited_for.push_back(at->first);
        ++at;
        continue;
      }
      made_.emplace(at->first, std::move(*link));
      at = begun_.erase(at);
    }
    if (begun_.empty()) return State::kMade;
    Status s = wait_.go_on([&] { return departures_.look(waited_for); }, [&] { return late(waited_for); });
    if (!s.is_ok()) return s;
    return State::kWaits;
  }

  // Makes links over connections of only this communicator.
  Status connect_own() {
    auto channels = origin_.connector.connect(own_, failure_, deadline_);
    if (!channels.is_ok()) {
      is_explained_ = true;
      return channels.status();
    }
    std::map<int, PeerConnection> by_peer;
    for (PeerConnection& c : *channels) {
      const int peer = c.peer;
      by_peer.emplace(peer, std::move(c));
    }
    const Membership& membership = origin_.membership;
    for (auto& [peer, channel] : by_peer) {
      // A Unix socket that cannot be reached is replaced by TCP, and so may be the transport.
      Transport* const transport = membership.connecting(membership.rank, peer, channel.kind);
      if (transport == nullptr) return unconnected(channel);
      if (transport->waits_for_peer()) {
        if (Status s = meet(channel); !s.is_ok()) return s;
      }
      auto link = transport->make_link(std::move(channel), owner(), deadline_);
      if (!link.is_ok()) return link.status();
      made_.emplace(peer, std::move(*link));
    }
    own_.clear();
    return {};
  }

  [[nodiscard]] LinkOwner owner() const { return {origin_.membership, origin_.wakeup_fd, failure_}; }

  static Status late(const std::vector<int>& peers) {
    return Status::timeout("timed out while waiting for " + list_ranks(peers) + " to set up the link");
  }

  // Making a link may wait for the peer, which may still be waiting for others. So both sides first synchronise here,
  // where failures end the wait: the acceptor sends a byte, and the other side answers with its first message. Every
  // rank takes its peers in rising order, so in any chain of ranks that wait for each other the last one can continue.
  [[nodiscard]] Status meet(const PeerConnection& channel) const {
    const int socket = channel.streams[0].get();
    const std::string name = fmt::format("rank {}", channel.peer);
    char here = 1;
    if (!channel.dialled && ::send(socket, &here, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
      return Status::remote(fmt::format("the connection to {} closed", name));
    }
    const net::ConnectWait wait(&failure_, deadline_, origin_.stalls);
    const std::string late = fmt::format("timed out while waiting for {} to set up the link", name);
    // The message stays in the socket, for the code that makes the link.
    const int flags = MSG_DONTWAIT | (channel.dialled ? 0 : MSG_PEEK);
    ssize_t n = 0;
    while ((n = ::recv(socket, &here, 1, flags)) < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (Status s = wait.poll(socket, POLLIN, channel.peer, late); !s.is_ok()) return s;
    }
    if (channel.dialled && n != 1) return Status::remote(fmt::format("the connection to {} closed", name));
    return {};
  }

  [[nodiscard]] Status unconnected(const PeerConnection& channel) const {
    std::string names;
    for (const auto& transport : origin_.membership.transports) {
      if (!names.empty()) names += ',';
      names += transport->name();
    }
    return Status::remote(
        fmt::format("rank {} can be reached only over {}, which no allowed transport uses (TUTTI_TRANSPORTS={})",
                    channel.peer, channel.kind == ConnectionKind::kTcp ? "TCP" : "a Unix socket", names));
  }

  const Origin origin_;
  const std::vector<int> peers_;
  const FailureState& failure_;
  const Deadline deadline_;
  const net::ConnectWait wait_;
  Departures departures_;
  std::vector<int> shared_;    // peers with a shared connection, until the link is begun
  std::vector<int> claimed_;   // those of them whose connection this object makes
  std::vector<int> own_;       // peers that need a connection of this communicator, until it is made
  bool is_explained_ = false;  // error
  std::map<int, std::unique_ptr<BegunLink>> begun_;
  std::map<int, std::unique_ptr<transport::Link>> made_;
  int looks_ = 0;
};

class ConnectedLinks final : public LinkMaker {
 public:
  ConnectedLinks(Connector& connector, const Membership& membership, const transport::WakeupFd& wakeup_fd)
      : origin_{connector, membership, wakeup_fd} {}

  ~ConnectedLinks() override {
    for (const auto& transport : origin_.membership.transports) {
      if (SharedConnections* const shared = transport->shared_connections(); shared != nullptr) {
        (void)guarded([&] { return shared->forget(origin_.connector.communicator()), Status(); });
      }
    }
  }

  std::unique_ptr<MakingLinks> begin(std::vector<int> peers, const FailureState& failure, Deadline deadline) override {
    return std::make_unique<MakingConnected>(origin_, std::move(peers), failure, deadline);
  }
  void watch_stalls(StallWatch* watch) override {
    origin_.stalls = watch;
    origin_.connector.watch_stalls(watch);
  }

 private:
  Origin origin_;
};

// Never waits.
class MakingThreads final : public MakingLinks {
 public:
  MakingThreads(std::shared_ptr<ThreadRanks> thread_ranks, const Membership& membership, std::vector<int> peers)
      : thread_ranks_(std::move(thread_ranks)), membership_(membership), peers_(std::move(peers)) {}
  Result<State> advance() override {
    for (const int peer : peers_) {
      auto link = thread_ranks_->network()->link(membership_, peer, thread_ranks_->wakeup_fds());
      if (!link.is_ok()) return link.status();
      links_.push_back(as_set(std::move(*link), peer, membership_));
    }
    return State::kMade;
  }
  Status block() override { return {}; }
  void rest() override {}
  std::vector<std::unique_ptr<transport::Link>> take() override { return std::move(links_); }
  Status explain(Status status) override { return status; }

 private:
  const std::shared_ptr<ThreadRanks> thread_ranks_;
  const Membership& membership_;
  const std::vector<int> peers_;
  std::vector<std::unique_ptr<transport::Link>> links_;
};

class ThreadLinks final : public LinkMaker {
 public:
  ThreadLinks(std::shared_ptr<ThreadRanks> thread_ranks, const Membership& membership)
      : thread_ranks_(std::move(thread_ranks)), membership_(membership) {}
  void watch_stalls(StallWatch*) override {}
  std::unique_ptr<MakingLinks> begin(std::vector<int> peers, const FailureState&, Deadline) override {
    return std::make_unique<MakingThreads>(thread_ranks_, membership_, std::move(peers));
  }

 private:
  std::shared_ptr<ThreadRanks> thread_ranks_;
  const Membership& membership_;
};

}  // namespace

Result<std::vector<std::unique_ptr<transport::Link>>> finish(MakingLinks& making) {
  for (;;) {
    auto state = making.advance();
    Status status = state.status();
    if (status.is_ok()) {
      if (*state == MakingLinks::State::kMade) return making.take();
      if (*state == MakingLinks::State::kBlocks) {
        status = making.block();
      } else {
        making.rest();
      }
    }
    if (!status.is_ok()) return making.explain(std::move(status));
  }
}

Result<std::shared_ptr<ThreadRanks>> ThreadRanks::create(int ranks, const Transports& transports) {
  std::vector<transport::WakeupFd> wakeup_fds;
  for (int r = 0; r < ranks; ++r) {
    auto wakeup_fd = transport::WakeupFd::create();
    if (!wakeup_fd.is_ok()) return wakeup_fd.status();
    wakeup_fds.push_back(std::move(*wakeup_fd));
  }
  return connect(std::move(wakeup_fds), transports);
}

Result<std::shared_ptr<ThreadRanks>> ThreadRanks::connect(std::vector<transport::WakeupFd> wakeup_fds,
                                                          const Transports& transports) {
  std::shared_ptr<ThreadRanks> thread_ranks(new ThreadRanks);
  thread_ranks->wakeup_fds_ = std::move(wakeup_fds);
  for (const auto& transport : transports) {
    auto network = transport->make_thread_network(static_cast<int>(thread_ranks->wakeup_fds_.size()));
    if (!network.is_ok()) return network.status();
    thread_ranks->network_ = std::move(*network);
    if (thread_ranks->network_ != nullptr) break;
  }
  return thread_ranks;
}

Result<std::shared_ptr<ThreadRanks>> ThreadRanks::split(std::uint64_t communicator, const std::vector<int>& members,
                                                        const Transports& transports) {
  const MutexLock lock(mutex_);
  std::erase_if(children_, [](const auto& child) { return child.second.ranks.expired(); });
  std::shared_ptr<ThreadRanks> made;
  if (const auto at = children_.find(communicator); at != children_.end()) made = at->second.ranks.lock();
  if (made == nullptr) {
    std::vector<transport::WakeupFd> own;
    for (const int member : members) own.push_back(wakeup_fd(member));
    auto created = connect(std::move(own), transports);
    if (!created.is_ok()) return created;
    made = std::move(*created);
    children_[communicator].ranks = made;
  }
  if (++children_[communicator].came == static_cast<int>(members.size())) children_.erase(communicator);
  return made;
}

std::unique_ptr<LinkMaker> make_connected_links(Connector& connector, const Membership& membership,
                                                const transport::WakeupFd& wakeup_fd) {
  return std::make_unique<ConnectedLinks>(connector, membership, wakeup_fd);
}

std::unique_ptr<LinkMaker> make_thread_links(std::shared_ptr<ThreadRanks> thread_ranks, const Membership& membership) {
  return std::make_unique<ThreadLinks>(std::move(thread_ranks), membership);
}

}  // namespace tutti::internal
