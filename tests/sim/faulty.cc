#include "sim/faulty.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::internal::transport::sim {
namespace {

// The faults of one lane and its progress.
class Saboteur {
 public:
  Saboteur(int peer, const Faults& faults) : peer_(peer), faults_(faults) {}

  // How many of n bytes may pass now.
  [[nodiscard]] std::size_t allow(std::size_t n) const {
    const std::uint64_t end = std::min(faults_.cut_after_bytes, faults_.stall_after_bytes);
    const std::uint64_t left = end > passed_ ? end - passed_ : 0;
    return static_cast<std::size_t>(
        std::min<std::uint64_t>({n, left, faults_.longest_piece_bytes, before_corruption()}));
  }
  [[nodiscard]] Fingerprint fingerprint(Fingerprint fingerprint) const {
    if (passed_ >= faults_.corrupt_after_bytes) fingerprint.sequence ^= 0x40000000u;
    return fingerprint;
  }
  void pass(std::size_t n) { passed_ += n; }
  // Where among the next n bytes the damaged one is; n: not there.
  [[nodiscard]] std::size_t damaged(std::size_t n) const {
    return static_cast<std::size_t>(
        faults_.damage_at_byte < passed_ ? n : std::min<std::uint64_t>(n, faults_.damage_at_byte - passed_));
  }

  [[nodiscard]] Status status(Status inner) const {
    if (passed_ < faults_.cut_after_bytes) return inner;
    return Status::remote("rank " + std::to_string(peer_) + ": lane cut on purpose after " + std::to_string(passed_) +
                          " bytes");
  }

 private:
  // A piece never has both a right and a wrong fingerprint.
  [[nodiscard]] std::uint64_t before_corruption() const {
    return passed_ < faults_.corrupt_after_bytes ? faults_.corrupt_after_bytes - passed_ : UINT64_MAX;
  }

  int peer_;
  Faults faults_;
  std::uint64_t passed_ = 0;
};

class FaultySend final : public SendLane {
 public:
  FaultySend(SendLane& inner, int peer, const Faults& faults) : inner_(inner), saboteur_(peer, faults) {
    traits_ = inner.traits();
    taken_ = inner.taken();
  }

  std::size_t push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) override {
    n = saboteur_.allow(n);
    return n == 0 ? 0 : pass(inner_.push(saboteur_.fingerprint(fingerprint), source, offset, n));
  }
  std::span<std::byte> reserve(std::size_t n) override {
    n = saboteur_.allow(n);
    return n == 0 ? std::span<std::byte>{} : inner_.reserve(n);
  }
  void commit(const Fingerprint& fingerprint, std::size_t n) override {
    inner_.commit(saboteur_.fingerprint(fingerprint), n);
    pass(n);
  }
  std::span<std::byte> reserve_remote(std::size_t n) override {
    n = saboteur_.allow(n);
    return n == 0 ? std::span<std::byte>{} : inner_.reserve_remote(n);
  }
  std::uint64_t completed() override { return inner_.completed(); }
  void progress() override {
    if (saboteur_.allow(1) > 0) inner_.progress();
  }
  Status status() override { return saboteur_.status(inner_.status()); }
  void copy_traits() { traits_ = inner_.traits(); }

 private:
  std::size_t pass(std::size_t n) {
    saboteur_.pass(n);
    taken_ += n;
    return n;
  }

  SendLane& inner_;
  Saboteur saboteur_;
};

class FaultyRecv final : public RecvLane {
 public:
  FaultyRecv(RecvLane& inner, int peer, const Faults& faults) : inner_(inner), saboteur_(peer, faults) {
    traits_ = inner.traits();
    consumed_ = inner.consumed();
  }

  View peek(std::size_t want) override {
    want = saboteur_.allow(want);
    if (want == 0) return {};
    const View view = inner_.peek(want);
    const std::size_t size = std::min(view.size, want);
    const std::byte* data = view.data;
    if (saboteur_.damaged(size) < size) {
      copy_.assign(data, data + size);
      damage(copy_.data(), size);
      data = copy_.data();
    }
    return {data, size, saboteur_.fingerprint(view.fingerprint)};
  }
  bool consume(std::size_t n) override {
    if (!inner_.consume(n)) return false;
    pass(n);
    return true;
  }
  std::size_t pull(std::byte* destination, std::size_t n, Fingerprint* fingerprint) override {
    n = saboteur_.allow(n);
    const std::size_t got = n == 0 ? 0 : inner_.pull(destination, n, fingerprint);
    if (got > 0) *fingerprint = saboteur_.fingerprint(*fingerprint);
    damage(destination, got);
    pass(got);
    return got;
  }
  void advertise(std::uint64_t position, const Source& target, std::size_t offset, std::size_t n) override {
    inner_.advertise(position, target, offset, n);
  }
  Status status() override { return saboteur_.status(inner_.status()); }
  void copy_traits() { traits_ = inner_.traits(); }

 private:
  void pass(std::size_t n) {
    saboteur_.pass(n);
    consumed_ = inner_.consumed();
  }
  void damage(std::byte* data, std::size_t n) const {
    if (const std::size_t at = saboteur_.damaged(n); at < n) data[at] ^= std::byte{0x10};
  }

  RecvLane& inner_;
  Saboteur saboteur_;
  std::vector<std::byte> copy_;  // of a view with damage
};

class FaultyLink final : public Link {
 public:
  FaultyLink(std::unique_ptr<Link> inner, int peer, const Faults& send, const Faults& recv,
             std::atomic<int>* begun = nullptr)
      : inner_(std::move(inner)), send_(inner_->send(), peer, send), recv_(inner_->recv(), peer, recv), begun_(begun) {}

  SendLane& send() override { return send_; }
  RecvLane& recv() override { return recv_; }
  bool arm() override { return inner_->arm(); }
  void disarm() override { inner_->disarm(); }
  [[nodiscard]] std::span<const int> wait_fds() const override { return inner_->wait_fds(); }
  [[nodiscard]] bool sent() override { return inner_->sent(); }
  [[nodiscard]] std::uint64_t reconnects() const override { return inner_->reconnects(); }
  void end_sending() noexcept override { inner_->end_sending(); }
  [[nodiscard]] bool flushed() override { return inner_->flushed(); }
  void send_leave_notice() override { inner_->send_leave_notice(); }
  void begin_operation(MemoryUse use) override {
    inner_->begin_operation(use);
    if (begun_ != nullptr) ++*begun_;
    send_.copy_traits();
    recv_.copy_traits();
  }
  void revoke() noexcept override { inner_->revoke(); }
  [[nodiscard]] bool revoked() noexcept override { return inner_->revoked(); }

 private:
  std::unique_ptr<Link> inner_;
  FaultySend send_;
  FaultyRecv recv_;
  std::atomic<int>* begun_;
};

}  // namespace

std::unique_ptr<Link> make_faulty(std::unique_ptr<Link> link, int peer, const Faults& send, const Faults& recv) {
  return std::make_unique<FaultyLink>(std::move(link), peer, send, recv);
}

std::unique_ptr<Link> make_counting(std::unique_ptr<Link> link, int peer, std::atomic<int>* begun) {
  return std::make_unique<FaultyLink>(std::move(link), peer, Faults{}, Faults{}, begun);
}

}  // namespace tutti::internal::transport::sim
