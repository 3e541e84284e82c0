#include "transport/checked/link.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/checked/crc32c.h"
#include "transport/checked/frame.h"

namespace tutti::internal::transport::checked {
namespace {

// A frame is summed before its first byte is sent, and forwarded only as a whole, so short frames let the peers begin
// early: they fit a slot with the header of the next rank, if there are slots. But a message that the inner lane takes
// whole must not be cut, for its elements, nor one that is sent by zero copy, below the size from which that pays.
constexpr std::size_t kMostZcopyFrameBytes = 256 * 1024;
std::size_t frame_bytes(const LaneTraits& traits, bool zcopy, std::size_t n) {
  const std::size_t whole = std::max(kWholeMessageBytes, traits.piece_bytes);
  if (n <= whole) return n;
  if (zcopy) return std::min(n, kMostZcopyFrameBytes);
  return traits.slots ? kWholeMessageBytes - kMostElementBytes : whole;
}
// Up to this payload, a copy costs less than a second message: header and payload are one message of the inner lane.
constexpr std::size_t kMostCopiedBytes = 1024;

bool sends_by_zcopy(const LaneTraits& traits, const Source& source, std::size_t n) {
  return n >= traits.zcopy_any_bytes || (n >= traits.zcopy_bytes && source.region != 0);
}

class CheckedSend final : public SendLane {
 public:
  explicit CheckedSend(SendLane& inner) : inner_(inner) { copy_traits(); }

  std::size_t push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) override {
    const std::uint64_t begin = taken_;
    const std::uint64_t end = begin + n;
    while (taken_ < end) {
      const std::size_t at = offset + static_cast<std::size_t>(taken_ - begin);
      const auto wanted = static_cast<std::size_t>(end - taken_);
      if (!is_open()) open(fingerprint, source, at, wanted);
      if (!send_head(fingerprint)) break;
      const std::size_t rest = std::min(left_, wanted);
      const std::size_t took = copied_ ? rest : inner_.push(fingerprint, source, at, rest);
      left_ -= took;
      taken_ += took;
      if (took < rest) break;
    }
    return static_cast<std::size_t>(taken_ - begin);
  }

  std::span<std::byte> reserve(std::size_t n) override {
    if (is_open()) return {};  // a push() goes on
    room_ = inner_.reserve(n + kHeaderBytes);
    return room_.size() > kHeaderBytes ? room_.subspan(kHeaderBytes) : std::span<std::byte>();
  }
  void commit(const Fingerprint& fingerprint, std::size_t n) override {
    const std::uint32_t sum = crc32c(room_.data() + kHeaderBytes, n);
    const HeaderBytes header = encode({static_cast<std::uint32_t>(n), sum, number_++}, fingerprint);
    std::memcpy(room_.data(), header.data(), kHeaderBytes);
    inner_.commit(fingerprint, n + kHeaderBytes);
    taken_ += n;
  }
  std::span<std::byte> reserve_remote(std::size_t) override { return {}; }

  // Only pushed payloads are read later. Of them the inner lane tells where it is in its own stream.
  std::uint64_t completed() override {
    const std::uint64_t done = inner_.completed();
    const auto first = std::find_if(lent_.begin(), lent_.end(),
                                    [&](const Lent& lent) { return done < lent.inner_begin + lent.length; });
    lent_.erase(lent_.begin(), first);
    if (lent_.empty()) return taken_;
    const Lent& oldest = lent_.front();
    return std::min(taken_, oldest.begin + (done > oldest.inner_begin ? done - oldest.inner_begin : 0));
  }
  void progress() override { inner_.progress(); }
  Status status() override { return inner_.status(); }

  void copy_traits() {
    traits_ = inner_.traits();
    traits_.puts_directly = false;
    traits_.streamed_bytes = SIZE_MAX;  // commit() reads the slot
  }

 private:
  // A pushed payload that the peer or the device may still read in place.
  struct Lent {
    std::uint64_t inner_begin;
    std::uint64_t begin;
    std::uint64_t length;
  };

  // Whether the last frame is not completely taken.
  [[nodiscard]] bool is_open() const { return left_ != 0; }

  void open(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) {
    const bool zcopy = sends_by_zcopy(inner_.traits(), source, n);
    const std::size_t length = frame_bytes(inner_.traits(), zcopy, n);
    const std::byte* const payload = source.base + offset;
    const FrameHeader header{static_cast<std::uint32_t>(length), crc32c(payload, length), number_++};
    const HeaderBytes bytes = encode(header, fingerprint);
    std::memcpy(head_.data(), bytes.data(), kHeaderBytes);
    head_sent_ = 0;
    head_bytes_ = kHeaderBytes;
    left_ = length;
    copied_ = length <= kMostCopiedBytes;
    if (copied_) {
      std::memcpy(head_.data() + kHeaderBytes, payload, length);
      head_bytes_ += length;
    }
    if (zcopy) lent_.push_back({inner_.taken() + kHeaderBytes, taken_, length});
  }

  bool send_head(const Fingerprint& fingerprint) {
    if (head_sent_ == head_bytes_) return true;
    const Source head{head_.data(), head_bytes_, 0, 0};
    head_sent_ += inner_.push(fingerprint, head, head_sent_, head_bytes_ - head_sent_);
    return head_sent_ == head_bytes_;
  }

  SendLane& inner_;
  std::uint32_t number_ = 0;
  std::array<std::byte, kHeaderBytes + kMostCopiedBytes> head_;
  std::size_t head_bytes_ = 0;  // of the last frame: its header, and its payload if that was copied
  std::size_t head_sent_ = 0;
  bool copied_ = false;
  std::size_t left_ = 0;       // of its payload, that push() has not reported
  std::span<std::byte> room_;  // of reserve()
  std::vector<Lent> lent_;     // in order
};

class CheckedRecv final : public RecvLane {
 public:
  CheckedRecv(RecvLane& inner, int peer) : inner_(inner), peer_(peer) { copy_traits(); }

  View peek(std::size_t want) override {
    if (!open()) return {};
    View view = inner_.peek(std::min<std::size_t>(want, left()));
    if (view.size == 0) return {};
    if (view.fingerprint != fingerprint_)
      return fail("a message that belongs to another operation", number_ - 1), View();
    view.size = std::min<std::size_t>(view.size, left());
    seen_ = view.data;
    return view;
  }
  bool consume(std::size_t n) override {
    if (n == 0) return true;
    if (!status_.is_ok()) return false;
    const std::uint32_t sum = crc32c(seen_, n, sum_);
    if (!inner_.consume(n)) return false;
    seen_ += n;
    return pass(n, sum);
  }
  std::size_t pull(std::byte* destination, std::size_t n, Fingerprint* fingerprint) override {
    std::size_t total = 0;
    while (total < n && open()) {
      if (total != 0 && fingerprint_ != *fingerprint) break;
      Fingerprint theirs;
      const std::size_t got = inner_.pull(destination + total, std::min<std::size_t>(n - total, left()), &theirs);
      if (got == 0) break;
      if (theirs != fingerprint_) return fail("a message that belongs to another operation", number_ - 1), 0;
      if (!pass(got, crc32c(destination + total, got, sum_))) return 0;
      *fingerprint = fingerprint_;
      total += got;
    }
    return total;
  }
  void advertise(std::uint64_t, const Source&, std::size_t, std::size_t) override {}
  Status status() override { return status_.is_ok() ? inner_.status() : status_; }

  void copy_traits() {
    traits_ = inner_.traits();
    traits_.takes_advertisements = false;
  }

 private:
  [[nodiscard]] std::size_t left() const { return header_.length - passed_; }

  // Whether a frame is open: reads the next header if it has arrived.
  bool open() {
    if (!status_.is_ok()) return false;
    if (left() != 0) return true;
    const View view = inner_.peek(kHeaderBytes);
    if (view.size < kHeaderBytes) return false;
    const auto header = decode(view.data, view.fingerprint);
    if (!header) return fail("a damaged header", number_);
    if (header->number != number_) {
      return fail(fmt::format("message {} in place of message {}", header->number, number_), number_);
    }
    const Fingerprint fingerprint = view.fingerprint;
    if (!inner_.consume(kHeaderBytes)) return false;
    ++number_;
    header_ = *header;
    fingerprint_ = fingerprint;
    passed_ = sum_ = 0;
    until_proof_ = left();
    return true;
  }

  // n more bytes of the frame, whose sum up to there is `sum`.
  bool pass(std::size_t n, std::uint32_t sum) {
    passed_ += static_cast<std::uint32_t>(n);
    sum_ = sum;
    if (left() == 0 && sum_ != header_.checksum) {
      return fail(
          fmt::format("{} bytes with the CRC32C {:08x} where {:08x} was sent", header_.length, sum_, header_.checksum),
          number_ - 1);
    }
    consumed_ += n;
    until_proof_ = left();
    unproven_ = until_proof_ == 0 ? 0 : passed_;
    return true;
  }

  bool fail(const std::string& what, std::uint32_t number) {
    status_ = Status::remote(fmt::format(
        "damaged data from rank {} over {}: {} (message {}). The memory of one of the two, or what connects them, "
        "changes data; or rank {} changed its buffer during the call",
        peer_, traits_.transport, what, number, peer_));
    return false;
  }

  RecvLane& inner_;
  const int peer_;
  Status status_;
  std::uint32_t number_ = 0;
  FrameHeader header_;
  Fingerprint fingerprint_;
  std::uint32_t passed_ = 0;         // of the payload
  std::uint32_t sum_ = 0;            // of them
  const std::byte* seen_ = nullptr;  // the last view, without what was consumed
};

class CheckedLink final : public Link {
 public:
  CheckedLink(std::unique_ptr<Link> inner, int peer)
      : inner_(std::move(inner)),
        send_(inner_->send()),
        recv_(inner_->recv(), peer),
        fds_(inner_->wait_fds().begin(), inner_->wait_fds().end()) {}

  SendLane& send() override { return send_; }
  RecvLane& recv() override { return recv_; }
  bool arm() override {
    const bool quiet = inner_->arm();
    const std::span<const int> fds = inner_->wait_fds();
    if (!std::equal(fds.begin(), fds.end(), fds_.begin(), fds_.end())) {
      fds_.assign(fds.begin(), fds.end());
      forget_watch();
    }
    return quiet;
  }
  void disarm() override { inner_->disarm(); }
  [[nodiscard]] std::span<const int> wait_fds() const override { return inner_->wait_fds(); }
  [[nodiscard]] bool sent() override { return inner_->sent(); }
  [[nodiscard]] std::uint64_t reconnects() const override { return inner_->reconnects(); }
  void end_sending() noexcept override { inner_->end_sending(); }
  [[nodiscard]] bool flushed() override { return inner_->flushed(); }
  void send_leave_notice() override { inner_->send_leave_notice(); }
  void begin_operation(MemoryUse use) override {
    inner_->begin_operation(use);
    send_.copy_traits();
    recv_.copy_traits();
  }
  void revoke() noexcept override { inner_->revoke(); }
  [[nodiscard]] bool revoked() noexcept override { return inner_->revoked(); }

 private:
  const std::unique_ptr<Link> inner_;
  CheckedSend send_;
  CheckedRecv recv_;
  std::vector<int> fds_;  // wait_fds(), as the next EventSet::watch() finds them
};

}  // namespace

std::unique_ptr<Link> make_checked(std::unique_ptr<Link> link, int peer) {
  return std::make_unique<CheckedLink>(std::move(link), peer);
}

}  // namespace tutti::internal::transport::checked
