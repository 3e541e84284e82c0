// The sending lane of the tcp transport.
//
// Threads: as the link (transport.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/end_watch.h"
#include "transport/plain.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/kept_streams.h"
#include "transport/tcp/link.h"
#include "transport/tcp/silence.h"
#include "transport/transport.h"

namespace tutti::internal::transport::tcp {

class TcpSend final : public PlainSendLane {
 public:
  // The link owns the streams, whose descriptors are `fds`. `kept` has them instead if they are made anew; else null.
  TcpSend(std::span<net::ByteStream> streams, std::vector<int> fds, KeptStreams* kept, const Options& options,
          const LaneTraits& traits);

  std::size_t push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) override;
  std::span<std::byte> reserve(std::size_t) override { return {}; }
  void commit(const Fingerprint&, std::size_t) override {}
  std::uint64_t completed() override { return taken_; }
  Status status() override;

 private:
  // A frame in flight. `begin` is the position of its payload in the lane's stream of bytes.
  struct Frame {
    FrameHeader header{};
    std::size_t header_sent = 0;
    std::size_t length = 0;
    std::size_t sent = 0;
    std::uint64_t begin = 0;
    [[nodiscard]] bool done() const { return header_sent == kHeaderBytes && sent == length; }
  };

  Frame& frame(std::uint64_t number) { return frames_[number % fds_.size()]; }
  void open_frame(const Fingerprint& fingerprint, std::size_t length);
  void forget_unsent();
  // Writes what is left of the header and n bytes of payload; false if the kernel took less.
  bool write(std::size_t stream, Frame& frame, const std::byte* payload, std::size_t n);

  const std::span<net::ByteStream> streams_;
  const std::vector<int> fds_;
  KeptStreams* const kept_;
  int peer_;
  EndWatch peer_end_;
  SilenceWatch silence_;
  std::array<Frame, kMaxStreams> frames_;  // of stream i: frame number i modulo the number of streams
  std::uint64_t front_ = 0;                // frames [front_, next_) are open, one a stream at most
  std::uint64_t next_ = 0;
  std::uint64_t announced_ = 0;  // bytes of the lane's stream before frame next_
  Status status_;
};

}  // namespace tutti::internal::transport::tcp
