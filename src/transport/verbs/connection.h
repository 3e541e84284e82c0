// The connection of two ranks: queue pairs, inbox and outbox, and the counters of messages, credits and advertisements.
// The two lanes of a link are views of it.
//
// Leave notice. A rank that leaves sends the number of its consumed messages over the socket, which is closed with the
// link. The last acknowledgement of its device may be lost, and the device that would repeat it is then closed.
//
// A slot at the receiver is free when the receiver has consumed the message (credits). The outbox's slot here is free
// when the write has completed as well. If the payload comes from user memory, the message uses that memory until the
// write has completed.
//
// Threads: as the link (transport.h); setting up by the thread that makes the link.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "memory/registration.h"
#include "os/unique_fd.h"
#include "transport/transport.h"
#include "transport/verbs/completions.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/wire.h"

namespace tutti::internal::transport::verbs {

// One of the pair's rails: a local port and its counterpart at the peer.
struct RailState {
  Device* device = nullptr;
  std::size_t device_index = 0;  // in the RDMA context: which of the memory::RdmaKeys
  CompletionQueue* completions = nullptr;
  int entries = 0;  // of it, reserved
  Owned<ibv_mr> inbox;
  Owned<ibv_mr> outbox;
  std::uint64_t peer_inbox = 0;  // its address at the peer
  std::uint32_t peer_rkey = 0;   // of the peer's inbox, on this rail
};

// Memory for registration, which both ranks' devices access: page-aligned, zero-filled, private to this process.
template <class T>
class PinnedPages {
 public:
  static Result<PinnedPages> create();
  PinnedPages(PinnedPages&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
  PinnedPages& operator=(PinnedPages&&) = delete;
  ~PinnedPages();
  T* operator->() const { return memory_; }
  T& operator*() const { return *memory_; }

 private:
  explicit PinnedPages(T* memory) : memory_(memory) {}
  T* memory_;
};

// Bytes of user memory, registered.
struct Registered {
  const std::byte* address = nullptr;
  const memory::RdmaKeys* keys = nullptr;  // null: not registered
};

class Connection final : public CompletionTaker {
 public:
  // `completions` of its communicator outlive it.
  Connection(int peer, PinnedPages<Inbox> inbox, PinnedPages<Outbox> outbox, Completions& completions);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // -- setting up, in this order: rails, queue pairs (to be connected by the caller), keep().
  Status add_rail(Device& device, std::size_t device_index, int queue_pairs);
  // `queue_pairs`: per rail. `options` live as long as the connection.
  void create_pairs(int queue_pairs, const Options& options);
  [[nodiscard]] std::vector<RailState>& rails() { return rails_; }
  [[nodiscard]] std::vector<QueuePair>& pairs() { return pairs_; }
  [[nodiscard]] std::size_t rail_of(std::size_t pair) const { return pair % rails_.size(); }
  [[nodiscard]] Inbox& inbox() { return *inbox_; }
  // Objects that live as long as the link: `owner` of devices, completions and options; `connection`, which owns queue
  // pairs, or null.
  Status keep(UniqueFd socket, std::shared_ptr<void> owner, std::shared_ptr<void> connection);
  // Whether the peer has sent a message on every queue pair. Before that, the side that must not send first sends
  // nothing.
  [[nodiscard]] bool has_heard_all_pairs() const {
    return std::all_of(heard_.begin(), heard_.begin() + static_cast<std::ptrdiff_t>(pairs_.size()),
                       [](bool heard) { return heard; });
  }
  // Sends the first message on every queue pair: credits that say that nothing has been consumed yet.
  void send_first_credits();

  [[nodiscard]] int peer() const { return peer_; }

  // -- sending
  // Whether the next message has a slot there and here. Looks at completions if it seems not.
  bool may_send();
  // The room for its payload if that does not come from user memory.
  [[nodiscard]] std::byte* staging() { return outbox_->slots[next_ % kSlots].payload; }
  [[nodiscard]] bool is_inline(std::size_t payload_bytes) const {
    return pairs_[0].is_inline(sizeof(MessageHeader) + payload_bytes);
  }
  // Sends message next(): n bytes of `payload`, or of staging() if payload.keys is null; to their position in
  // `advertisement` if that is not null. REQUIRES: may_send().
  void send(const Fingerprint& fingerprint, const Registered& payload, std::size_t n,
            const AdvertisementLine* advertisement);
  [[nodiscard]] std::uint32_t next() const { return next_; }
  // Whether a write of the message in this outbox slot has not completed.
  [[nodiscard]] bool in_flight(std::uint32_t slot) const { return in_flight_[slot % kSlots]; }
  // The advertisement that holds the next byte to be sent; null if there is none.
  const AdvertisementLine* find_advertisement();

  // -- receiving
  // The message at the head, or null.
  const Slot* arrived();
  // Releases the message at the head.
  void consume();
  // Advertises a buffer to the sender. False if that is not possible now.
  bool advertise(std::uint64_t position, std::uint64_t bytes, const std::byte* address, const memory::RdmaKeys& keys);

  // -- both
  // Takes what has completed, for the other links of the communicator as well.
  void poll();
  // Checks for errors that completions do not show: the end of the peer, errors of the device. If a peer has left after
  // it got everything that was sent to it, that is an error only for a rank that still waits for data from it.
  Status check(bool receives);
  [[nodiscard]] const Status& status() const { return status_; }
  bool arm();
  [[nodiscard]] Completions& completions() { return completions_; }
  // Everything sent is in the peer's memory, or never will be.
  bool flushed();
  // This rank sends and needs nothing more. Once.
  void send_leave_notice();
  // Afterwards the devices access no memory for this link.
  void close(const Status& why) noexcept;

 private:
  // After this many consumed messages, the credits are sent even without a message that would carry them.
  static constexpr std::uint32_t kCreditAfter = kSlots / 2;
  // Work requests of the longest message: payload, header, announcement.
  static constexpr std::uint32_t kPostsPerSend = 3;

  QueuePair& pair_for(std::size_t payload_bytes);
  void announce_credit();
  void take(const ibv_wc& completion, const WorkId& id) override;
  void read_socket() override { (void)peer_left(); }
  void handle_immediate(std::uint32_t word);
  void fail(Status status);
  void check_posted(int error, const char* what);
  // Whether the peer has left or died; processes its leave notice.
  bool peer_left();
  // Whether a peer that has left got everything that was sent to it, by its leave notice.
  bool has_all() { return peer_left() && got_leave_notice_ && acknowledged_ == next_; }

  const int peer_;
  std::shared_ptr<void> owner_;  // of devices and completions
  UniqueFd socket_;
  Completions& completions_;
  const std::uint32_t taker_;  // of them
  PinnedPages<Inbox> inbox_;
  PinnedPages<Outbox> outbox_;
  std::vector<RailState> rails_;
  std::shared_ptr<void> connection_;
  std::vector<QueuePair> pairs_;  // pair i on rail i modulo their number
  Status status_;
  bool closed_ = false;

  // Sending.
  std::uint32_t next_ = 0;
  std::uint64_t sent_bytes_ = 0;
  std::uint32_t acknowledged_ = 0;  // messages that the peer has consumed, by its last credits
  std::array<bool, kSlots> in_flight_{};
  std::array<AdvertisementLine, kAdvertisementLines>
      advertisements_{};  // the peer's, copied; number modulo kAdvertisementLines
  std::uint32_t advertisements_begin_ = 0;
  std::uint32_t advertisements_end_ = 0;

  // Receiving.
  std::uint32_t received_ = 0;  // messages consumed
  std::uint32_t credited_ = 0;  // of them the peer has been told
  std::array<bool, kSlots> arrived_{};
  std::uint32_t own_advertisements_ = 0;
  std::array<bool, kAdvertisementLines> advertisement_in_flight_{};

  std::array<bool, kMaxPairs> heard_{};  // by queue pair
  bool peer_left_ = false;
  std::int64_t peer_left_ns_ = 0;
  bool got_leave_notice_ = false;  // the peer will consume nothing more
  bool sent_leave_notice_ = false;
  Status broken_;  // the error of the first failed request
  std::int64_t broken_ns_ = 0;
};

}  // namespace tutti::internal::transport::verbs
