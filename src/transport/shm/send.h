// The sending lane of the shm transport.
//
// Threads: as the link (transport.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/plain.h"
#include "transport/shm/distance.h"
#include "transport/shm/layout.h"
#include "transport/shm/link_state.h"
#include "transport/transport.h"

namespace tutti::internal::transport::shm {

class ShmSendLane final : public PlainSendLane {
 public:
  explicit ShmSendLane(LinkState* link);
  std::size_t push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) override;
  std::span<std::byte> reserve(std::size_t n) override;
  void commit(const Fingerprint& fingerprint, std::size_t n) override;
  std::span<std::byte> reserve_remote(std::size_t n) override;
  std::uint64_t completed() override;
  Status status() override { return link_->current_status(); }

  // Decides which memory of the next operation the peer may read.
  void begin_operation(MemoryUse use);
  // Whether the peer has consumed something since the last call.
  [[nodiscard]] bool activity();

 private:
  // The following messages use this side's extension. False if they do already, or if nothing can be sent now.
  [[nodiscard]] bool extend();
  // Whether fewer than `messages` messages are in flight. A message whose payload is neither in its line nor in its
  // slot passes at most long_ahead_: so each has its own long buffer and its own entry of is_lent_.
  [[nodiscard]] bool has_credit(std::uint32_t messages);
  [[nodiscard]] bool has_credit_for(std::size_t bytes) {
    if (bytes >= kLongBytes) return has_credit(slots_ahead_);
    return has_credit(bytes <= kShortMessageBytes ? lines_->ahead : long_ahead_);
  }
  // Called before a payload of `bytes`: now and then measures how far the peer is, and sets traits_.streamed_bytes.
  void measure_distance(std::size_t bytes) {
    if (bytes >= Distance::kLeastBytes && distance_.is_due()) measure_distance();
  }
  [[gnu::noinline]] void measure_distance();
  [[nodiscard]] bool can_send_zcopy(const Source& source, std::size_t n) const;
  [[nodiscard]] bool can_be_read(const Source& source);
  // From this size on the peer reads the data that an operation sends, if it can. SIZE_MAX: never.
  [[nodiscard]] std::size_t read_bytes(MemoryUse use) const;
  // kMove: from the long buffer to the slot, if the committed message is short enough for that.
  enum class BeforeCommit : std::uint8_t { kNothing, kMove, kEndAccess };
  // False: nothing may be sent.
  [[nodiscard]] bool prepare_commit(std::size_t n);
  // Which side reads lent memory: the peer, which has it mapped, or the kernel for the peer.
  enum class Reader : std::uint8_t { kPeer, kKernel };
  std::size_t lend(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n,
                   Reader reader);

  struct Advertisement {
    std::uint64_t position = 0;
    std::uint64_t bytes = 0;
  };

  // Whether the peer has advertised a buffer for the next byte of the stream, which is then at advertised_.
  [[nodiscard]] bool find_advertisement();
  // Reads the next advertisement of the peer. False if there is none yet.
  [[nodiscard]] bool next_advertisement();
  // Counts lent memory in messages that the peer has consumed as done.
  void retire();
  std::size_t push_long(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n);
  void publish(const Fingerprint& fingerprint, std::size_t n, Payload payload);

  LinkState* link_;
  LongBuffers long_buffers_;
  bool extended_ = false;                   // all of these refer to the extension
  std::uint32_t long_ahead_ = kEagerAhead;  // messages whose payload is neither in the line nor in the slot
  std::uint32_t slots_ahead_ = 0;           // long messages, at most long_ahead_
  std::uint32_t activity_consumed_ = 0;     // value that activity() has last seen
  std::uint32_t retired_ = 0;               // messages checked by retire(); meaningful while lent_ > 0
  std::uint32_t lent_ = 0;                  // lent messages that the peer has not consumed
  Payload reserved_ = Payload::kInline;
  BeforeCommit before_commit_ = BeforeCommit::kNothing;
  std::uint32_t advertisements_seen_ = 0;
  Extension peers_extension_;        // the advertisements; empty: not looked for, or there is none yet
  Advertisement advertisement_;      // the last one read
  std::byte* advertised_ = nullptr;  // its memory, as mapped here
  // By message, modulo kSlots.
  struct LentMessages {
    std::array<bool, kSlots> is_lent{};
    std::array<std::uint64_t, kSlots> begin{};
  };
  std::unique_ptr<LentMessages> lent_messages_;  // null: none was lent. Most links of most communicators lend none
  struct Checked {
    const std::byte* begin = nullptr;
    std::size_t bytes = 0;
    bool readable = false;
  };
  std::array<Checked, 2> checked_;  // buffers of this operation that can_be_read() has checked
  std::uint32_t checks_ = 0;
  Distance distance_;
};

}  // namespace tutti::internal::transport::shm
