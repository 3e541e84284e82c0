// The receiving lane of the shm transport.
//
// Threads: as the link (transport.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "transport/shm/layout.h"
#include "transport/shm/link_state.h"
#include "transport/transport.h"

namespace tutti::internal::transport::shm {

class ShmRecvLane final : public RecvLane {
 public:
  explicit ShmRecvLane(LinkState* link);
  void advertise(std::uint64_t position, const Source& target, std::size_t offset, std::size_t n) override;
  View peek(std::size_t want) override;
  bool consume(std::size_t n) override;
  std::size_t pull(std::byte* destination, std::size_t n, Fingerprint* fingerprint) override;
  Status status() override { return link_->current_status(); }

  // Decides whether, in the next operation, this side reads the memory of a peer that lets it.
  void begin_operation(MemoryUse use);
  // Whether there is a message here that this has not reported yet, opened or not: a thread that is about to sleep
  // looks at each message once more, and a lane that waits for others does not keep the rank awake.
  [[nodiscard]] bool activity();

 private:
  // Finds the bytes of a new message.
  void open(const HeaderLine& h);
  [[gnu::noinline]] const std::byte* open_elsewhere(const HeaderLine& h, Payload payload);
  // The following messages are in the peer's extension.
  const std::byte* follow_extension();
  // `data` if the message is at most `most` bytes long, else the link fails.
  const std::byte* check(const std::byte* data, std::uint64_t most);
  [[gnu::noinline]] const std::byte* fail_length(std::uint64_t most);
  const std::byte* open_in_ring(const HeaderLine& h);
  const std::byte* open_lent(const HeaderLine& h);
  const std::byte* open_cross_memory(const HeaderLine& h, const ZcopyDescriptor& descriptor);
  [[gnu::noinline]] View peek_in_peer(const HeaderLine& h);
  // kFirst: there is another way if this one fails; kLast: there is none.
  enum class Failing : std::uint8_t { kFirst, kLast };
  // Within an access. False if the access is revoked, or the read failed.
  bool read_peer(std::byte* target, std::size_t n, Failing failing);
  // Marks n bytes as consumed.
  void pass(std::size_t n);
  void drop_used_advertisements();
  const std::byte* open_put();
  void fail(const Status& status);

  LinkState* link_;
  LongBuffers long_buffers_;
  bool extended_ = false;                          // this state and lines_->in refer to the peer's extension
  bool moved_ = false;                             // set by the message that was opened last
  const std::byte* data_ = nullptr;                // of the open message
  std::size_t offset_ = 0;                         // consumed bytes of it
  bool in_peer_memory_ = false;                    // it is in the peer's memory
  bool mapped_ = false;                            // and that memory is mapped here
  std::optional<std::uint32_t> activity_message_;  // the last message that activity() has reported
  struct OwnAdvertisement {
    std::uint64_t position;
    std::uint64_t bytes;
    const std::byte* target;
  };
  std::array<OwnAdvertisement, kAdvertisements> own_advertisements_{};
  std::uint32_t advertisements_made_ = 0;
  std::uint32_t advertisements_used_ = 0;  // those that the stream has passed
  bool was_left_ = false;                  // the peer has let this side read a message, and may do so again
  std::uint64_t peer_address_ = 0;         // of a message in unmapped memory of the peer
  std::unique_ptr<std::byte[]> bounce_;    // the part that peek() has read: [bounce_begin_, bounce_end_)
  std::size_t bounce_begin_ = 0;
  std::size_t bounce_end_ = 0;
};

}  // namespace tutti::internal::transport::shm
