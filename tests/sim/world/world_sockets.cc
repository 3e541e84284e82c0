// The network of a simulated world: TCP as the kernel of each host presents it.
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "sim/world/world.h"

namespace tutti::internal::sim {
namespace {

constexpr int kFirstFd = 1 << 24;  // beyond all that are real
// From a host's address to the one that no other host can reach.
constexpr std::uint32_t kInside = 1U << 24;
constexpr std::int64_t kUs = 1'000;
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();

int fails(int error) {
  errno = error;
  return -1;
}

std::uint64_t key_of(std::uint32_t host, std::uint16_t port) {
  return std::uint64_t{host} << 16 | port;
}

void put_address(std::uint32_t host, std::uint16_t port, sockaddr* address, socklen_t* length) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(host);
  in.sin_port = htons(port);
  std::memcpy(address, &in, std::min<std::size_t>(*length, sizeof in));
  *length = sizeof in;
}

}  // namespace

// ---- Descriptors --------------------------------------------------------------------------------

int World::give(Socket* socket, Process* owner) {
  socket->fd = kFirstFd + static_cast<int>(descriptors_.size());
  socket->owner = owner;
  descriptors_.push_back(socket);
  owner->sockets.push_back(socket);
  return socket->fd;
}

Socket* World::find(int fd) const {
  const auto index = static_cast<std::size_t>(fd - kFirstFd);
  return fd < kFirstFd || index >= descriptors_.size() ? nullptr : descriptors_[index];
}

int World::close(int fd) {
  if (fd < kFirstFd) return ::close(fd);
  enter("close");
  Socket* const socket = find(fd);
  if (socket == nullptr) return fails(EBADF);
  descriptors_[static_cast<std::size_t>(fd - kFirstFd)] = nullptr;
  std::erase(socket->owner->sockets, socket);
  if (!socket->closed) end(socket);
  return 0;
}

int World::eventfd() {
  Socket& event = sockets_.emplace_back();
  event.kind = Socket::Kind::kEvent;
  return give(&event, current_->process);
}

void World::eventfd_write(int fd) {
  enter("eventfd_write");
  Socket* const event = find(fd);
  ++event->count;
  changed(event);
}

void World::eventfd_read(int fd) {
  enter("eventfd_read");
  find(fd)->count = 0;
}

int World::epoll_create() {
  Socket& set = sockets_.emplace_back();
  set.kind = Socket::Kind::kSet;
  return give(&set, current_->process);
}

int World::epoll_ctl(int set, int operation, int fd, epoll_event* event) {
  Socket* const of = find(set);
  if (of == nullptr || find(fd) == nullptr) return fails(EBADF);
  const bool is_new = !of->watched.contains(fd);
  if (is_new != (operation == EPOLL_CTL_ADD)) return fails(is_new ? ENOENT : EEXIST);
  if (operation == EPOLL_CTL_DEL) {
    of->watched.erase(fd);
  } else {
    of->watched[fd] = *event;
  }
  return 0;
}

int World::epoll_wait(int set, epoll_event* events, int most) {
  enter("epoll_wait");
  int found = 0;
  std::map<int, epoll_event>& watched = find(set)->watched;
  std::erase_if(watched, [this](const auto& entry) { return find(entry.first) == nullptr; });
  for (const auto& [fd, event] : watched) {
    const short now = found < most ? ready(*find(fd), static_cast<short>(event.events)) : short{0};
    if (now == 0) continue;
    events[found] = event;
    events[found++].events = static_cast<std::uint32_t>(now);
  }
  return found;
}

// For a killed process, all connections have ended, and new connections do not arrive.
short World::ready(const Socket& socket, short events) const {
  const auto wanted = static_cast<unsigned>(events);
  unsigned now = 0;
  if (socket.kind == Socket::Kind::kEvent) {
    now = socket.count > 0 ? POLLIN : 0;
  } else if (socket.kind == Socket::Kind::kSet) {
    const bool any = std::any_of(socket.watched.begin(), socket.watched.end(), [this](const auto& entry) {
      const Socket* const watched = find(entry.first);
      return watched != nullptr && ready(*watched, static_cast<short>(entry.second.events)) != 0;
    });
    now = any ? POLLIN : 0;
  } else if (socket.kind == Socket::Kind::kListener) {
    now = socket.backlog.empty() ? 0 : POLLIN;
  } else if (socket.owner->dead || socket.error != 0) {
    now = POLLIN | POLLOUT | POLLHUP;
  } else if (socket.connected) {
    if (socket.unread() > 0 || socket.ended || socket.reset) now |= POLLIN;
    if (room(socket) > 0 || socket.reset) now |= POLLOUT;
    if (socket.reset || (socket.ended && socket.shut)) now |= POLLHUP;
  }
  return static_cast<short>(now & (wanted | POLLHUP));
}

int World::poll(pollfd* entries, nfds_t count, int timeout_ms) {
  enter("poll");
  current_->process->traffic.polled += count;
  const std::int64_t until_ns = timeout_ms < 0 ? kForever : now_ns_ + timeout_ms * kMs;
  for (;;) {
    int found = 0;
    for (nfds_t i = 0; i < count; ++i) {
      const Socket* const socket = find(entries[i].fd);
      const short nothing = entries[i].fd < 0 ? 0 : POLLNVAL;
      entries[i].revents = socket == nullptr ? nothing : ready(*socket, entries[i].events);
      if (entries[i].revents != 0) ++found;
    }
    if (found > 0 || now_ns_ >= until_ns) return found;
    for (nfds_t i = 0; i < count; ++i) {
      if (Socket* const socket = find(entries[i].fd); socket != nullptr) wake_by(socket, current_);
    }
    static_cast<void>(block("poll", until_ns));
  }
}

// When the socket changes, or, for an epoll set, one of those in it.
void World::wake_by(Socket* socket, Thread* thread) {
  add_waiter(&socket->waiters, thread);
  for (const auto& [fd, event] : socket->watched) {
    if (Socket* const watched = find(fd); watched != nullptr) add_waiter(&watched->waiters, thread);
  }
}

void World::changed(Socket* socket) {
  wake_all(&socket->waiters);
}

// ---- Packets ------------------------------------------------------------------------------------

std::int64_t World::delay_ns() {
  const bool slow = draw(64) == 0;
  const std::int64_t high_us = slow ? options_.delay_slow_us : options_.delay_high_us;
  return (options_.delay_low_us + static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(
                                      std::max<std::int64_t>(1, high_us - options_.delay_low_us))))) *
         kUs;
}

// After everything that the socket has sent before.
void World::packet(Socket* from, std::uint32_t to_host, std::function<void()> arrives) {
  from->arrival_ns = std::max(from->arrival_ns, now_ns_ + delay_ns());
  const std::uint32_t from_host = from->host;
  at(from->arrival_ns, [this, from_host, to_host, arrives = std::move(arrives)]() mutable {
    deliver(from_host, to_host, std::move(arrives));
  });
}

void World::deliver(std::uint32_t from_host, std::uint32_t to_host, std::function<void()> arrives) {
  if (from_host == to_host || (!cut_.contains(from_host) && !cut_.contains(to_host))) return arrives();
  kept_.push_back([this, from_host, to_host, arrives = std::move(arrives)]() mutable {
    deliver(from_host, to_host, std::move(arrives));
  });
}

// ---- Connections --------------------------------------------------------------------------------

int World::socket(int family, int type) {
  enter("socket");
  if (family != AF_INET || type != SOCK_STREAM) return fails(EAFNOSUPPORT);
  Socket& socket = sockets_.emplace_back();
  socket.host = current_->process->host;
  return give(&socket, current_->process);
}

int World::bind(int fd, const sockaddr* address, socklen_t /*length*/) {
  enter("bind");
  sockaddr_in in{};
  std::memcpy(&in, address, sizeof in);
  Socket* const socket = find(fd);
  socket->port = in.sin_port != 0 ? ntohs(in.sin_port) : next_port_++;
  return listeners_.contains(key_of(socket->host, socket->port)) ? fails(EADDRINUSE) : 0;
}

int World::listen(int fd, int /*backlog*/) {
  enter("listen");
  Socket* const socket = find(fd);
  socket->kind = Socket::Kind::kListener;
  if (!socket->owner->dead) listeners_[key_of(socket->host, socket->port)] = socket;
  return 0;
}

int World::accept(int fd) {
  enter("accept");
  Socket* const listener = find(fd);
  if (listener->backlog.empty()) return fails(EAGAIN);
  Socket* const accepted = listener->backlog.front();
  listener->backlog.erase(listener->backlog.begin());
  ++current_->process->traffic.accepts;
  return give(accepted, current_->process);
}

int World::connect(int fd, const sockaddr* address, socklen_t /*length*/) {
  enter("connect");
  Socket* const socket = find(fd);
  if (socket->owner->dead) return fails(ECONNREFUSED);
  sockaddr_in in{};
  std::memcpy(&in, address, sizeof in);
  std::uint32_t to = ntohl(in.sin_addr.s_addr);
  constexpr std::uint32_t kLoopback = 127;
  if (options_.two_networks && to == socket->host + kInside) to = socket->host;
  const bool inside = options_.two_networks && to >> 24 == (socket->host + kInside) >> 24;
  const bool filtered = filtered_.contains(inside ? to - kInside : to);
  if (inside && !filtered && draw(2) == 0) return fails(ENETUNREACH);
  socket->kind = Socket::Kind::kStream;
  socket->port = next_port_++;
  socket->peer_host = to >> 24 == kLoopback ? socket->host : to;
  socket->peer_port = ntohs(in.sin_port);
  ++socket->owner->traffic.connects;
  if (filtered) connect_filtered(socket, inside);
  if (filtered || inside) return fails(EINPROGRESS);  // inside, no answer comes
  packet(socket, socket->peer_host, [this, socket] { arrive(socket, key_of(socket->peer_host, socket->peer_port)); });
  return fails(EINPROGRESS);
}

void World::connect_filtered(Socket* client, bool inside) {
  if (!inside) return refuse(client, client->peer_host);
  client->peer_host -= kInside;
  const bool lost = filtered_[client->peer_host][client->host]++ % 2 == 0;
  at(now_ns_ + (lost ? 1000 * kMs : 0), [this, client] {
    packet(client, client->peer_host, [this, client] { arrive(client, key_of(client->peer_host, client->peer_port)); });
  });
}

// The client has a connection after one round trip, and the server can accept it when the client has confirmed it.
void World::arrive(Socket* client, std::uint64_t where) {
  const auto found = listeners_.find(where);
  if (found == listeners_.end()) return refuse(client, client->peer_host);
  Socket& server = sockets_.emplace_back();
  server.kind = Socket::Kind::kStream;
  server.owner = found->second->owner;
  server.host = client->peer_host;
  server.port = client->peer_port;
  server.peer_host = client->host;
  server.peer_port = client->port;
  server.peer = client;
  server.connected = true;
  packet(&server, client->host, [this, client, server = &server, where, listener = found->second] {
    if (client->closed) return;
    client->peer = server;
    client->connected = true;
    changed(client);
    packet(client, server->host, [this, client, server, where, listener] {
      const auto still = listeners_.find(where);
      if (still == listeners_.end() || still->second != listener) {
        server->closed = true;
        return send_reset(server);
      }
      listener->backlog.push_back(server);
      changed(listener);
    });
  });
}

void World::refuse(Socket* client, std::uint32_t host) {
  const std::int64_t at_ns = now_ns_ + delay_ns();
  at(at_ns, [this, client, host] {
    deliver(host, client->host, [this, client] {
      client->error = ECONNREFUSED;
      changed(client);
    });
  });
}

void World::send_reset(Socket* from) {
  Socket* const to = from->peer;
  if (to == nullptr) return;
  packet(from, to->host, [this, to] {
    to->reset = true;
    changed(to);
  });
}

// Like close(2), and like the end of a process. Unread bytes make it a reset, which may destroy data in flight.
void World::end(Socket* socket) {
  socket->closed = true;
  if (socket->kind == Socket::Kind::kListener) {
    listeners_.erase(key_of(socket->host, socket->port));
    for (Socket* const waiting : std::exchange(socket->backlog, {})) {
      waiting->closed = true;
      send_reset(waiting);
    }
  }
  if (!socket->connected) return;
  if (socket->unread() > 0) {
    if (draw(2) == 0) ++socket->generation;
    send_reset(socket);
  } else if (!socket->shut && !socket->reset) {
    packet(socket, socket->peer_host, [this, to = socket->peer] {
      to->ended = true;
      changed(to);
    });
  }
  socket->in = {};
  socket->in_at = 0;
}

std::size_t World::room(const Socket& socket) const {
  const std::size_t used = socket.flying + (socket.peer->closed ? 0 : socket.peer->unread());
  return options_.buffer_bytes - std::min(options_.buffer_bytes, used);
}

ssize_t World::send(int fd, const void* data, std::size_t size) {
  enter("send");
  Socket* const socket = find(fd);
  if (socket == nullptr) return fails(EBADF);
  if (socket->owner->dead || socket->shut || socket->reset) return fails(EPIPE);
  if (!socket->connected) return fails(socket->error != 0 ? socket->error : EAGAIN);
  const std::size_t taken = std::min(size, room(*socket));
  socket->wants_room = taken < size;
  if (taken == 0) return fails(EAGAIN);
  Traffic& traffic = socket->owner->traffic;
  ++traffic.sends;
  traffic.bytes += taken;
  socket->flying += taken;
  Socket* const to = socket->peer;
  std::string bytes(static_cast<const char*>(data), taken);
  packet(socket, to->host, [this, socket, to, bytes = std::move(bytes), generation = socket->generation] {
    socket->flying -= bytes.size();
    if (generation != socket->generation) return;
    if (to->closed) return send_reset(to);
    to->in += bytes;
    changed(to);
  });
  return static_cast<ssize_t>(taken);
}

ssize_t World::recv(int fd, void* data, std::size_t size) {
  enter("recv");
  Socket* const socket = find(fd);
  if (socket == nullptr) return fails(EBADF);
  if (socket->owner->dead) return 0;
  if (!socket->connected) return fails(socket->error != 0 ? socket->error : EAGAIN);
  const std::size_t taken = std::min(size, socket->unread());
  if (taken == 0) {
    if (socket->ended) return 0;
    return fails(socket->reset ? ECONNRESET : EAGAIN);
  }
  std::memcpy(data, socket->in.data() + socket->in_at, taken);
  socket->in_at += taken;
  if (socket->unread() == 0) {
    socket->in.clear();
    socket->in_at = 0;
  }
  socket->owner->traffic.received += taken;
  if (socket->peer->wants_room) {
    socket->peer->wants_room = false;
    packet(socket, socket->peer->host, [this, peer = socket->peer] { changed(peer); });
  }
  return static_cast<ssize_t>(taken);
}

int World::shutdown(int fd, int how) {
  enter("shutdown");
  Socket* const socket = find(fd);
  if (socket == nullptr || !socket->connected || socket->owner->dead) return fails(ENOTCONN);
  if (how == SHUT_RD || std::exchange(socket->shut, true)) return 0;
  packet(socket, socket->peer_host, [this, to = socket->peer] {
    to->ended = true;
    changed(to);
  });
  return 0;
}

// ---- Names and options --------------------------------------------------------------------------

int World::getsockname(int fd, sockaddr* address, socklen_t* length) {
  const Socket* const socket = find(fd);
  if (socket == nullptr) return fails(EBADF);
  put_address(socket->kind == Socket::Kind::kListener ? INADDR_ANY : socket->host, socket->port, address, length);
  return 0;
}

int World::getpeername(int fd, sockaddr* address, socklen_t* length) {
  const Socket* const socket = find(fd);
  if (socket == nullptr || !socket->connected) return fails(ENOTCONN);
  put_address(socket->peer_host, socket->peer_port, address, length);
  return 0;
}

// A connection to a host that is cut off gets no answer.
int World::getsockopt(int fd, int level, int name, void* value, socklen_t* length) {
  enter("getsockopt");
  Socket* const socket = find(fd);
  if (socket == nullptr) return fails(EBADF);
  if (level == SOL_SOCKET && name == SO_ERROR && *length == sizeof(int)) {
    const int error = socket->owner->dead ? ECONNREFUSED : socket->error;
    std::memcpy(value, &error, sizeof error);
    return 0;
  }
  if (level != IPPROTO_TCP || name != TCP_INFO || *length < sizeof(tcp_info)) return fails(ENOPROTOOPT);
  tcp_info info{};
  for (const std::uint32_t host : {socket->host, socket->peer_host}) {
    const auto cut = cut_.find(host);
    if (cut == cut_.end() || socket->host == socket->peer_host) continue;
    constexpr unsigned char kUnanswered = 10;
    info.tcpi_probes = kUnanswered;
    info.tcpi_last_ack_recv =
        std::max(info.tcpi_last_ack_recv, static_cast<std::uint32_t>((now_ns_ - cut->second) / kMs));
  }
  std::memcpy(value, &info, sizeof info);
  *length = sizeof info;
  return 0;
}

int World::setsockopt(int /*fd*/, int level, int name, const void* /*value*/, socklen_t /*length*/) {
  if (level == IPPROTO_TCP && name == TCP_ULP) return fails(ENOENT);  // no kernel TLS
  return 0;
}

namespace {

struct Interface {
  ifaddrs entry{};
  sockaddr_in address{};
  char name[5] = "eth?";
};
struct Interfaces {
  Interface inside;
  Interface outside;
};

}  // namespace

int World::getifaddrs(ifaddrs** list) {
  auto* const made = new Interfaces;
  const auto fill = [](Interface* interface, char number, std::uint32_t address, ifaddrs* next) {
    interface->name[3] = number;
    interface->address.sin_family = AF_INET;
    interface->address.sin_addr.s_addr = htonl(address);
    interface->entry.ifa_name = interface->name;
    interface->entry.ifa_flags = IFF_UP;
    interface->entry.ifa_addr = reinterpret_cast<sockaddr*>(&interface->address);
    interface->entry.ifa_next = next;
  };
  const std::uint32_t host = current_->process->host;
  fill(&made->outside, '0', host, nullptr);
  fill(&made->inside, '1', host + kInside, &made->outside.entry);
  if (!options_.two_networks) made->inside.entry.ifa_addr = nullptr;  // it has no address
  *list = &made->inside.entry;
  return 0;
}

void World::freeifaddrs(ifaddrs* list) {
  delete reinterpret_cast<Interfaces*>(list);
}

}  // namespace tutti::internal::sim
