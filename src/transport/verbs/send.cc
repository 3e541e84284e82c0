#include "transport/verbs/send.h"

#include <algorithm>

#include "base/copy.h"

namespace tutti::internal::transport::verbs {

std::size_t VerbsSend::push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) {
  if (n == 0 || !connection_.may_send()) return 0;
  const memory::RdmaKeys* const keys = n >= kZcopyBytes ? registrations_.find(source) : nullptr;
  const AdvertisementLine* const advertisement = n >= kDirectPutBytes ? connection_.find_advertisement() : nullptr;
  std::size_t size = std::min(n, kSlotBytes);
  if (advertisement != nullptr) {
    const std::size_t longest = keys != nullptr ? kMostDirectPutBytes : kSlotBytes;
    size = static_cast<std::size_t>(
        std::min<std::uint64_t>(std::min(n, longest), advertisement->position + advertisement->bytes - taken_));
  }
  const std::byte* const bytes = source.base + offset;
  if (keys == nullptr) copy_bytes(connection_.staging(), bytes, size);
  forget_slot();
  connection_.send(fingerprint, {bytes, keys}, size, advertisement);
  sent(size, keys != nullptr);
  return size;
}

std::span<std::byte> VerbsSend::reserve(std::size_t n) {
  if (!connection_.may_send()) return {};
  return {connection_.staging(), std::min(n, kSlotBytes)};
}

void VerbsSend::commit(const Fingerprint& fingerprint, std::size_t n) {
  const AdvertisementLine* advertisement = n >= kDirectPutBytes ? connection_.find_advertisement() : nullptr;
  if (advertisement != nullptr && advertisement->position + advertisement->bytes - taken_ < n) advertisement = nullptr;
  forget_slot();
  connection_.send(fingerprint, {}, n, advertisement);
  sent(n, false);
}

void VerbsSend::forget_slot() {
  if (is_zcopy_[connection_.next() % kSlots]) (void)completed();
}

void VerbsSend::sent(std::size_t n, bool zcopy) {
  const std::uint32_t number = connection_.next() - 1;
  if (zcopy) {
    is_zcopy_[number % kSlots] = true;
    zcopy_begin_[number % kSlots] = taken_;
    ++zcopies_;
  } else if (zcopies_ == 0) {
    oldest_ = number + 1;
  }
  taken_ += n;
}

std::uint64_t VerbsSend::completed() {
  if (zcopies_ == 0) return taken_;
  connection_.poll();
  for (; oldest_ != connection_.next(); ++oldest_) {
    const std::uint32_t slot = oldest_ % kSlots;
    if (!is_zcopy_[slot]) continue;
    if (connection_.in_flight(slot)) return zcopy_begin_[slot];
    is_zcopy_[slot] = false;
    --zcopies_;
  }
  return taken_;
}

}  // namespace tutti::internal::transport::verbs
