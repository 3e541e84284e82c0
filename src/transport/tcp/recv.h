// The receiving lane of the tcp transport.
//
// Threads: as the link (transport.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/plain.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/kept_streams.h"
#include "transport/tcp/link.h"
#include "transport/tcp/silence.h"
#include "transport/transport.h"

namespace tutti::internal::transport::tcp {

class TcpRecv final : public PlainRecvLane {
 public:
  // As TcpSend().
  TcpRecv(std::span<net::ByteStream> streams, const std::vector<int>& fds, KeptStreams* kept, const Options& options,
          const LaneTraits& traits);

  // Reads ahead, also over the following frames, so that a small message costs at most one recv(2). A view of a few
  // bytes that are not the end of their frame grows with the next call.
  View peek(std::size_t want) override;
  bool consume(std::size_t n) override;
  // Reads on over following frames while their fingerprint is the same.
  std::size_t pull(std::byte* destination, std::size_t n, Fingerprint* fingerprint) override;
  // Data that arrived before a failure can still be read.
  Status status() override;

 private:
  // Bytes [begin, end) of `staging` are received and not yet consumed.
  struct Stream {
    net::ByteStream* bytes = nullptr;
    std::size_t index = 0;
    std::unique_ptr<std::byte[]> staging;
    std::size_t begin = 0;
    std::size_t end = 0;
    [[nodiscard]] std::size_t staged() const { return end - begin; }
  };

  Stream& current() { return streams_[frame_number_ % streams_.size()]; }
  // Begins the next frame if its header is here. `most` bounds what is read to get it.
  bool next_frame(std::size_t most);
  // One recv(2) of at most `most` bytes into the staging memory.
  void fill(Stream& stream, std::size_t most);
  std::size_t drain_staged(std::byte* destination, std::size_t n);
  std::size_t read_direct(std::byte* destination, std::size_t n);
  // True if `result` bytes arrived; otherwise sets the status unless there is merely nothing yet.
  bool arrived(ssize_t result);

  std::vector<Stream> streams_;
  KeptStreams* const kept_;
  int peer_;
  SilenceWatch silence_;
  std::uint64_t frame_number_ = 0;  // of the current frame, or of the next one when frame_left_ is 0
  std::size_t frame_left_ = 0;      // payload bytes of the current frame that are not consumed
  Fingerprint fingerprint_;         // of the current frame
  Status status_;
  std::int64_t closed_ns_ = 0;  // when the peer's end of the connection was seen; 0: not yet
};

}  // namespace tutti::internal::transport::tcp
