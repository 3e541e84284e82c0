#include "transport/verbs/exchange.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace tutti::internal::transport::verbs {

Status Exchange::lost() const {
  return Status::remote(fmt::format("rank {} closed the connection while setting up RDMA", peer_));
}

Status Exchange::pause(int fd, short events) const {
  return wait_.poll(fd, events, peer_, fmt::format("timed out while setting up RDMA with rank {}", peer_));
}

Result<bool> Exchange::hears_within(int ms) const {
  const Deadline end = Deadline::after_ms(ms);
  while (!end.passed()) {
    pollfd readable{socket_, POLLIN, 0};
    if (::poll(&readable, 1, 0) > 0) return true;
    if (Status s = pause(-1, 0); !s.is_ok()) return s;
  }
  return false;
}

Status Exchange::send(const void* data, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(socket_, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= static_cast<std::size_t>(n);
    } else if (errno != EAGAIN && errno != EINTR) {
      return lost();
    } else if (Status s = pause(socket_, POLLOUT); !s.is_ok()) {
      return s;
    }
  }
  return {};
}

Status Exchange::receive(void* data, std::size_t bytes) const {
  auto* at = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(socket_, at, bytes, MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      bytes -= static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      return lost();
    } else if (Status s = pause(socket_, POLLIN); !s.is_ok()) {
      return s;
    }
  }
  return {};
}

Result<ConnectionInfo> Exchange::swap(const ConnectionInfo& own) const {
  if (Status s = send(&own, sizeof own); !s.is_ok()) return s;
  ConnectionInfo peer;
  if (Status s = receive(&peer, sizeof peer); !s.is_ok()) return s;
  if (peer.magic != ConnectionInfo::kMagic || peer.rails != own.rails || peer.pairs != own.pairs) {
    return Status::remote(
        fmt::format("rank {} sets up RDMA with other parameters. Check that it has the same version of tutti and the "
                    "same byte order",
                    peer_));
  }
  if (peer.managed != own.managed) {
    return Status::remote(
        fmt::format("rank {}{} through librdmacm, unlike this rank. Set the same connect= in TUTTI_VERBS on all ranks",
                    peer_, peer.managed != 0 ? " connects" : " does not connect"));
  }
  return peer;
}

Status Exchange::meet(std::uint8_t step) const {
  if (Status s = send(&step, sizeof step); !s.is_ok()) return s;
  std::uint8_t theirs = 0;
  if (Status s = receive(&theirs, sizeof theirs); !s.is_ok()) return s;
  if (theirs != step) return lost();
  return {};
}

}  // namespace tutti::internal::transport::verbs
