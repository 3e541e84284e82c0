// The receiving lane of the shm transport.
//
// Threads: as the link (transport.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/shm/link_state.h"
#include "transport/shm/segment.h"
#include "transport/transport.h"

namespace tutti::internal::transport::shm {

class ShmRecvLane final : public RecvLane {
 public:
  explicit ShmRecvLane(LinkState* link);
  void advertise(std::uint64_t position, const Source& target, std::size_t offset, std::size_t n) override;
  View peek(std::size_t want) override;
  bool consume(std::size_t n) override;
  std::size_t pull(std::byte*, std::size_t, Fingerprint*) override { return 0; }
  Status status() override { return link_->current_status(); }

  // Whether a message lies here that this has not reported yet, opened or not: whoever is about to sleep
  // looks at each once more, and a lane that waits for others does not keep the rank awake.
  [[nodiscard]] bool activity();

 private:
  // A new message: where its bytes are.
  void open(const SlotHeader& h);
  [[gnu::noinline]] const std::byte* open_elsewhere(const SlotHeader& h, Payload payload);
  const std::byte* check(const std::byte* data, std::uint64_t room);
  // The link fails.
  [[gnu::noinline]] const std::byte* fail_length(std::uint64_t room);
  const std::byte* open_zcopy(const SlotHeader& h);
  void drop_used_advertisements();
  const std::byte* open_direct_put();
  void fail(const Status& status);

  LinkState* link_;
  Slot* slots_;
  const std::byte* data_ = nullptr;     // of the message that is open
  std::size_t size_ = 0;                // of that message; 0: none is open
  std::size_t offset_ = 0;              // consumed of it
  bool in_peer_memory_ = false;         // it lies in the peer's memory
  std::uint32_t activity_message_ = 0;  // what activity() has reported
  struct OwnAdvertisement {
    std::uint64_t position;
    std::uint64_t bytes;
    const std::byte* target;
  };
  std::array<OwnAdvertisement, kAdvertisements> own_advertisements_{};
  std::uint32_t advertisements_made_ = 0;
  std::uint32_t advertisements_used_ = 0;  // by the stream having passed them
};

}  // namespace tutti::internal::transport::shm
