#include "transport/connections/listeners.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "net/address.h"
#include "net/auth.h"
#include "net/socket.h"

namespace tutti::internal {
namespace {

// Limit of untaken shared connections from one rank: one, which has one stream, and one of an earlier attempt.
constexpr std::size_t kMostShared = 2;
// Limit of untaken connections for streams.
constexpr std::size_t kMostStreamConnections = 1024;
// Limits of the kernel's queue of connections. Many communicators may connect at the same time, so that small jobs need
// more than one for each rank and stream.
constexpr std::size_t kShortestQueue = 256;
constexpr std::size_t kLongestQueue = 4096;
constexpr std::size_t kQueuedOfRank = 32;
// Poll period of a thread for which there was no descriptor to wake it.
constexpr int kBlindMs = 5;
constexpr const char* kUsualFolder = "/tmp";

// A path that works even if the file is renamed or removed.
std::string path_of(const UniqueFd& fd) {
  return fmt::format("/proc/self/fd/{}", fd.get());
}

// Uses the folder's descriptor, because an address has room for only 107 bytes.
Result<UniqueFd> listen_in(const std::string& folder, const std::string& name) {
  const UniqueFd fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return Status::system("opening the folder", errno);
  const std::string path = path_of(fd) + "/" + name;
  Result<net::Address> address = net::Address::unix_path(path);
  if (!address.is_ok()) return address.status();
  Result<UniqueFd> listener = net::listen_unix(*address);
  if (!listener.is_ok()) ::unlink(path.c_str());
  return listener;
}

}  // namespace

Listeners::Listeners(const Secret& secret, int rank, Encryption encryption)
    : owner_(::getpid()), acceptor_(secret, net::Claim{net::Purpose::kLink, rank, 0, 1, 0, encryption}) {}

Listeners::~Listeners() {
  remove_path();
}

void Listeners::remove_path() {
  if (!path_.empty() && owner_ == ::getpid()) ::unlink(path_.c_str());
  path_.clear();
}

Status Listeners::open(const Settings& settings, bool allow_unix, bool allow_tcp, const std::string& best,
                       PeerInfo* info) {
  if (allow_unix) {
    if (Status s = open_unix(info); !s.is_ok()) return s;
  }
  return allow_tcp ? open_tcp(settings, best, info) : Status();
}

Status Listeners::open_unix(PeerInfo* info) {
  Result<std::string> name = random_socket_name();
  if (!name.is_ok()) return name.status();
  Result<UniqueFd> listener = net::listen_unix(net::Address::unix_abstract(*name));
  if (!listener.is_ok()) return listener.status();
  acceptor_.add_listener(std::move(listener).value(), true);
  info->unix_address = *name;
  return {};
}

Status Listeners::open_tcp(const Settings& settings, const std::string& best, PeerInfo* info) {
  Result<UniqueFd> listener = net::listen_tcp(settings.port_low, settings.port_high);
  if (!listener.is_ok()) return listener.status();
  Result<net::Address> bound = net::local_address(listener->get());
  if (!bound.is_ok()) return bound.status();
  Result<std::vector<net::Address>> addresses = net::interface_addresses(settings.interface);
  if (!addresses.is_ok()) return addresses.status();
  if (auto first = net::parse_address(best); first.is_ok()) net::put_first(&addresses.value(), *first);
  // No warning here: the rank has warned about omitted addresses when it opened the tree's listener.
  if (addresses->size() > net::kMaxAddresses) addresses->resize(net::kMaxAddresses);
  for (const net::Address& address : *addresses) {
    info->tcp_addresses.push_back(address.with_port(bound->port()).text());
  }
  acceptor_.add_listener(std::move(listener).value(), false);
  return {};
}

void Listeners::limit_queues(std::size_t ranks) {
  acceptor_.limit_queues(static_cast<int>(std::clamp(ranks * kQueuedOfRank, kShortestQueue, kLongestQueue)));
}

Status Listeners::listen_on_path(PeerInfo* info) {
  Result<std::string> name = random_socket_name();
  if (!name.is_ok()) return name.status();
  Status first;
  for (const std::string& folder : {environment_variable("TMPDIR").value_or(kUsualFolder), std::string(kUsualFolder)}) {
    std::error_code unknown;
    const std::string path = std::filesystem::absolute(folder, unknown).string() + "/" + *name;
    Result<UniqueFd> listener = listen_in(folder, *name);
    if (!listener.is_ok()) {
      if (first.is_ok()) first = listener.status().with_context(path);
      continue;
    }
    path_ = path;
    acceptor_.add_listener(std::move(listener).value(), true);
    info->unix_path = path;
    return {};
  }
  return first;
}

void Listeners::open_paths(const std::vector<std::string>& paths) {
  descriptors_ = DescriptorReservation(paths.size());
  for (const std::string& path : paths) {
    UniqueFd fd(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (fd.valid()) {
      opened_.emplace(path, std::move(fd));
    } else {
      log::info(fmt::format("this rank cannot reach a rank of this machine over a Unix socket: {}: {}", path,
                            std::generic_category().message(errno)));
    }
  }
}

std::optional<net::Address> Listeners::opened(const std::string& path) const {
  const auto at = opened_.find(path);
  if (at == opened_.end()) return std::nullopt;
  Result<net::Address> address = net::Address::unix_path(path_of(at->second));
  return address.is_ok() ? std::optional(*address) : std::nullopt;
}

void Listeners::subscribe(std::uint64_t communicator, std::size_t most) {
  const MutexLock lock(mutex_);
  mailboxes_[communicator].most = most;
}

Listeners::Mailbox& Listeners::mailbox(std::uint64_t communicator) {
  Mailbox& box = mailboxes_[communicator];
  if (box.most == 0) box.most = kMostShared;
  return box;
}

void Listeners::unsubscribe(std::uint64_t communicator) {
  const MutexLock lock(mutex_);
  mailboxes_.erase(communicator);
}

std::vector<net::Authenticated> Listeners::take(std::uint64_t communicator) {
  const MutexLock lock(mutex_);
  return std::exchange(mailbox(communicator).kept, {});
}

void Listeners::subscribe_streams(int bell) {
  const MutexLock lock(mutex_);
  streams_.most = kMostStreamConnections;
  streams_.bell = bell;
}

std::vector<net::Authenticated> Listeners::take_streams() {
  const MutexLock lock(mutex_);
  return std::exchange(streams_.kept, {});
}

void Listeners::deliver(std::vector<net::Authenticated> connections) {
  if (connections.empty()) return;
  const MutexLock lock(mutex_);
  for (net::Authenticated& connection : connections) {
    const std::uint64_t communicator = connection.peer.communicator;
    if (communicator != shared_by(connection.peer.rank) && !mailboxes_.contains(communicator)) {
      log::debug("closed a connection for a communicator that this rank has left");
      continue;
    }
    const bool is_stream = connection.peer.purpose == net::Purpose::kStream;
    if (is_stream && streams_.most == 0) continue;
    Mailbox& box = is_stream ? streams_ : mailbox(communicator);
    if (box.kept.size() >= box.most) box.kept.erase(box.kept.begin());
    box.kept.push_back(std::move(connection));
    EventFd::ring(box.bell);
  }
}

bool Listeners::attend() {
  {
    const MutexLock lock(mutex_);
    if (attended_) return false;
  }
  Visit visit(*this, {});
  net::PollSet set;
  set.clear(0);
  visit.prepare(&set);
  if (set.wait().is_ok()) visit.process(set);
  return visit.has_pending();
}

void Listeners::Visit::prepare(net::PollSet* set) {
  polled_ = false;
  if (!attends_) {
    const MutexLock lock(listeners_.mutex_);
    attends_ = !std::exchange(listeners_.attended_, true);
    if (!attends_ && !bell_.valid()) {
      auto bell = EventFd::create();
      if (bell.is_ok()) bell_ = std::move(*bell);
    }
    for (const std::uint64_t communicator : communicators_) {
      Mailbox& box = listeners_.mailbox(communicator);
      box.bell = attends_ ? -1 : bell_.fd();
      if (!attends_ && !box.kept.empty()) set->wake_at(Deadline::after_ms(0));
    }
  }
  if (attends_) {
    listeners_.acceptor_.prepare(set);
  } else if (bell_.valid()) {
    entry_ = set->add(bell_.fd(), POLLIN);
    polled_ = true;
  } else {
    set->wake_at(Deadline::after_ms(kBlindMs));
  }
}

void Listeners::Visit::process(const net::PollSet& set) {
  if (attends_) {
    listeners_.acceptor_.process(set);
    shortage_ = listeners_.acceptor_.shortage();
    listeners_.deliver(listeners_.acceptor_.take());
  } else if (polled_ && set.ready(entry_) != 0) {
    bell_.clear();
  }
}

// Must not allocate a mailbox: a visit may end because there is no memory.
Listeners::Visit::~Visit() {
  const MutexLock lock(listeners_.mutex_);
  for (const std::uint64_t communicator : communicators_) {
    const auto box = listeners_.mailboxes_.find(communicator);
    if (box != listeners_.mailboxes_.end()) box->second.bell = -1;
  }
  if (!attends_) return;
  listeners_.attended_ = false;
  EventFd::ring(listeners_.streams_.bell);
  for (const auto& [communicator, box] : listeners_.mailboxes_) EventFd::ring(box.bell);
}

}  // namespace tutti::internal
