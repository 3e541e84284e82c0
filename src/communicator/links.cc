#include "communicator/links.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "base/mutex.h"
#include "net/connect_wait.h"
#include "transport/shm/link.h"
#include "transport/tcp/link.h"

namespace tutti::internal {
namespace {

// What may be under way of what a processor has of a level-2 cache. Four ranks on two processors with 2 MiB each, where
// that leaves 2 slots a link: 0.6 to 0.85 of the time from 256 KiB to 2 MiB. Eight ranks, where nothing fits: fewer
// slots take up to 1.4 times as long.
constexpr double kCachedPart = 0.5;

class ConnectedLinks final : public LinkMaker {
 public:
  ConnectedLinks(std::unique_ptr<Connector> connector, const Membership& membership,
                 const transport::WakeupFd& wakeup_fd, std::shared_ptr<transport::verbs::RdmaContext> rdma_context)
      : connector_(std::move(connector)),
        membership_(membership),
        wakeup_fd_(wakeup_fd),
        rdma_context_(std::move(rdma_context)) {}

  Result<std::vector<std::unique_ptr<transport::Link>>> make(const std::vector<int>& peers, const FailureState& failure,
                                                             Deadline deadline) override {
    auto channels = connector_->connect(peers, failure, deadline);
    if (!channels.is_ok()) return channels.status();
    std::map<int, Channel> by_peer;
    for (Channel& c : *channels) {
      const int peer = c.peer;
      by_peer.emplace(peer, std::move(c));
    }
    std::vector<std::unique_ptr<transport::Link>> links;
    for (const int peer : peers) {
      Channel& channel = by_peer.at(peer);
      if (Status s = meet(channel, failure, deadline); !s.is_ok()) return s;
      auto link = make_one(std::move(channel), failure, deadline);
      if (!link.is_ok()) return explain(link.status(), failure);
      links.push_back(std::move(*link));
    }
    return links;
  }
  void watch_stalls(StallWatch* watch) override {
    stalls_ = watch;
    connector_->watch_stalls(watch);
  }

 private:
  // Setting up shared memory or RDMA waits for the peer, which may still be waiting for others. So both first
  // make sure, here, where failures end the wait, that the other has come to this link: the one that
  // accepted sends a byte, the other answers with its first message. Every rank takes its peers in rising
  // order, so of any chain of ranks that wait for each other the last can go on.
  Status meet(const Channel& channel, const FailureState& failure, Deadline deadline) const {
    if (channel.kind != ChannelKind::kUnix && !by_verbs(channel.peer)) return {};
    const int socket = channel.sockets[0].get();
    const std::string name = "rank " + std::to_string(channel.peer);
    char here = 1;
    if (!channel.dialled && ::send(socket, &here, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
      return Status::remote("the connection to " + name + " closed");
    }
    const net::ConnectWait wait(&failure, deadline, stalls_);
    const std::string late = "timed out while waiting for " + name + " to set up the link";
    // That message is left where it is, for who makes the link.
    const int flags = MSG_DONTWAIT | (channel.dialled ? 0 : MSG_PEEK);
    ssize_t n = 0;
    while ((n = ::recv(socket, &here, 1, flags)) < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (Status s = wait.poll(socket, POLLIN, channel.peer, late); !s.is_ok()) return explain(s, failure);
    }
    if (channel.dialled && n != 1) return Status::remote("the connection to " + name + " closed");
    return {};
  }

  // Of a timeout, who is missing, where that is known.
  [[nodiscard]] Status explain(Status status, const FailureState& failure) const {
    if (status.code() != Code::kTimeout || stalls_ == nullptr) return status;
    const std::string missing = stalls_->missing();
    if (failure.failed()) return failure.status();
    return missing.empty() ? status : Status::timeout("timed out while making connections: " + missing);
  }

  Result<std::unique_ptr<transport::Link>> make_one(Channel channel, const FailureState& failure,
                                                    Deadline deadline) const {
    const auto& peer = membership_.peers[static_cast<std::size_t>(channel.peer)];
    const auto& self = membership_.peers[static_cast<std::size_t>(membership_.rank)];
    if (channel.kind == ChannelKind::kUnix) {
      return transport::shm::make_link(
          std::move(channel.sockets[0]), channel.dialled, peer.process == self.process,
          {channel.peer, !membership_.oversubscribed, &wakeup_fd_, &failure, slots_ahead(membership_)}, deadline);
    }
    if (by_verbs(channel.peer)) {
      const transport::verbs::PeerPorts ports{channel.peer,
                                              membership_.rdma[static_cast<std::size_t>(channel.peer)].ports,
                                              membership_.local_position(membership_.rank),
                                              membership_.local_position(channel.peer),
                                              membership_.rails,
                                              membership_.queue_pairs,
                                              &failure};
      auto link =
          rdma_context_->connect(std::move(channel.sockets[0]), membership_.rank < channel.peer, ports, deadline);
      if (link.is_ok()) return link;
      return link.status().with_context("RDMA with rank " + std::to_string(channel.peer));
    }
    transport::tcp::Options options;
    options.peer = channel.peer;
    return transport::tcp::make_link(std::move(channel.sockets), options);
  }

  [[nodiscard]] bool by_verbs(int peer) const { return membership_.verbs_with[static_cast<std::size_t>(peer)]; }

  std::unique_ptr<Connector> connector_;
  const Membership& membership_;
  const transport::WakeupFd& wakeup_fd_;
  std::shared_ptr<transport::verbs::RdmaContext> rdma_context_;
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
      auto link = thread_ranks_->link(membership_, peer);
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

std::uint32_t slots_ahead(const Membership& membership) {
  if (membership.ranks_per_cpu <= 1) return transport::shm::kSlots;
  std::size_t host_ranks = 1;
  for (const std::vector<int>& host : membership.hosts) host_ranks = std::max(host_ranks, host.size());
  const double links = membership.ranks_per_cpu * static_cast<double>(host_ranks - 1);
  const double fit =
      kCachedPart * static_cast<double>(membership.level2_bytes) / (2 * links * transport::shm::kSlotBytes);
  // One slot at a time would mean a turn for each; and what cannot fit anyway had better save turns.
  return fit < 2 ? transport::shm::kSlots : std::min(transport::shm::kSlots, static_cast<std::uint32_t>(fit));
}

struct ThreadRanks::Impl {
  Mutex mutex;
  // By (lower rank, higher rank). The first of the two makes it; the second takes it out.
  std::map<std::pair<int, int>, std::shared_ptr<transport::shm::Segment>> waiting TUTTI_GUARDED_BY(mutex);
  std::unique_ptr<ThreadNetwork> network;  // null: shared memory
};

ThreadRanks::ThreadRanks() : impl_(std::make_unique<Impl>()) {}
ThreadRanks::~ThreadRanks() = default;

Result<std::shared_ptr<ThreadRanks>> ThreadRanks::create(int ranks, const Transports& transports) {
  std::shared_ptr<ThreadRanks> thread_ranks(new ThreadRanks);
  for (int r = 0; r < ranks; ++r) {
    auto wakeup_fd = transport::WakeupFd::create();
    if (!wakeup_fd.is_ok()) return wakeup_fd.status();
    thread_ranks->wakeup_fds_.push_back(std::move(*wakeup_fd));
  }
  if (!transports.network.empty()) {
    auto network = transports.make_network(ranks);
    if (!network.is_ok()) return network.status();
    thread_ranks->impl_->network = std::move(*network);
  }
  return thread_ranks;
}

Result<std::unique_ptr<transport::Link>> ThreadRanks::link(const Membership& membership, int to) {
  const int from = membership.rank;
  if (impl_->network != nullptr) return impl_->network->link(from, to);
  const std::pair<int, int> key = std::minmax(from, to);
  std::shared_ptr<transport::shm::Segment> segment;
  {
    const MutexLock lock(impl_->mutex);
    auto& waiting = impl_->waiting[key];
    if (waiting == nullptr) {
      auto made = transport::shm::Segment::create_private();
      if (!made.is_ok()) return made.status();
      segment = waiting = std::move(*made);
    } else {
      segment = std::move(waiting);
      impl_->waiting.erase(key);
    }
  }
  return transport::shm::make_private_link(
      std::move(segment), from > to ? 0 : 1, wakeup_fd(to).fd(),
      {to, !membership.oversubscribed, &wakeup_fd(from), nullptr, slots_ahead(membership)});
}

std::unique_ptr<LinkMaker> make_connected_links(std::unique_ptr<Connector> connector, const Membership& membership,
                                                const transport::WakeupFd& wakeup_fd,
                                                std::shared_ptr<transport::verbs::RdmaContext> rdma_context) {
  return std::make_unique<ConnectedLinks>(std::move(connector), membership, wakeup_fd, std::move(rdma_context));
}

std::unique_ptr<LinkMaker> make_thread_links(std::shared_ptr<ThreadRanks> thread_ranks, const Membership& membership) {
  return std::make_unique<ThreadLinks>(std::move(thread_ranks), membership);
}

}  // namespace tutti::internal
