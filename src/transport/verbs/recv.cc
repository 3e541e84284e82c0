#include "transport/verbs/recv.h"

#include <fmt/core.h>

namespace tutti::internal::transport::verbs {

RecvLane::View VerbsRecv::peek(std::size_t) {
  const Slot* const slot = connection_.arrived();
  if (slot == nullptr || !broken_.is_ok()) return {};
  // Copied once, because the peer could still write to it.
  if (used_ == 0) header_ = slot->header;
  const MessageHeader& header = header_;
  const std::byte* data = slot->payload;
  if (header.direct_put != 0) {
    data = find_advertised(header.length);
  } else if (header.length > kSlotBytes) {
    data = nullptr;
  }
  if (data == nullptr || header.length <= used_) {
    broken_ =
        Status::internal(fmt::format("rank {}: protocol error: a verbs message of a wrong length", connection_.peer()));
    return {};
  }
  return {data + used_, header.length - used_, header.fingerprint};
}

const std::byte* VerbsRecv::find_advertised(std::size_t length) {
  const std::uint64_t begin = consumed_ - used_;
  for (; advertised_begin_ != advertised_end_; ++advertised_begin_) {
    const Advertised& advertised = advertised_[advertised_begin_ % kAdvertisements];
    if (begin >= advertised.position + advertised.bytes) continue;  // passed
    if (begin < advertised.position || length > advertised.position + advertised.bytes - begin) return nullptr;
    return advertised.address + (begin - advertised.position);
  }
  return nullptr;
}

bool VerbsRecv::consume(std::size_t n) {
  if (n == 0) return true;
  used_ += n;
  consumed_ += n;
  if (used_ < header_.length) return true;
  used_ = 0;
  connection_.consume();
  return true;
}

void VerbsRecv::advertise(std::uint64_t position, const Source& target, std::size_t offset, std::size_t n) {
  if (n < kAdvertiseBytes) return;
  while (advertised_begin_ != advertised_end_) {
    const Advertised& oldest = advertised_[advertised_begin_ % kAdvertisements];
    // A partly consumed message may still be there.
    if (oldest.position + oldest.bytes > consumed_) break;
    ++advertised_begin_;
  }
  if (advertised_end_ - advertised_begin_ == kAdvertisements) return;
  const memory::RdmaKeys* const keys = registrations_.find(target);
  if (keys == nullptr) return;
  auto* const address = const_cast<std::byte*>(target.base + offset);
  if (!connection_.advertise(position, n, address, *keys)) return;
  advertised_[advertised_end_++ % kAdvertisements] = {position, n, address};
}

}  // namespace tutti::internal::transport::verbs
