// Exchanges the data of two ranks' devices over their authenticated connection: queue pair numbers, addresses and keys.
//
// Threads: the one that makes the link.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/failure.h"
#include "base/status.h"
#include "net/connect_wait.h"
#include "os/clock.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/ports/ports.h"

namespace tutti::internal::transport::verbs {

// One rank's half. Native byte order: the magic shows a peer with the other order.
struct ConnectionInfo {
  static constexpr std::uint32_t kMagic = 0x74765232;
  struct Rail {
    std::uint64_t inbox = 0;
    std::uint32_t rkey = 0;          // of the inbox
    std::uint16_t manager_port = 0;  // where librdmacm listens on this rail; 0: connected by exchange
    std::uint16_t reserved = 0;
  };
  std::uint32_t magic = kMagic;
  std::array<std::uint8_t, 16> token{};  // what librdmacm's connection to this rank must show
  std::uint16_t rails = 0;
  std::uint16_t pairs = 0;
  std::uint32_t managed = 0;  // 1: connected by librdmacm
  Rail rail[kMaxRails] = {};
  Endpoint endpoint[kMaxPairs] = {};
};
static_assert(sizeof(Endpoint) == 28);

// Uses one connected, non-blocking socket, and reads no further bytes.
class Exchange {
 public:
  Exchange(int socket, int peer, const FailureState* failure, Deadline deadline)
      : socket_(socket), peer_(peer), wait_(failure, deadline) {}

  // Sends `own` and returns the peer's data. kRemoteError if that is invalid.
  Result<ConnectionInfo> swap(const ConnectionInfo& own) const;
  // Returns when the peer has reached its `step`-th synchronisation as well.
  Status meet(std::uint8_t step) const;
  // Whether the peer has sent something here within `ms`.
  Result<bool> hears_within(int ms) const;
  // Waits a little for `fd` (-1: none). An error at the deadline or if the communicator has failed.
  Status pause(int fd, short events) const;

 private:
  Status send(const void* data, std::size_t bytes) const;
  Status receive(void* data, std::size_t bytes) const;
  [[nodiscard]] Status lost() const;

  int socket_;
  int peer_;
  net::ConnectWait wait_;
};

}  // namespace tutti::internal::transport::verbs
