#include "transport/verbs/send.h"

#include <algorithm>
#include <cstring>

namespace tutti::internal::transport::verbs {

std::size_t VerbsSend::push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) {
  if (n == 0 || !connection_.may_send()) return 0;
  const memory::Keys* const keys = n >= kLendBytes ? cache_.find(source) : nullptr;
  const OfferLine* const offer = n >= kPlaceBytes ? connection_.find_offer() : nullptr;
  std::size_t size = std::min(n, kSlotBytes);
  if (offer != nullptr) {
    const std::size_t longest = keys != nullptr ? kPlacedMessageBytes : kSlotBytes;
    size = static_cast<std::size_t>(
        std::min<std::uint64_t>(std::min(n, longest), offer->position + offer->bytes - taken_));
  }
  const std::byte* const bytes = source.base + offset;
  if (keys == nullptr) std::memcpy(connection_.staging(), bytes, size);
  const std::uint32_t slot = connection_.next() % kSlots;
  if (lent_[slot]) (void)completed();  // the slot is free, so that message has been read
  connection_.send(fingerprint, {bytes, keys}, size, offer);
  sent(size, keys != nullptr);
  return size;
}

std::span<std::byte> VerbsSend::reserve(std::size_t n) {
  if (!connection_.may_send()) return {};
  return {connection_.staging(), std::min(n, kSlotBytes)};
}

void VerbsSend::commit(const Fingerprint& fingerprint, std::size_t n) {
  const OfferLine* offer = n >= kPlaceBytes ? connection_.find_offer() : nullptr;
  if (offer != nullptr && offer->position + offer->bytes - taken_ < n) offer = nullptr;
  connection_.send(fingerprint, {}, n, offer);
  sent(n, false);
}

void VerbsSend::sent(std::size_t n, bool lent) {
  const std::uint32_t number = connection_.next() - 1;
  if (lent) {
    lent_[number % kSlots] = true;
    lent_begin_[number % kSlots] = taken_;
    ++lent_count_;
  } else if (lent_count_ == 0) {
    oldest_ = number + 1;
  }
  taken_ += n;
}

std::uint64_t VerbsSend::completed() {
  if (lent_count_ == 0) return taken_;
  connection_.poll();
  for (; oldest_ != connection_.next(); ++oldest_) {
    const std::uint32_t slot = oldest_ % kSlots;
    if (!lent_[slot]) continue;
    if (connection_.in_flight(slot)) return lent_begin_[slot];
    lent_[slot] = false;
    --lent_count_;
  }
  return taken_;
}

}  // namespace tutti::internal::transport::verbs
