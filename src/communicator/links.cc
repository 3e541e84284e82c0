#include "communicator/links.h"

#include <fmt/core.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "bootstrap/departures.h"
#include "bootstrap/rank_list.h"
#include "net/connect_wait.h"

namespace tutti::internal {
namespace {

constexpr int kYields = 32;
constexpr int kLookMs = 5;

class ConnectedLinks final : public LinkMaker {
 public:
  ConnectedLinks(Connector& connector, const Membership& membership, const transport::WakeupFd& wakeup_fd)
      : connector_(connector), membership_(membership), wakeup_fd_(wakeup_fd) {}

  ~ConnectedLinks() override {
    for (const auto& transport : membership_.transports) {
      if (SharedConnections* const shared = transport->shared_connections(); shared != nullptr) {
        (void)guarded([&] { return shared->forget(connector_.communicator()), Status(); });
      }
    }
  }

  Result<std::vector<std::unique_ptr<transport::Link>>> make(const std::vector<int>& peers, const FailureState& failure,
                                                             Deadline deadline) override {
    std::vector<int> own;     // peers that need a connection of this communicator's
    std::vector<int> shared;  // peers with whom there is one for all communicators
    for (const int peer : peers) (shared_with(peer) != nullptr ? shared : own).push_back(peer);
    if (Status s = share_connections(shared, failure, deadline); !s.is_ok()) return s;
    for (auto at = shared.begin(); at != shared.end();) {
      const bool out_of_reach = state_with(*at) == SharedConnections::State::kOutOfReach;
      if (out_of_reach) own.push_back(*at);
      at = out_of_reach ? shared.erase(at) : at + 1;
    }
    std::map<int, std::unique_ptr<transport::Link>> made;
    std::map<int, std::unique_ptr<BegunLink>> begun;
    for (const int peer : shared) {
      auto link = shared_with(peer)->begin_link(connector_.job_rank(peer), connector_.communicator(), peer,
                                                {membership_, wakeup_fd_, failure});
      if (!link.is_ok()) return link.status();
      begun.emplace(peer, std::move(*link));
    }
    if (Status s = connect(own, failure, deadline, &made); !s.is_ok()) return s;
    if (Status s = finish(std::move(begun), failure, deadline, &made); !s.is_ok()) return s;
    std::vector<std::unique_ptr<transport::Link>> links;
    for (const int peer : peers) links.push_back(std::move(made.at(peer)));
    return links;
  }
  void watch_stalls(StallWatch* watch) override {
    stalls_ = watch;
    connector_.watch_stalls(watch);
  }

 private:
  using Links = std::map<int, std::unique_ptr<transport::Link>>;  // by peer

  [[nodiscard]] SharedConnections* shared_with(int peer) const {
    Transport* const transport = membership_.connecting(membership_.rank, peer);
    return transport == nullptr ? nullptr : transport->shared_connections();
  }
  [[nodiscard]] SharedConnections::State state_with(int peer) const {
    return shared_with(peer)->state(connector_.job_rank(peer));
  }

  // Each is made by this thread, or by another that has begun with it on behalf of another communicator. None waits for
  // another connection than the one that it is about.
  Status share_connections(const std::vector<int>& peers, const FailureState& failure, Deadline deadline) {
    const net::ConnectWait wait(&failure, deadline, stalls_);
    Departures departures(membership_.peers, failure);
    for (;;) {
      std::vector<int> mine;
      std::vector<int> others;
      Status s = guarded([&] { return claim(peers, &mine, &others), Status(); });
      if (s.is_ok() && !mine.empty()) {
        const auto take = [&](Channel channel) {
          const int peer = channel.peer;
          return shared_with(peer)->add(connector_.job_rank(peer), std::move(channel),
                                        {membership_, wakeup_fd_, failure});
        };
        s = guarded([&] { return connector_.connect_shared(mine, take, failure, deadline); });
      }
      for (const int peer : mine) shared_with(peer)->give_up(connector_.job_rank(peer));
      if (!s.is_ok()) return explain(std::move(s), failure);
      if (!mine.empty()) continue;
      if (others.empty()) return {};
      s = wait.go_on([&] { return departures.look(others); }, [&] { return late(others); });
      if (!s.is_ok()) return explain(std::move(s), failure);
      shared_with(others.front())->await_change(kLookMs);
    }
  }

  // Of those that there are no connections with: which this thread is to make, and which another is making.
  void claim(const std::vector<int>& peers, std::vector<int>* mine, std::vector<int>* others) const {
    mine->reserve(peers.size());
    others->reserve(peers.size());
    for (const int peer : peers) {
      if (shared_with(peer)->claim(connector_.job_rank(peer))) {
        mine->push_back(peer);
        continue;
      }
      const SharedConnections::State state = state_with(peer);
      const bool there = state == SharedConnections::State::kMade || state == SharedConnections::State::kOutOfReach;
      if (!there) others->push_back(peer);
    }
  }

  // Waits until the peers have begun theirs.
  Status finish(std::map<int, std::unique_ptr<BegunLink>> begun, const FailureState& failure, Deadline deadline,
                Links* made) {
    const net::ConnectWait wait(&failure, deadline, stalls_);
    Departures departures(membership_.peers, failure);
    for (int looks = 0;; ++looks) {
      std::vector<int> waited_for;
      std::vector<pollfd> sockets;
      for (auto at = begun.begin(); at != begun.end();) {
        auto link = at->second->finish();
        if (!link.is_ok()) return link.status();
        if (*link != nullptr) {
          made->emplace(at->first, std::move(*link));
          at = begun.erase(at);
        } else {
          waited_for.push_back(at->first);
          sockets.push_back({at->second->socket(), POLLIN, 0});
          ++at;
        }
      }
      if (begun.empty()) return {};
      Status s = wait.go_on([&] { return departures.look(waited_for); }, [&] { return late(waited_for); });
      if (!s.is_ok()) return explain(std::move(s), failure);
      if (looks < kYields) {
        ::sched_yield();
      } else {
        // Not long: another thread may read what the peer says.
        (void)::poll(sockets.data(), sockets.size(), std::min(kLookMs, deadline.left_ms(kLookMs)));
      }
    }
  }

  Status connect(const std::vector<int>& peers, const FailureState& failure, Deadline deadline, Links* made) {
    if (peers.empty()) return {};
    auto channels = connector_.connect(peers, failure, deadline);
    if (!channels.is_ok()) return channels.status();
    std::map<int, Channel> by_peer;
    for (Channel& c : *channels) {
      const int peer = c.peer;
      by_peer.emplace(peer, std::move(c));
    }
    for (auto& [peer, channel] : by_peer) {
      // A Unix socket that cannot be reached is replaced by TCP, and so may be the transport.
      Transport* const transport = membership_.connecting(membership_.rank, peer, channel.kind);
      if (transport == nullptr) return unconnected(channel);
      if (transport->waits_for_peer()) {
        if (Status s = meet(channel, failure, deadline); !s.is_ok()) return s;
      }
      auto link = transport->make_link(std::move(channel), {membership_, wakeup_fd_, failure}, deadline);
      if (!link.is_ok()) return explain(link.status(), failure);
      made->emplace(peer, std::move(*link));
    }
    return {};
  }

  static Status late(const std::vector<int>& peers) {
    return Status::timeout("timed out while waiting for " + list_ranks(peers) + " to set up the link");
  }

  // Making a link may wait for the peer, which may still be waiting for others. So both first
  // make sure, here, where failures end the wait, that the other has come to this link: the one that
  // accepted sends a byte, the other answers with its first message. Every rank takes its peers in rising
  // order, so of any chain of ranks that wait for each other the last can go on.
  Status meet(const Channel& channel, const FailureState& failure, Deadline deadline) const {
    const int socket = channel.sockets[0].get();
    const std::string name = fmt::format("rank {}", channel.peer);
    char here = 1;
    if (!channel.dialled && ::send(socket, &here, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
      return Status::remote(fmt::format("the connection to {} closed", name));
    }
    const net::ConnectWait wait(&failure, deadline, stalls_);
    const std::string late = fmt::format("timed out while waiting for {} to set up the link", name);
    // That message is left where it is, for who makes the link.
    const int flags = MSG_DONTWAIT | (channel.dialled ? 0 : MSG_PEEK);
    ssize_t n = 0;
    while ((n = ::recv(socket, &here, 1, flags)) < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (Status s = wait.poll(socket, POLLIN, channel.peer, late); !s.is_ok()) return explain(s, failure);
    }
    if (channel.dialled && n != 1) return Status::remote(fmt::format("the connection to {} closed", name));
    return {};
  }

  // Of a timeout, which ranks are missing, where that is known.
  [[nodiscard]] Status explain(Status status, const FailureState& failure) const {
    if (status.code() != Code::kTimeout || stalls_ == nullptr) return status;
    const std::string missing = stalls_->missing();
    if (failure.failed()) return failure.status();
    return missing.empty() ? status : Status::timeout("timed out while making connections: " + missing);
  }

  [[nodiscard]] Status unconnected(const Channel& channel) const {
    std::string names;
    for (const auto& transport : membership_.transports) {
      if (!names.empty()) names += ',';
      names += transport->name();
    }
    return Status::remote(
        fmt::format("rank {} is reached over {}, where no allowed transport serves (TUTTI_TRANSPORTS={})", channel.peer,
                    channel.kind == ChannelKind::kTcp ? "TCP" : "a Unix socket", names));
  }

  Connector& connector_;
  const Membership& membership_;
  const transport::WakeupFd& wakeup_fd_;
  StallWatch* stalls_ = nullptr;
};

class ThreadLinks final : public LinkMaker {
 public:
  ThreadLinks(std::shared_ptr<ThreadRanks> thread_ranks, const Membership& membership)
      : thread_ranks_(std::move(thread_ranks)), membership_(membership) {}
  void watch_stalls(StallWatch*) override {}  // never waits
  Result<std::vector<std::unique_ptr<transport::Link>>> make(const std::vector<int>& peers, const FailureState&,
                                                             Deadline) override {
    std::vector<std::unique_ptr<transport::Link>> links;
    for (const int peer : peers) {
      auto link = thread_ranks_->network()->link(membership_, peer, thread_ranks_->wakeup_fds());
      if (!link.is_ok()) return link.status();
      links.push_back(std::move(*link));
    }
    return links;
  }

 private:
  std::shared_ptr<ThreadRanks> thread_ranks_;
  const Membership& membership_;
};

}  // namespace

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
