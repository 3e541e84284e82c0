#include "transport/shm/recv.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/shm/link.h"

namespace tutti::internal::transport::shm {
namespace {

// How much of another process's memory peek() reads at once.
constexpr std::size_t kBounceBytes = 32 * 1024;

}  // namespace

ShmRecvLane::ShmRecvLane(LinkState* link) : link_(link) {
  lines_ = &link->lines;
  traits_ = shm_traits();
  traits_.takes_advertisements = true;
}

void ShmRecvLane::advertise(std::uint64_t position, const Source& target, std::size_t offset, std::size_t n) {
  drop_used_advertisements();
  if (advertisements_made_ - advertisements_used_ == kAdvertisements) return;
  ZcopyDescriptor descriptor{0, reinterpret_cast<std::uintptr_t>(target.base) + offset, n};
  if (!link_->same_process) {
    if (target.region == 0 || link_->pair == nullptr || !link_->regions.announce(target.region)) return;
    descriptor = {target.region, target.region_offset + offset, n};
  }
  if (!link_->extend()) return;
  own_advertisements_[advertisements_made_ % kAdvertisements] = {position, n, target.base + offset};
  AdvertisementLine& line = link_->extension.advertisements()[advertisements_made_ % kAdvertisements];
  // See AdvertisementLine for the order.
  line.sequence.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  line.position.store(position, std::memory_order_relaxed);
  line.region.store(descriptor.region, std::memory_order_relaxed);
  line.offset.store(descriptor.offset, std::memory_order_relaxed);
  line.bytes.store(n, std::memory_order_relaxed);
  line.sequence.store(++advertisements_made_, std::memory_order_release);
}

RecvLane::View ShmRecvLane::peek(std::size_t /*want*/) {
  const HeaderLine& h = *lines_->next_in;
  if (!lines_->arrived()) return {};
  if (lines_->open_bytes == 0) {
    open(h);
    if (data_ == nullptr) [[unlikely]]
      return std::exchange(moved_, false) ? peek(SIZE_MAX) : View();
  }
  if (in_peer_memory_) return peek_in_peer(h);
  return {data_ + offset_, lines_->open_bytes - offset_, h.fingerprint};
}

bool ShmRecvLane::consume(std::size_t n) {
  if (n == 0) return true;
  if (in_peer_memory_ && mapped_ && !link_->end_access(Access::kReading)) return false;
  pass(n);
  return true;
}

// Inline: part of every message.
inline void ShmRecvLane::pass(std::size_t n) {
  offset_ += n;
  consumed_ += n;
  if (offset_ < lines_->open_bytes) return;
  offset_ = 0;
  lines_->consumed_one();
}

RecvLane::View ShmRecvLane::peek_in_peer(const HeaderLine& h) {
  if (mapped_) {
    if (!link_->begin_access(Access::kReading)) return {};
    return {data_ + offset_, lines_->open_bytes - offset_, h.fingerprint};
  }
  const std::size_t left = lines_->open_bytes - offset_;
  // If the end of the bytes read would cut an element, reads on so that it is complete.
  if (bounce_end_ < offset_ + std::min(left, kLeastViewBytes)) {
    if (bounce_ == nullptr) bounce_ = std::make_unique_for_overwrite<std::byte[]>(kBounceBytes);
    bounce_begin_ = bounce_end_ = offset_;
    const std::size_t n = std::min(left, kBounceBytes);
    if (!read_peer(bounce_.get(), n, Failing::kLast)) return {};
    bounce_end_ += n;
  }
  return {bounce_.get() + (offset_ - bounce_begin_), bounce_end_ - offset_, h.fingerprint};
}

std::size_t ShmRecvLane::pull(std::byte* destination, std::size_t n, Fingerprint* fingerprint) {
  const HeaderLine& h = *lines_->next_in;
  if (!lines_->arrived()) return 0;
  if (lines_->open_bytes == 0) {
    open(h);
    if (data_ == nullptr) [[unlikely]]
      return std::exchange(moved_, false) ? pull(destination, n, fingerprint) : 0;
  }
  n = std::min(n, lines_->open_bytes - offset_);
  // If the kernel cannot write to `destination`, the caller writes it: peek() reads to another buffer.
  if (!in_peer_memory_ || mapped_ || !read_peer(destination, n, Failing::kFirst)) return 0;
  *fingerprint = h.fingerprint;
  pass(n);
  return n;
}

bool ShmRecvLane::read_peer(std::byte* target, std::size_t n, Failing failing) {
  if (!link_->begin_access(Access::kReading)) return false;
  const int error = link_->cross_memory->read(target, peer_address_ + offset_, n);
  if (!link_->end_access(Access::kReading)) return false;
  if (error == 0) return true;
  // Another process may have the peer's pid by now, and no memory at that address.
  if (error == ESRCH || link_->peer_end.hung_up_now()) {
    link_->lose();  // the communicator reports the reason
  } else if (failing == Failing::kLast) {
    fail(Status::remote(
        fmt::format("its memory can no longer be read ({}): a process keeps the buffers of a call until the call "
                    "returns, and the permission to be read as long as the communicator",
                    std::strerror(error))));
  }
  return false;
}

void ShmRecvLane::begin_operation(MemoryUse use) {
  traits_.pulls = use.only_moves && link_->cross_memory != nullptr && link_->cross_memory->can_read();
  const bool in_turns = !lines_->own_processors && !link_->always_reads;
  const bool likely = was_left_ && use.reading != Reading::kNever && (!in_turns || use.read_in_turns);
  traits_.zcopy_any_bytes = traits_.pulls && likely ? kFarCrossMemoryBytes : SIZE_MAX;
}

bool ShmRecvLane::activity() {
  const std::uint32_t next = lines_->received + 1;
  if (lines_->next_in->sequence.load(std::memory_order_acquire) != next) return false;
  return std::exchange(activity_message_, next) != next;
}

// Inline: part of every message. The length is read only once, because the peer may change it.
inline void ShmRecvLane::open(const HeaderLine& h) {
  link_->see_acknowledged(h.acknowledged);
  const std::uint32_t word = *const_cast<const volatile std::uint32_t*>(&h.length_and_payload);
  lines_->open_bytes = word & kLengthMask;
  in_peer_memory_ = false;
  const auto payload = static_cast<Payload>(word >> kLengthBits);
  const bool is_inline = payload == Payload::kInline && lines_->open_bytes - 1 < kLineBytes;
  data_ = is_inline ? h.inline_bytes : open_elsewhere(h, payload);
}

inline const std::byte* ShmRecvLane::open_in_ring(const HeaderLine& h) {
  const std::size_t in_slot = lines_->in.payload_bytes();
  if (lines_->open_bytes - 1 < in_slot) [[likely]]
    return payload_behind(&h);
  return long_buffers_ ? check(long_buffers_[lines_->received], kSlotBytes) : fail_length(in_slot);
}

const std::byte* ShmRecvLane::open_elsewhere(const HeaderLine& h, Payload payload) {
  if (payload == Payload::kRing) return open_in_ring(h);
  if (payload == Payload::kLent) return open_lent(h);
  if (payload == Payload::kPut) return open_put();
  return lines_->open_bytes == 0 ? follow_extension() : fail_length(kLineBytes);
}

const std::byte* ShmRecvLane::follow_extension() {
  if (extended_) {
    fail(Status::remote("protocol error: a second extension"));
    return nullptr;
  }
  auto peers = link_->memory->peers_extension();
  if (!peers.is_ok()) {
    fail(peers.status());
    return nullptr;
  }
  const Extension extension = *peers;
  extended_ = moved_ = true;
  lines_->in = extension.slots();
  long_buffers_ = extension.long_buffers();
  offset_ = lines_->open_bytes = 0;
  pass(0);
  return nullptr;
}

inline const std::byte* ShmRecvLane::check(const std::byte* data, std::uint64_t most) {
  if (lines_->open_bytes - 1 < most) [[likely]]
    return data;
  return fail_length(most);
}

const std::byte* ShmRecvLane::fail_length(std::uint64_t most) {
  fail(Status::remote(
      fmt::format("protocol error: a message of {} bytes where {} bytes fit", lines_->open_bytes, most)));
  return nullptr;
}

const std::byte* ShmRecvLane::open_lent(const HeaderLine& h) {
  ZcopyDescriptor descriptor{};
  std::memcpy(&descriptor, h.inline_bytes, sizeof descriptor);
  if (descriptor.region == 0 && !link_->same_process) return open_cross_memory(h, descriptor);
  in_peer_memory_ = mapped_ = true;
  if (link_->same_process) return check(reinterpret_cast<const std::byte*>(descriptor.offset), descriptor.bytes);
  auto mapped = link_->regions.resolve(descriptor);
  if (mapped.is_ok()) return check(*mapped, descriptor.bytes);
  fail(mapped.status());
  return nullptr;
}

const std::byte* ShmRecvLane::open_cross_memory(const HeaderLine& h, const ZcopyDescriptor& descriptor) {
  if (!link_->status.is_ok()) {  // the reason may be that this very message could not be read
    lines_->open_bytes = 0;
    return nullptr;
  }
  if (link_->cross_memory == nullptr || !link_->cross_memory->can_read()) {
    fail(Status::remote("protocol error: a message in memory that this side cannot read"));
    return nullptr;
  }
  in_peer_memory_ = was_left_ = true;
  mapped_ = false;
  bounce_begin_ = bounce_end_ = 0;
  peer_address_ = descriptor.offset;
  return check(h.inline_bytes, descriptor.bytes);  // any non-null pointer: read_peer() reads the data
}

void ShmRecvLane::drop_used_advertisements() {
  while (advertisements_used_ != advertisements_made_) {
    const OwnAdvertisement& oldest = own_advertisements_[advertisements_used_ % kAdvertisements];
    if (oldest.position + oldest.bytes > consumed_) return;
    ++advertisements_used_;
  }
}

const std::byte* ShmRecvLane::open_put() {
  drop_used_advertisements();
  const OwnAdvertisement& oldest = own_advertisements_[advertisements_used_ % kAdvertisements];
  if (advertisements_used_ != advertisements_made_ && oldest.position <= consumed_) {
    const std::uint64_t used = consumed_ - oldest.position;
    return check(oldest.target + used, oldest.bytes - used);
  }
  fail(Status::remote("protocol error: a put without an advertisement"));
  return nullptr;
}

void ShmRecvLane::fail(const Status& status) {
  lines_->open_bytes = 0;
  offset_ = 0;
  data_ = nullptr;
  link_->fail(status);
}

}  // namespace tutti::internal::transport::shm
