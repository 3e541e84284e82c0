#include "communicator/links.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "net/connect_wait.h"

namespace tutti::internal {
namespace {

class ConnectedLinks final : public LinkMaker {
 public:
  ConnectedLinks(Connector& connector, const Membership& membership, const transport::WakeupFd& wakeup_fd)
      : connector_(connector), membership_(membership), wakeup_fd_(wakeup_fd) {}

  Result<std::vector<std::unique_ptr<transport::Link>>> make(const std::vector<int>& peers, const FailureState& failure,
                                                             Deadline deadline) override {
    auto channels = connector_.connect(peers, failure, deadline);
    if (!channels.is_ok()) return channels.status();
    std::map<int, Channel> by_peer;
    for (Channel& c : *channels) {
      const int peer = c.peer;
      by_peer.emplace(peer, std::move(c));
    }
    std::vector<std::unique_ptr<transport::Link>> links;
    for (const int peer : peers) {
      Channel& channel = by_peer.at(peer);
      // A Unix socket that cannot be reached is replaced by TCP, and so may be the transport.
      Transport* const transport = membership_.connecting(membership_.rank, peer, channel.kind);
      if (transport == nullptr) return unconnected(channel);
      if (transport->waits_for_peer()) {
        if (Status s = meet(channel, failure, deadline); !s.is_ok()) return s;
      }
      auto link = transport->make_link(std::move(channel), {membership_, wakeup_fd_, failure}, deadline);
      if (!link.is_ok()) return explain(link.status(), failure);
      links.push_back(std::move(*link));
    }
    return links;
  }
  void watch_stalls(StallWatch* watch) override {
    stalls_ = watch;
    connector_.watch_stalls(watch);
  }

 private:
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
