#include "transport/tcp/sent_ring.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/copy.h"

namespace tutti::internal::transport::tcp {

void SentRing::grow(std::size_t n) noexcept {
  const auto used = static_cast<std::size_t>(end_ - begin_);
  std::size_t bytes = bytes_;
  while (bytes - used < n && bytes < kMostBytes) bytes *= 2;
  if (bytes == bytes_) return;
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
  if (memory == nullptr) return;
  for (std::uint64_t at = begin_; at < end_;) {
    const std::span<const std::byte> from = piece(at);
    const std::size_t to = at & (bytes - 1);
    const std::size_t size = std::min(from.size(), bytes - to);
    std::memcpy(memory.get() + to, from.data(), size);
    at += size;
  }
  memory_ = std::move(memory);
  bytes_ = bytes;
}

void SentRing::append(const std::byte* data, std::size_t n) {
  const std::size_t at = end_ & (bytes_ - 1);
  const std::size_t first = std::min(n, bytes_ - at);
  copy_bytes(memory_.get() + at, data, first);
  if (first < n) copy_bytes(memory_.get(), data + first, n - first);
  end_ += n;
}

std::span<const std::byte> SentRing::piece(std::uint64_t position) const {
  const std::size_t at = position & (bytes_ - 1);
  return {memory_.get() + at, std::min(static_cast<std::size_t>(end_ - position), bytes_ - at)};
}

}  // namespace tutti::internal::transport::tcp
