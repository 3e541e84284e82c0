// Receives an exact number of bytes from a socket.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <span>

#include "os/clock.h"

namespace tutti::internal::test {

// False if the peer closes, or at the deadline.
inline bool receive_all(int socket, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    pollfd entry{socket, POLLIN, 0};
    if (::poll(&entry, 1, deadline.left_ms(1000)) <= 0) {
      if (deadline.passed()) return false;
      continue;
    }
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

}  // namespace tutti::internal::test
