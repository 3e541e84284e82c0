#include "transport/shm/shm_link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "transport/shm/peer_regions.h"

namespace tutti::transport::shm {
namespace {

constexpr std::uint32_t kLengthBits = 30;
constexpr std::uint32_t kLengthMask = (1U << kLengthBits) - 1;

// memcpy of up to kInlineBytes without the call: two overlapping moves of a fixed size.
inline void copy_inline(std::byte* target, const std::byte* source, std::size_t n) {
  const auto both_ends = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
    std::array<std::byte, kSize> head;
    std::array<std::byte, kSize> tail;
    std::memcpy(head.data(), source, kSize);
    std::memcpy(tail.data(), source + n - kSize, kSize);
    std::memcpy(target, head.data(), kSize);
    std::memcpy(target + n - kSize, tail.data(), kSize);
  };
  if (n >= 32) {
    both_ends(std::integral_constant<std::size_t, 32>{});
  } else if (n >= 16) {
    both_ends(std::integral_constant<std::size_t, 16>{});
  } else if (n >= 8) {
    both_ends(std::integral_constant<std::size_t, 8>{});
  } else if (n >= 4) {
    both_ends(std::integral_constant<std::size_t, 4>{});
  } else {
    for (std::size_t i = 0; i < n; ++i) target[i] = source[i];
  }
}

// Hints that the peer will read this line next: it moves from this core's own caches to the shared one,
// where the peer finds it sooner. A no-op on processors without the instruction. Measured between two
// cores: 5 % at 8 bytes, 20 % from 256 bytes to 1 KiB; beyond, the hints cost more than they save. Where
// the peer may run on this very core they are wrong.
inline void demote_line(const void* line) {
#if defined(__x86_64__)
  asm volatile("cldemote %0" : : "m"(*static_cast<const char*>(line)) : "memory");
#else
  (void)line;
#endif
}
constexpr std::size_t kDemoteBytes = 1024;

LaneTraits shm_traits() {
  LaneTraits t;
  t.transport = "shm";
  t.slots = true;
  t.piece_bytes = kSlotBytes;
  t.capacity_bytes = kSlots * kSlotBytes;
  t.latency_us = 0.2;
  t.bandwidth_gbs = 12;
  return t;
}

constexpr std::int64_t kRevokedGraceNs = 2'000'000'000;

// What the two lanes of a link share.
struct LinkState {
  std::shared_ptr<Segment> segment;
  SegmentMemory* memory = nullptr;
  int side = 0;
  int peer = -1;
  int peer_doorbell = -1;
  bool same_process = false;
  bool demotes = false;            // small payloads, to the shared cache
  PeerRegions* regions = nullptr;  // null between threads
  std::uint32_t acknowledged = 0;  // slots of our lane that the peer has consumed, as last seen
  std::uint32_t received = 0;      // slots of the peer's lane that we have consumed
  bool let_go = false;             // of the peer's memory, which the peer has revoked
  std::int64_t let_go_ns = 0;      // when
  Status status;

  // Whether the peer has taken its memory back. Must be asked before each use of that memory; this rank
  // lets go of it with the answer.
  [[nodiscard]] bool peer_revoked() {
    if (memory->revoked[1 - side].value.load(std::memory_order_acquire) == 0) [[likely]]
      return false;
    if (!std::exchange(let_go, true)) let_go_ns = now_ns();
    memory->touching[side].value.store(0, std::memory_order_release);
    return true;
  }
  // Why the peer has failed is known better by the communicator, which hears of it: this is for the case
  // that it does not.
  [[nodiscard]] Status current_status() {
    if (status.is_ok() && let_go && now_ns() - let_go_ns > kRevokedGraceNs) {
      status = Status::remote("rank " + std::to_string(peer) + " has failed in this operation");
    }
    return status;
  }

  void wake_peer() const {
    // See doorbell.h: the sleeper's fence stands in for one between our store and this load.
    light_fence();
    if (memory->sleeping[1 - side].value.load(std::memory_order_relaxed) != 0) [[unlikely]]
      ring(peer_doorbell);
  }
  void see_acknowledged(std::uint32_t count) {
    if (static_cast<std::int32_t>(count - acknowledged) > 0) acknowledged = count;
  }
  void read_acknowledged() { see_acknowledged(memory->consumed[1 - side].value.load(std::memory_order_acquire)); }
};

class ShmSendLane final : public SendLane {
 public:
  explicit ShmSendLane(LinkState* link) : link_(link), slots_(link->memory->lane[link->side]) {
    traits_ = shm_traits();
    if (link->same_process) traits_.lend_any_bytes = kLendBytes;
    if (link->regions != nullptr) traits_.lend_bytes = kLendBytes;
  }

  std::size_t push(const Fingerprint& print, const Source& source, std::size_t offset, std::size_t n) override {
    if (n > kInlineBytes && n >= kLendBytes && can_lend(source)) return lend(print, source, offset, n);
    if (!has_room()) return 0;
    Slot& slot = slots_[next_ % kSlots];
    if (n <= kInlineBytes) {
      copy_inline(slot.header.inline_bytes, source.base + offset, n);
      publish(print, n, Payload::kInline);
      return n;
    }
    const std::size_t size = std::min(n, kSlotBytes);
    std::memcpy(slot.payload, source.base + offset, size);
    if (link_->demotes && size <= kDemoteBytes) {
      for (std::size_t i = 0; i < size; i += kCacheLine) demote_line(slot.payload + i);
    }
    publish(print, size, Payload::kSlot);
    return size;
  }

  std::span<std::byte> reserve(std::size_t n) override {
    if (!has_room()) return {};
    Slot& slot = slots_[next_ % kSlots];
    reserved_ = n <= kInlineBytes ? Payload::kInline : Payload::kSlot;
    if (reserved_ == Payload::kInline) return {slot.header.inline_bytes, n};
    return {slot.payload, std::min(n, kSlotBytes)};
  }

  void commit(const Fingerprint& print, std::size_t n) override { publish(print, n, reserved_); }

  std::span<std::byte> reserve_at_peer(std::size_t n) override {
    if (!has_room() || !find_offer() || link_->peer_revoked()) return {};
    reserved_ = Payload::kPlaced;
    const std::uint64_t used = taken_ - offer_.position;
    return {offered_ + used, std::min<std::size_t>(n, offer_.bytes - used)};
  }

  std::uint64_t completed() override {
    if (loans_ == 0) return taken_;
    link_->read_acknowledged();
    retire();
    if (loans_ == 0) return taken_;
    std::uint32_t oldest = retired_;
    while (!is_loan_[oldest % kSlots]) ++oldest;
    return loan_begin_[oldest % kSlots];
  }

  Status status() override { return link_->current_status(); }

  // Whether the peer has consumed something since this was last asked.
  [[nodiscard]] bool news() {
    const std::uint32_t consumed = link_->memory->consumed[1 - link_->side].value.load(std::memory_order_acquire);
    return std::exchange(news_consumed_, consumed) != consumed;
  }

 private:
  [[nodiscard]] bool has_room() {
    if (next_ - link_->acknowledged < kSlots) [[likely]]
      return true;
    link_->read_acknowledged();
    return next_ - link_->acknowledged < kSlots;
  }

  [[nodiscard]] bool can_lend(const Source& source) const {
    if (link_->same_process) return true;
    return source.region != 0 && link_->regions != nullptr && link_->regions->announce(source.region);
  }

  std::size_t lend(const Fingerprint& print, const Source& source, std::size_t offset, std::size_t n) {
    if (!has_room()) return 0;
    const std::size_t size = std::min(n, kLoanBytes);
    Loan loan{source.region, source.region_offset + offset, size};
    if (link_->same_process) loan = {0, reinterpret_cast<std::uintptr_t>(source.base) + offset, size};
    std::memcpy(slots_[next_ % kSlots].header.inline_bytes, &loan, sizeof loan);
    // Before a slot is used again, so that a loan which went through it is not counted twice.
    retire();
    ++loans_;
    is_loan_[next_ % kSlots] = true;
    loan_begin_[next_ % kSlots] = taken_;
    publish(print, size, Payload::kLent);
    return size;
  }

  struct Offer {
    std::uint64_t position = 0;
    std::uint64_t bytes = 0;
  };

  // Whether the peer has offered a place for the next byte of the stream; it is then offered_.
  [[nodiscard]] bool find_offer() {
    while (offered_ == nullptr || taken_ >= offer_.position + offer_.bytes) {
      if (!next_offer()) return false;
    }
    return taken_ >= offer_.position;
  }

  // Reads the next offer of the peer. False if there is none yet.
  [[nodiscard]] bool next_offer() {
    const OfferLine& line = link_->memory->offers[1 - link_->side][offers_seen_ % kOffers];
    const std::uint32_t sequence = line.sequence.load(std::memory_order_acquire);
    const auto ahead = static_cast<std::int32_t>(sequence - (offers_seen_ + 1));
    if (sequence == 0 || ahead < 0) return false;
    if (ahead > 0) {
      // This lane made no use of older offers, and their lines have been used again.
      offers_seen_ = sequence - kOffers;
      return true;
    }
    const Offer offer{line.position.load(std::memory_order_relaxed), line.bytes.load(std::memory_order_relaxed)};
    const Loan place{line.region.load(std::memory_order_relaxed), line.offset.load(std::memory_order_relaxed),
                     offer.bytes};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (line.sequence.load(std::memory_order_relaxed) != sequence) return false;
    ++offers_seen_;
    offer_ = offer;
    offered_ = nullptr;
    if (link_->same_process) {
      offered_ = reinterpret_cast<std::byte*>(place.offset);
    } else if (taken_ < offer.position + offer.bytes) {
      auto mapped = link_->regions->resolve(place);
      if (!mapped.is_ok()) return false;
      offered_ = *mapped;
    }
    return true;
  }

  // Counts the loans among the messages that the peer has consumed as returned.
  void retire() {
    if (loans_ == 0) retired_ = link_->acknowledged;
    for (; retired_ != link_->acknowledged; ++retired_) {
      if (is_loan_[retired_ % kSlots]) --loans_;
      is_loan_[retired_ % kSlots] = false;
    }
  }

  void publish(const Fingerprint& print, std::size_t n, Payload payload) {
    SlotHeader& h = slots_[next_ % kSlots].header;
    h.length_and_payload = static_cast<std::uint32_t>(n) | static_cast<std::uint32_t>(payload) << kLengthBits;
    h.acknowledged = link_->received;
    h.print = print;
    ++next_;
    h.sequence.store(next_, std::memory_order_release);
    if (link_->demotes) demote_line(&h);
    taken_ += n;
    link_->wake_peer();
  }

  LinkState* link_;
  Slot* slots_;
  std::uint32_t next_ = 0;           // messages published
  std::uint32_t news_consumed_ = 0;  // what news() has reported
  std::uint32_t retired_ = 0;        // messages looked at by retire(); meaningful while loans_ > 0
  std::uint32_t loans_ = 0;          // outstanding
  Payload reserved_ = Payload::kInline;
  std::uint32_t offers_seen_ = 0;
  Offer offer_;                   // the latest of them
  std::byte* offered_ = nullptr;  // its place, as mapped here
  std::array<bool, kSlots> is_loan_{};
  std::array<std::uint64_t, kSlots> loan_begin_{};
};

class ShmRecvLane final : public RecvLane {
 public:
  explicit ShmRecvLane(LinkState* link) : link_(link), slots_(link->memory->lane[1 - link->side]) {
    traits_ = shm_traits();
    traits_.takes_offers = true;
  }

  void offer(std::uint64_t position, const Source& target, std::size_t offset, std::size_t n) override {
    drop_used_offers();
    if (offers_made_ - offers_used_ == kOffers) return;
    Loan place{0, reinterpret_cast<std::uintptr_t>(target.base) + offset, n};
    if (!link_->same_process) {
      if (target.region == 0 || link_->regions == nullptr || !link_->regions->announce(target.region)) return;
      place = {target.region, target.region_offset + offset, n};
    }
    own_offers_[offers_made_ % kOffers] = {position, n, target.base + offset};
    OfferLine& line = link_->memory->offers[link_->side][offers_made_ % kOffers];
    line.sequence.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    line.position.store(position, std::memory_order_relaxed);
    line.region.store(place.region, std::memory_order_relaxed);
    line.offset.store(place.offset, std::memory_order_relaxed);
    line.bytes.store(n, std::memory_order_relaxed);
    line.sequence.store(++offers_made_, std::memory_order_release);
  }

  View peek(std::size_t /*want*/) override {
    const SlotHeader& h = slots_[link_->received % kSlots].header;
    if (h.sequence.load(std::memory_order_acquire) != link_->received + 1) return {};
    if (size_ == 0) {
      open(h);
      if (data_ == nullptr) return {};
    }
    if (borrows_ && link_->peer_revoked()) return {};
    return {data_ + offset_, size_ - offset_, h.print};
  }

  void consume(std::size_t n) override {
    offset_ += n;
    consumed_ += n;
    if (offset_ < size_ || n == 0) return;
    offset_ = 0;
    size_ = 0;
    ++link_->received;
    link_->memory->consumed[link_->side].value.store(link_->received, std::memory_order_release);
    link_->wake_peer();
  }

  std::size_t pull(std::byte* /*destination*/, std::size_t /*n*/, Fingerprint* /*print*/) override { return 0; }

  Status status() override { return link_->current_status(); }

  // Whether a message lies here that this has not reported yet, opened or not: whoever is about to sleep
  // looks at each once more, and a lane that waits for others does not keep the rank awake.
  [[nodiscard]] bool news() {
    const std::uint32_t next = link_->received + 1;
    if (slots_[link_->received % kSlots].header.sequence.load(std::memory_order_acquire) != next) return false;
    return std::exchange(news_message_, next) != next;
  }

 private:
  // A new message: where its bytes are.
  void open(const SlotHeader& h) {
    link_->see_acknowledged(h.acknowledged);
    size_ = h.length_and_payload & kLengthMask;
    borrows_ = false;
    switch (static_cast<Payload>(h.length_and_payload >> kLengthBits)) {
      case Payload::kInline: data_ = h.inline_bytes; return;
      case Payload::kSlot: data_ = slots_[link_->received % kSlots].payload; return;
      case Payload::kLent: data_ = borrowed(h); return;
      case Payload::kPlaced: data_ = placed(); return;
    }
    fail(Status::internal("a damaged message"));
  }

  const std::byte* borrowed(const SlotHeader& h) {
    borrows_ = true;
    Loan loan{};
    std::memcpy(&loan, h.inline_bytes, sizeof loan);
    if (link_->same_process) return reinterpret_cast<const std::byte*>(loan.offset);
    auto place = link_->regions->resolve(loan);
    if (place.is_ok()) return *place;
    fail(place.status());
    return nullptr;
  }

  void drop_used_offers() {
    while (offers_used_ != offers_made_) {
      const OwnOffer& oldest = own_offers_[offers_used_ % kOffers];
      if (oldest.position + oldest.bytes > consumed_) return;
      ++offers_used_;
    }
  }

  const std::byte* placed() {
    drop_used_offers();
    const OwnOffer& oldest = own_offers_[offers_used_ % kOffers];
    if (offers_used_ != offers_made_ && oldest.position <= consumed_)
      return oldest.place + (consumed_ - oldest.position);
    fail(Status::internal("a message in a place that was not offered"));
    return nullptr;
  }

  void fail(const Status& status) {
    size_ = 0;
    data_ = nullptr;
    if (link_->status.is_ok())
      link_->status = status.with_context("shared memory of rank " + std::to_string(link_->peer));
  }

  LinkState* link_;
  Slot* slots_;
  const std::byte* data_ = nullptr;  // of the message that is open
  std::size_t size_ = 0;             // of that message; 0: none is open
  std::size_t offset_ = 0;           // consumed of it
  bool borrows_ = false;             // it lies in the peer's memory
  std::uint32_t news_message_ = 0;   // what news() has reported
  struct OwnOffer {
    std::uint64_t position;
    std::uint64_t bytes;
    const std::byte* place;
  };
  std::array<OwnOffer, kOffers> own_offers_{};
  std::uint32_t offers_made_ = 0;
  std::uint32_t offers_used_ = 0;  // by the stream having passed them
};

class ShmLink final : public Link {
 public:
  ShmLink(std::shared_ptr<Segment> segment, int side, UniqueFd peer_doorbell, int borrowed_doorbell, bool same_process,
          std::unique_ptr<PeerRegions> regions, const LinkOptions& options)
      : regions_(std::move(regions)),
        owned_doorbell_(std::move(peer_doorbell)),
        state_(make_state(std::move(segment), side, owned_doorbell_.valid() ? owned_doorbell_.get() : borrowed_doorbell,
                          same_process, regions_.get(), options)),
        send_(&state_),
        recv_(&state_) {}

  SendLane& send() override { return send_; }
  RecvLane& recv() override { return recv_; }

  bool arm() override {
    state_.memory->sleeping[state_.side].value.store(1, std::memory_order_seq_cst);
    const bool sent = send_.news();
    const bool received = recv_.news();
    return !sent && !received;
  }
  void disarm() override { state_.memory->sleeping[state_.side].value.store(0, std::memory_order_relaxed); }
  [[nodiscard]] int wait_fd() const override { return -1; }

  // Sequentially consistent with revoke() and revoked() of the peer: either it sees that this side may touch
  // its memory, or this side sees that it must not.
  void enter() override {
    state_.memory->touching[state_.side].value.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    answer();
    if (regions_ != nullptr) regions_->tidy();
  }
  void leave() override { state_.memory->touching[state_.side].value.store(0, std::memory_order_release); }
  void revoke() override {
    state_.memory->revoked[state_.side].value.store(1, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    ring(state_.peer_doorbell);
  }
  [[nodiscard]] bool revoked() override {
    return state_.memory->touching[1 - state_.side].value.load(std::memory_order_seq_cst) == 0 ||
           (regions_ != nullptr && regions_->peer_gone());
  }
  void answer() override { static_cast<void>(state_.peer_revoked()); }

 private:
  static LinkState make_state(std::shared_ptr<Segment> segment, int side, int doorbell, bool same_process,
                              PeerRegions* regions, const LinkOptions& options) {
    LinkState s;
    s.memory = &segment->memory();
    s.segment = std::move(segment);
    s.side = side;
    s.peer = options.peer;
    s.peer_doorbell = doorbell;
    s.same_process = same_process;
    s.demotes = options.own_processor;
    s.regions = regions;
    return s;
  }

  std::unique_ptr<PeerRegions> regions_;
  UniqueFd owned_doorbell_;
  LinkState state_;
  ShmSendLane send_;
  ShmRecvLane recv_;
};

}  // namespace

std::unique_ptr<Link> make_shared_link(std::shared_ptr<Segment> segment, int side, UniqueFd peer_doorbell,
                                       UniqueFd socket, bool same_process, const LinkOptions& options) {
  SegmentMemory& memory = segment->memory();
  auto regions = std::make_unique<PeerRegions>(std::move(socket), &memory.announced[side].value,
                                               &memory.announced[1 - side].value);
  return std::make_unique<ShmLink>(std::move(segment), side, std::move(peer_doorbell), -1, same_process,
                                   std::move(regions), options);
}

std::unique_ptr<Link> make_private_link(std::shared_ptr<Segment> segment, int side, int peer_doorbell_fd,
                                        const LinkOptions& options) {
  return std::make_unique<ShmLink>(std::move(segment), side, UniqueFd(), peer_doorbell_fd, true, nullptr, options);
}

}  // namespace tutti::transport::shm
