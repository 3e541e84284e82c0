// The streams of a link that are made anew if their connections break (TUTTI_RECONNECT_MS). Without that setting, lanes
// use the sockets directly.
//
// The sending side of each stream keeps copies of the bytes that the peer may not have received (sent_ring.h). Bytes
// that the peer's kernel has acknowledged are in the peer's socket, and the peer reads them from there even after the
// connection has broken: so they need no copy. What the peer's kernel has acknowledged is looked at only when there is
// no room for more copies.
//
// Positions count the bytes of a stream from its beginning, so they outlive connections.
//
// Threads: the lanes' functions as the link; ReconnectingLink's by the reconnector, at the same time.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "net/byte_stream.h"
#include "os/mutex.h"
#include "os/unique_fd.h"
#include "transport/connections/reconnector.h"
#include "transport/tcp/link.h"
#include "transport/tcp/sent_ring.h"

namespace tutti::internal::transport::tcp {

class KeptStreams final : public ReconnectingLink {
 public:
  // REQUIRES: options.reconnect. begin() must follow.
  KeptStreams(std::vector<net::ByteStream> streams, const Options& options);
  ~KeptStreams() override;
  KeptStreams(const KeptStreams&) = delete;
  KeptStreams& operator=(const KeptStreams&) = delete;
  // From now on the streams are made anew.
  Status begin();

  // ---- For the lanes.
  // As send() and recv() of ByteStream. While a stream has no connection, they fail with EAGAIN.
  ssize_t write(std::size_t stream, const std::byte* head, std::size_t head_bytes, const std::byte* payload,
                std::size_t n) TUTTI_EXCLUDES(mutex_);
  ssize_t read(std::size_t stream, std::byte* destination, std::size_t n, std::byte* behind = nullptr,
               std::size_t more = 0) TUTTI_EXCLUDES(mutex_);
  // Not ok if a stream has failed. Polled by a waiting rank.
  [[nodiscard]] Status status(std::int64_t now) TUTTI_EXCLUDES(mutex_);

  // ---- For the link: see transport.h.
  // Stores new sockets in *fds, which had the old ones; *changed: there were some. False: there were, or a stream may
  // take more although its socket gives no event.
  bool arm(std::vector<int>* fds, bool* changed) TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool sent() TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool flushed() TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t reconnects() const { return reconnects_.load(std::memory_order_relaxed); }
  // This side needs no connection any more.
  void leave() noexcept TUTTI_EXCLUDES(mutex_);
  // The same, and the peer sees the end at once.
  void revoke() noexcept TUTTI_EXCLUDES(mutex_);

  // ---- For the reconnector.
  [[nodiscard]] std::size_t streams() const override { return count_; }
  [[nodiscard]] int socket(std::size_t stream) const override TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] Condition condition(std::size_t stream) const override TUTTI_EXCLUDES(mutex_);
  void note_end(std::size_t stream, bool both_directions) override TUTTI_EXCLUDES(mutex_);
  std::uint64_t stop(std::size_t stream) override TUTTI_EXCLUDES(mutex_);
  Result<std::uint64_t> resume(std::size_t stream, net::ByteStream made, std::uint64_t received) override
      TUTTI_EXCLUDES(mutex_);
  bool resend(std::size_t stream) override TUTTI_EXCLUDES(mutex_);
  void give_up(std::size_t stream, const std::string& why) override TUTTI_EXCLUDES(mutex_);

 private:
  struct Stream {
    net::ByteStream bytes;
    UniqueFd retired;  // the one before, which an EventSet may watch; closed by arm()
    SentRing ring;
    std::uint64_t written = 0;   // the kernel has the bytes before this position; those behind it must be sent again
    std::uint64_t received = 0;  // bytes that were read from sockets
    State state = State::kWhole;
    bool stopped = false;  // the socket's data is in `unread`
    bool failed = false;
    bool lacks_room = false;  // for copies: the kernel may have room
    std::int64_t since_ns = 0;
    Status cause;                   // of the break; if `failed`, of the failure
    std::vector<std::byte> unread;  // received before the last break, from `unread_begin` on
    std::size_t unread_begin = 0;
  };

  void break_stream(Stream* stream, State state, Status cause) TUTTI_REQUIRES(mutex_);
  // Releases what the peer's kernel has. False: the stream has broken.
  bool release(Stream* stream) TUTTI_REQUIRES(mutex_);
  std::size_t room_for(Stream* stream, std::size_t n) TUTTI_REQUIRES(mutex_);
  bool send_again(Stream* stream) TUTTI_REQUIRES(mutex_);
  void fetch_rest(Stream* stream) TUTTI_REQUIRES(mutex_);
  void look_for_silence(std::int64_t now) TUTTI_REQUIRES(mutex_);
  // Nothing more is to be sent.
  [[nodiscard]] bool is_done(const Stream& stream) const TUTTI_REQUIRES(mutex_);
  bool kernel_has_all(Stream* stream) TUTTI_REQUIRES(mutex_);
  bool is_sent(Stream* stream) TUTTI_REQUIRES(mutex_);
  bool is_flushed(Stream* stream) TUTTI_REQUIRES(mutex_);

  const Options options_;
  const std::size_t count_;
  bool begun_ = false;
  mutable Mutex mutex_;
  std::vector<Stream> streams_ TUTTI_GUARDED_BY(mutex_);
  bool over_ TUTTI_GUARDED_BY(mutex_) = false;
  std::atomic<std::uint64_t> reconnects_{0};
  std::int64_t next_look_ns_ TUTTI_GUARDED_BY(mutex_) = 0;
};

}  // namespace tutti::internal::transport::tcp
