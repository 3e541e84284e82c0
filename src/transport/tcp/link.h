// Two ranks connected by one or several byte-stream sockets (TCP over IPv4 or IPv6; a Unix stream
// socket works as well).
//
// Framing. Every push becomes frames {length, fingerprint, payload}; frame i travels on stream i modulo
// the number of streams and the receiver takes the frames in that order. A small message is one system
// call on each side. A view may end in the middle of an element: the executor
// combines whole ones and asks for more.
//
// Taken means copied: push() returns the bytes that the kernel (or, with several streams, every earlier stream's kernel
// buffer) holds, so completed() is always taken(). After a push() that took less than n, the header may have announced
// the rest: the caller must continue with the same bytes and fingerprint.
//
// Threads: make_link() any; the link as transport.h says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/failure.h"
#include "base/status.h"
#include "net/byte_stream.h"
#include "transport/connections/reconnector.h"
#include "transport/transport.h"

namespace tutti::internal::transport::tcp {

inline constexpr std::size_t kMaxStreams = 16;

// For streams that are made anew if their connections break.
struct Reconnect {
  std::shared_ptr<Reconnector> reconnector;
  Reconnector::Peer peer;
  const FailureState* failure = nullptr;  // of the communicator; outlives the link
  std::int64_t limit_ms = 0;              // as Reconnector::add()
  int wakeup_fd = -1;                     // of this rank, which may sleep while a stream has no socket
};

struct Options {
  int peer = -1;  // rank of the other side, for error texts
  // SO_SNDBUF and SO_RCVBUF of every stream; 0 leaves them to the kernel's tuning, which a fixed size switches off.
  // Measured once each over loopback on a busy machine: 1 MiB was as fast as the kernel's choice, 256 KiB halved the
  // speed of 2 MiB messages relative to a bare socket. At 2 MiB two streams reached about 8.5 GB/s; one stream reached
  // 4 or 8.5 from run to run, for an unknown reason.
  int socket_buffer_bytes = 0;
  // If the peer's host acknowledges nothing for this time, the peer counts as failed (net::is_silent); 0: not checked.
  std::int64_t silence_ms = 0;
  std::optional<Reconnect> reconnect{};  // none: a broken connection is an error
};

// Sets a socket non-blocking, switches Nagle's algorithm off, and sets the sizes of its buffers.
Status prepare_stream(int fd, const Options& options);

// REQUIRES: connected, authenticated sockets with no byte of a frame read yet, in the same order on both
// sides. Sets them non-blocking and switches Nagle's algorithm off.
// Errors: kInvalidArgument unless 1 <= streams.size() <= kMaxStreams; kSystemError from the kernel.
Result<std::unique_ptr<Link>> make_link(std::vector<net::ByteStream> streams, Options options);

}  // namespace tutti::internal::transport::tcp
