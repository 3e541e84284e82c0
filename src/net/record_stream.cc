#include "net/record_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <span>
#include <utility>

#include "os/kernel.h"

namespace tutti::internal::net {
namespace {

// Encrypted before they are sent: few enough to stay in the cache.
constexpr std::size_t kBatchBytes = 4 * kMostRecordPayload;
// The memory for received records grows with what arrives at once, between these limits.
constexpr std::size_t kFirstBytes = 1024;
constexpr std::size_t kMostBytes = 8 * (kMostRecordPayload + kRecordOverhead);

}  // namespace

Result<std::unique_ptr<RecordStream>> RecordStream::make(const TrafficSecrets& secrets) {
  Result<RecordSealer> sealer = RecordSealer::make(secrets.sending);
  if (!sealer.is_ok()) return sealer.status();
  Result<RecordOpener> opener = RecordOpener::make(secrets.receiving);
  if (!opener.is_ok()) return opener.status();
  return std::make_unique<RecordStream>(std::move(*sealer), std::move(*opener));
}

bool RecordStream::Memory::grow(std::size_t size, std::size_t kept) noexcept {
  std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[size]);
  if (bytes == nullptr) {
    errno = ENOBUFS;
    return false;
  }
  if (kept != 0) std::memcpy(bytes.get(), bytes_.get(), kept);
  bytes_ = std::move(bytes);
  size_ = size;
  return true;
}

// ---- Sending --------------------------------------------------------------------------------------

bool RecordStream::flush(int socket) {
  while (sent_ < out_end_) {
    const ssize_t took = os::kernel().send(socket, out_.data() + sent_, out_end_ - sent_);
    if (took < 0) return false;
    sent_ += static_cast<std::size_t>(took);
  }
  return true;
}

bool RecordStream::seal(const std::byte* head, std::size_t head_bytes, const std::byte* payload, std::size_t n) {
  const std::size_t records = (head_bytes + n + kMostRecordPayload - 1) / kMostRecordPayload;
  const std::size_t most = head_bytes + n + records * (kRecordOverhead + kKeyUpdateBytes);
  if (out_.size() < most && !out_.grow(most, 0)) return false;
  sent_ = out_end_ = 0;
  std::size_t end = 0;
  while (head_bytes + n > 0) {
    const std::size_t rest = std::min(n, kMostRecordPayload - head_bytes);
    Result<std::size_t> made = sealer_.seal({head, head_bytes}, {payload, rest}, out_.data() + end);
    if (!made.is_ok()) {
      errno = EBADMSG;
      return false;
    }
    end += *made;
    payload += rest;
    n -= rest;
    head_bytes = 0;
  }
  out_end_ = end;
  return true;
}

ssize_t RecordStream::send(int socket, const std::byte* head, std::size_t head_bytes, const std::byte* payload,
                           std::size_t n) {
  if (!flush(socket)) return -1;
  if (head_bytes + n == 0) return 0;
  std::size_t taken = owes_ ? 1 : 0;
  while (taken < head_bytes + n) {
    const std::size_t of_head = std::min(taken, head_bytes);
    const std::size_t rest_of_head = head_bytes - of_head;
    const std::size_t of_payload = taken - of_head;
    const std::size_t batch = std::min(n - of_payload, kBatchBytes - rest_of_head);
    // The first batch is the longest: so later ones need no memory.
    if (!seal(head + of_head, rest_of_head, payload + of_payload, batch)) return -1;
    taken += rest_of_head + batch;
    owes_ = !flush(socket);
    if (!owes_) continue;
    if (--taken == 0) return -1;
    return static_cast<ssize_t>(taken);
  }
  owes_ = false;
  return static_cast<ssize_t>(taken);
}

// ---- Receiving ------------------------------------------------------------------------------------

std::size_t RecordStream::whole_record() const {
  if (end_ - sealed_ < kRecordHeaderBytes) return 0;
  Result<std::size_t> bytes = RecordOpener::record_bytes(in_.data() + sealed_);
  // Of a damaged record open() says so.
  if (!bytes.is_ok()) return kRecordHeaderBytes;
  return end_ - sealed_ < *bytes ? 0 : *bytes;
}

bool RecordStream::open(std::byte* destination, std::size_t room, std::size_t* got) {
  const std::size_t bytes = whole_record();
  const bool fits = bytes - std::min(bytes, kRecordOverhead) <= room;
  std::byte* const inside = in_.data() + sealed_ + kRecordHeaderBytes;
  Result<std::size_t> opened = opener_.open({in_.data() + sealed_, bytes}, fits ? destination : inside);
  if (!opened.is_ok()) {
    damaged_ = true;
    errno = EBADMSG;
    return false;
  }
  if (fits) {
    *got = *opened;
  } else {
    plain_ = sealed_ + kRecordHeaderBytes;
    plain_end_ = plain_ + *opened;
    *got = 0;
  }
  sealed_ += bytes;
  return true;
}

std::size_t RecordStream::take_plain(std::byte* destination, std::size_t n) {
  const std::size_t size = std::min(n, plain_end_ - plain_);
  if (size != 0) std::memcpy(destination, in_.data() + plain_, size);
  plain_ += size;
  return size;
}

bool RecordStream::make_room() {
  if (sealed_ == end_) sealed_ = end_ = 0;
  std::size_t wanted = std::max(in_.size(), kFirstBytes);
  if (end_ - sealed_ >= kRecordHeaderBytes) {
    if (auto bytes = RecordOpener::record_bytes(in_.data() + sealed_); bytes.is_ok()) wanted = std::max(wanted, *bytes);
  }
  if (sealed_ != 0 && (end_ == in_.size() || sealed_ + wanted > in_.size())) {
    std::memmove(in_.data(), in_.data() + sealed_, end_ - sealed_);
    end_ -= sealed_;
    sealed_ = 0;
  }
  plain_ = plain_end_ = 0;
  return in_.size() >= wanted || in_.grow(wanted, end_);
}

// REQUIRES: no decrypted bytes are left, and no whole record.
ssize_t RecordStream::fill(int socket) {
  if (!make_room()) return -1;
  const std::size_t room = in_.size() - end_;
  const ssize_t got = os::kernel().recv(socket, in_.data() + end_, room);
  filled_ = got == static_cast<ssize_t>(room);
  if (got <= 0) return got;
  end_ += static_cast<std::size_t>(got);
  if (filled_ && in_.size() < kMostBytes) (void)in_.grow(std::min(2 * in_.size(), kMostBytes), end_);
  return got;
}

ssize_t RecordStream::recv(int socket, std::byte* destination, std::size_t n, std::byte* behind, std::size_t more) {
  if (damaged_) {
    errno = EBADMSG;
    return -1;
  }
  std::size_t total = 0;
  for (;;) {
    // What is decrypted goes to the caller first.
    std::size_t taken = 0;
    if (total < n) taken = take_plain(destination + total, n - total);
    total += taken;
    if (total >= n && total < n + more) total += take_plain(behind + (total - n), n + more - total);
    if (total == n + more) break;
    if (whole_record() != 0) {
      std::size_t got = 0;
      if (!open(destination + std::min(total, n), n - std::min(total, n), &got)) {
        if (total == 0) return -1;
        break;
      }
      total += got;
      continue;
    }
    if (total != 0 && !filled_) break;
    const ssize_t got = fill(socket);
    if (got > 0) continue;
    if (total != 0) break;
    return got;
  }
  return static_cast<ssize_t>(total);
}

}  // namespace tutti::internal::net
