#include "transport/shm/send.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/copy.h"
#include "base/log.h"
#include "transport/shm/link.h"

namespace tutti::internal::transport::shm {
namespace {

// Called before messages use new slots, from number `first` on, counted from 0. Fresh memory has sequence 0, which is
// also the sequence of the last message before numbers wrap around: in the first round its receiver would find it
// before it is sent. Its slot is the last one, which never gets sequence 1.
void mark_last_slot(const SlotRing& ring, std::uint32_t first) {
  if (UINT32_MAX - first < ring.slots()) ring[UINT32_MAX].sequence.store(1, std::memory_order_relaxed);
}

}  // namespace

ShmSendLane::ShmSendLane(LinkState* link) : link_(link), distance_(link->far) {
  lines_ = &link->lines;
  traits_ = shm_traits();
  if (link->far) traits_.streamed_bytes = Distance::kLeastBytes;
  if (link->same_process || link->pair != nullptr) traits_.least_zcopy_bytes = kZcopyBytes;
  begin_operation({});
}

std::size_t ShmSendLane::push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) {
  if (n > kLineBytes) [[unlikely]]
    return push_long(fingerprint, source, offset, n);
  if (!has_credit(lines_->ahead) && !extend()) [[unlikely]]
    return 0;
  lines_->send(fingerprint, source.base + offset, n);
  taken_ += n;
  return n;
}

// Separate from push(), so that the shortest messages save none of the caller's registers.
[[gnu::noinline]] std::size_t ShmSendLane::push_long(const Fingerprint& fingerprint, const Source& source,
                                                     std::size_t offset, std::size_t n) {
  if (n <= kShortMessageBytes) {
    if ((!extended_ && !extend()) || !has_credit(lines_->ahead)) return 0;
    lines_->send_in_slot(fingerprint, source.base + offset, n);
    taken_ += n;
    return n;
  }
  if (can_send_zcopy(source, n)) return lend(fingerprint, source, offset, n, Reader::kPeer);
  if (n >= traits_.zcopy_any_bytes && can_be_read(source)) return lend(fingerprint, source, offset, n, Reader::kKernel);
  if (!extended_ && !extend()) return 0;
  if (!has_credit_for(n)) return 0;
  const std::size_t size = std::min(n, kSlotBytes);
  measure_distance(size);
  const auto copy = size >= traits_.streamed_bytes ? &copy_streaming : &copy_bytes;
  std::byte* const target =
      size <= lines_->out.payload_bytes() ? payload_behind(lines_->next_out) : long_buffers_[lines_->published];
  copy(target, source.base + offset, size);
  publish(fingerprint, size, Payload::kRing);
  return size;
}

// Cold: runs once in the life of a lane. After that this side's eager slots stay unchanged until the link ends.
[[gnu::noinline]] bool ShmSendLane::extend() {
  if (extended_ || !has_credit(kEagerSlots) || !link_->extend()) return false;
  const Extension& extension = link_->extension;
  mark_last_slot(extension.slots(), lines_->published + 1);
  publish({}, 0, Payload::kInline);
  lines_->out = extension.slots();
  long_buffers_ = extension.long_buffers();
  lines_->ahead = lines_->out.slots();
  long_ahead_ = long_buffers_ ? kLongBuffers : lines_->ahead;
  slots_ahead_ = std::min(link_->slots_ahead, long_ahead_);
  lines_->next_out = &lines_->out[lines_->published];
  extended_ = true;
  return true;
}

// Also for oversubscribed ranks: the ranks of another processor are as far as the processor.
void ShmSendLane::measure_distance() {
  const bool was_far = distance_.far();
  link_->see_consumed(distance_.load(link_->theirs->consumed.value, link_->consumed_seen));
  if (distance_.far() == was_far) return;
  traits_.streamed_bytes = was_far ? SIZE_MAX : Distance::kLeastBytes;
  log::debug(fmt::format("shared memory: rank {} now runs {} a cache with this rank", link_->peer,
                         was_far ? "sharing" : "without"));
}

std::span<std::byte> ShmSendLane::reserve(std::size_t n) {
  if (!extended_ && (n > kLineBytes || !has_credit(lines_->ahead)) && !extend()) return {};
  if (!has_credit_for(n)) return {};
  before_commit_ = BeforeCommit::kNothing;
  if (n <= kLineBytes) {
    reserved_ = Payload::kInline;
    return {lines_->next_out->inline_bytes, n};
  }
  measure_distance(n);
  reserved_ = Payload::kRing;
  const std::size_t in_slot = lines_->out.payload_bytes();
  if (n <= in_slot || !long_buffers_) return {payload_behind(lines_->next_out), std::min(n, in_slot)};
  before_commit_ = BeforeCommit::kMove;
  return {long_buffers_[lines_->published], std::min(n, kSlotBytes)};
}

void ShmSendLane::commit(const Fingerprint& fingerprint, std::size_t n) {
  if (before_commit_ != BeforeCommit::kNothing && !prepare_commit(n)) return;
  publish(fingerprint, n, reserved_);
}

bool ShmSendLane::prepare_commit(std::size_t n) {
  // A peer that has revoked its memory reads no message either.
  if (before_commit_ == BeforeCommit::kEndAccess) return link_->end_access(Access::kWriting);
  // The receiver derives the position from the length.
  if (n <= lines_->out.payload_bytes()) {
    std::memcpy(payload_behind(lines_->next_out), long_buffers_[lines_->published], n);
  }
  return true;
}

std::span<std::byte> ShmSendLane::reserve_remote(std::size_t n) {
  if (!has_credit(long_ahead_) && !extend()) return {};
  if (!find_advertisement() || !link_->begin_access(Access::kWriting)) return {};
  reserved_ = Payload::kPut;
  before_commit_ = BeforeCommit::kEndAccess;
  const std::uint64_t used = taken_ - advertisement_.position;
  return {advertised_ + used, std::min<std::size_t>(n, advertisement_.bytes - used)};
}

std::uint64_t ShmSendLane::completed() {
  if (lent_ == 0) return taken_;
  link_->read_acknowledged();
  retire();
  if (lent_ == 0) return taken_;
  std::uint32_t oldest = retired_;
  while (!lent_messages_->is_lent[oldest % kSlots]) ++oldest;
  return lent_messages_->begin[oldest % kSlots];
}

bool ShmSendLane::activity() {
  const std::uint32_t consumed = link_->theirs->consumed.value.load(std::memory_order_acquire);
  link_->consumed_seen = consumed;
  return std::exchange(activity_consumed_, consumed) != consumed;
}

// Inline: part of every message, like publish().
inline bool ShmSendLane::has_credit(std::uint32_t messages) {
  if (lines_->published - lines_->acknowledged < messages) [[likely]]
    return true;
  link_->read_acknowledged();
  return lines_->published - lines_->acknowledged < messages;
}

bool ShmSendLane::can_send_zcopy(const Source& source, std::size_t n) const {
  if (link_->same_process) return n >= traits_.zcopy_any_bytes;
  return n >= traits_.zcopy_bytes && source.region != 0 && link_->pair != nullptr &&
         link_->put_regions.announce(source.region);
}

void ShmSendLane::begin_operation(MemoryUse use) {
  traits_.zcopy_bytes = traits_.zcopy_any_bytes = SIZE_MAX;
  checked_ = {};
  if (use.rewrites_input && lines_->own_processors) return;
  if (link_->pair != nullptr) traits_.zcopy_bytes = kZcopyBytes;
  if (link_->same_process) traits_.zcopy_any_bytes = kZcopyBytes;
  if (link_->cross_memory != nullptr && link_->cross_memory->peer_can_read()) traits_.zcopy_any_bytes = read_bytes(use);
}

std::size_t ShmSendLane::read_bytes(MemoryUse use) const {
  if (use.reading == Reading::kNever) return SIZE_MAX;
  if (link_->always_reads) return kFarCrossMemoryBytes;
  if (!lines_->own_processors) return use.read_in_turns ? kFarCrossMemoryBytes : SIZE_MAX;
  if (distance_.far()) return kFarCrossMemoryBytes;
  return use.reading == Reading::kAlways ? kCrossMemoryBytes : SIZE_MAX;
}

// The peer would learn too late that it cannot read memory that a device has mapped: so this side checks that, once per
// operation.
bool ShmSendLane::can_be_read(const Source& source) {
  const std::byte* const begin = source.base + source.begin;
  const std::size_t bytes = source.size - source.begin;
  for (const Checked& c : checked_) {
    if (c.begin == begin && c.bytes == bytes) return c.readable;
  }
  Checked& c = checked_[checks_++ % checked_.size()];
  c = {begin, bytes, CrossMemory::readable(begin, bytes)};
  return c.readable;
}

std::size_t ShmSendLane::lend(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n,
                              Reader reader) {
  if (!has_credit(long_ahead_) && !extend()) return 0;
  if (lent_messages_ == nullptr) lent_messages_ = std::make_unique<LentMessages>();
  const std::size_t size = std::min(n, kMostZcopyBytes);
  if (reader == Reader::kKernel) measure_distance(size);
  ZcopyDescriptor descriptor{source.region, source.region_offset + offset, size};
  if (reader == Reader::kKernel || link_->same_process)
    descriptor = {0, reinterpret_cast<std::uintptr_t>(source.base) + offset, size};
  std::memcpy(lines_->next_out->inline_bytes, &descriptor, sizeof descriptor);
  // Before the entry is reused, so that its earlier message is not counted twice.
  retire();
  ++lent_;
  lent_messages_->is_lent[lines_->published % kSlots] = true;
  lent_messages_->begin[lines_->published % kSlots] = taken_;
  publish(fingerprint, size, Payload::kLent);
  return size;
}

bool ShmSendLane::find_advertisement() {
  // At most one round of all lines to find the oldest, and one to skip those that the stream has passed.
  for (std::uint32_t looks = 0; advertised_ == nullptr || taken_ >= advertisement_.position + advertisement_.bytes;
       ++looks) {
    if (looks == 2 * kAdvertisements || !next_advertisement()) return false;
  }
  return taken_ >= advertisement_.position;
}

bool ShmSendLane::next_advertisement() {
  if (!peers_extension_) {
    if (link_->theirs->end.extension.load(std::memory_order_relaxed) == 0) return false;
    auto extension = link_->memory->peers_extension();
    if (!extension.is_ok()) {
      link_->fail(extension.status());
      return false;
    }
    peers_extension_ = *extension;
  }
  const AdvertisementLine& line = peers_extension_.advertisements()[advertisements_seen_ % kAdvertisements];
  const std::uint32_t sequence = line.sequence.load(std::memory_order_acquire);
  const auto ahead = static_cast<std::int32_t>(sequence - (advertisements_seen_ + 1));
  if (sequence == 0 || ahead < 0) return false;
  if (ahead % static_cast<std::int32_t>(kAdvertisements) != 0) {
    link_->fail_protocol("an advertisement has a wrong number");
    return false;
  }
  if (ahead > 0) {
    // This lane did not use older advertisements, and their lines have been reused.
    advertisements_seen_ = sequence - kAdvertisements;
    return true;
  }
  const Advertisement advertisement{line.position.load(std::memory_order_relaxed),
                                    line.bytes.load(std::memory_order_relaxed)};
  const ZcopyDescriptor descriptor{line.region.load(std::memory_order_relaxed),
                                   line.offset.load(std::memory_order_relaxed), advertisement.bytes};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (line.sequence.load(std::memory_order_relaxed) != sequence) return false;
  ++advertisements_seen_;
  advertisement_ = advertisement;
  advertised_ = nullptr;
  if (link_->same_process) {
    advertised_ = reinterpret_cast<std::byte*>(descriptor.offset);
  } else if (taken_ < advertisement.position + advertisement.bytes) {
    auto mapped = link_->put_regions.resolve(descriptor);
    if (!mapped.is_ok()) {
      link_->fail(mapped.status());
      return false;
    }
    advertised_ = *mapped;
  }
  return true;
}

void ShmSendLane::retire() {
  if (lent_ == 0) retired_ = lines_->acknowledged;
  for (; retired_ != lines_->acknowledged; ++retired_) {
    if (lent_messages_->is_lent[retired_ % kSlots]) --lent_;
    lent_messages_->is_lent[retired_ % kSlots] = false;
  }
}

inline void ShmSendLane::publish(const Fingerprint& fingerprint, std::size_t n, Payload payload) {
  lines_->publish(fingerprint, static_cast<std::uint32_t>(n) | static_cast<std::uint32_t>(payload) << kLengthBits);
  taken_ += n;
}

}  // namespace tutti::internal::transport::shm
