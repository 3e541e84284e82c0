#include "transport/verbs/recv.h"

#include <string>

namespace tutti::internal::transport::verbs {

RecvLane::View VerbsRecv::peek(std::size_t) {
  const Slot* const slot = connection_.arrived();
  if (slot == nullptr || !broken_.is_ok()) return {};
  // Once: the peer could still write to it.
  if (used_ == 0) header_ = slot->header;
  const MessageHeader& header = header_;
  const std::byte* data = slot->payload;
  if (header.placed != 0) {
    data = find_place(header.length);
  } else if (header.length > kSlotBytes) {
    data = nullptr;
  }
  if (data == nullptr || header.length <= used_) {
    broken_ = Status::internal("rank " + std::to_string(connection_.peer()) + ": verbs message of a wrong length");
    return {};
  }
  return {data + used_, header.length - used_, header.fingerprint};
}

const std::byte* VerbsRecv::find_place(std::size_t length) {
  const std::uint64_t begin = consumed_ - used_;
  for (; places_begin_ != places_end_; ++places_begin_) {
    const Place& place = places_[places_begin_ % kOffers];
    if (begin >= place.position + place.bytes) continue;  // passed
    if (begin < place.position || length > place.position + place.bytes - begin) return nullptr;
    return place.address + (begin - place.position);
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

void VerbsRecv::offer(std::uint64_t position, const Source& target, std::size_t offset, std::size_t n) {
  if (n < kOfferBytes) return;
  while (places_begin_ != places_end_) {
    const Place& oldest = places_[places_begin_ % kOffers];
    // A message that is partly consumed may still lie there.
    if (oldest.position + oldest.bytes > consumed_) break;
    ++places_begin_;
  }
  if (places_end_ - places_begin_ == kOffers) return;
  const memory::Keys* const keys = cache_.find(target);
  if (keys == nullptr) return;
  auto* const address = const_cast<std::byte*>(target.base + offset);
  if (!connection_.offer(position, n, address, *keys)) return;
  places_[places_end_++ % kOffers] = {position, n, address};
}

}  // namespace tutti::internal::transport::verbs
