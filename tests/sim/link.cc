#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "sim/wire.h"
#include "transport/plain.h"

namespace tutti::internal::transport::sim {

void Wire::notify(std::size_t side) {
  End& end = ends[side];
  end.activity = true;
  if (!end.armed) return;
  end.armed = false;
  // Fails only when the counter is at its limit, and then wakeup_fd is readable already.
  (void)::eventfd_write(end.wakeup_fd.get(), 1);
}

Status Wire::killed(std::size_t side) const {
  for (const End* end : {&ends[1 - side], &ends[side]}) {
    if (end->fate->killed) return Status::remote("rank " + std::to_string(end->rank) + ": killed in the simulation");
  }
  return Status::ok();
}

bool Wire::stuck() const {
  const auto still = [](const End& end) { return end.fate->killed || end.fate->stalled; };
  return still(ends[0]) || still(ends[1]);
}

namespace {

Status closed_by(int rank) {
  return Status::remote("rank " + std::to_string(rank) + ": simulated link closed");
}

bool uses_zcopy(const LaneTraits& traits) {
  return traits.zcopy_any_bytes != SIZE_MAX;
}

class SimSend final : public PlainSendLane {
 public:
  SimSend(Wire& wire, std::size_t side, const LaneTraits& traits, std::size_t capacity_bytes)
      : wire_(wire), side_(side), capacity_bytes_(capacity_bytes) {
    traits_ = traits;
  }

  std::size_t push(const Fingerprint& fingerprint, const Source& source, std::size_t offset, std::size_t n) override {
    const std::lock_guard lock(wire_.mutex);
    const std::size_t took = std::min(n, room());
    if (took == 0) return 0;
    Message message;
    message.fingerprint = fingerprint;
    message.size = took;
    const std::byte* const from = source.base + offset;
    if (took >= traits_.zcopy_any_bytes) {
      message.zcopy = from;
    } else {
      message.copy.assign(from, from + took);
    }
    append(std::move(message));
    return took;
  }

  std::span<std::byte> reserve(std::size_t n) override {
    if (!traits_.slots || n == 0) return {};
    const std::lock_guard lock(wire_.mutex);
    if (slot_.empty()) {
      const std::size_t allowed = room();
      if (allowed == 0) return {};
      // Whole cache lines, so that the room holds whole elements of most types.
      slot_.assign(std::min(n, (allowed + 63) / 64 * 64), std::byte{0xee});
    } else if (slot_.size() < std::min(n, kLeastViewBytes)) {
      slot_.resize(std::min(n, 2 * slot_.size()), std::byte{0xee});
    }
    return {slot_.data(), std::min(n, slot_.size())};
  }

  void commit(const Fingerprint& fingerprint, std::size_t n) override {
    const std::lock_guard lock(wire_.mutex);
    Message message;
    message.fingerprint = fingerprint;
    message.copy = std::exchange(slot_, {});
    message.size = n;
    if (n > 0) append(std::move(message));
  }

  std::uint64_t completed() override {
    const std::lock_guard lock(wire_.mutex);
    return uses_zcopy(traits_) ? pipe().consumed : taken_;
  }

  // As with a socket, a closed peer is an error only for a lane that still wants to send, not for a lane whose work is
  // done.
  Status status() override {
    const std::lock_guard lock(wire_.mutex);
    if (Status status = wire_.killed(side_); !status.is_ok()) return status;
    return refused_ ? closed_by(wire_.ends[1 - side_].rank) : Status::ok();
  }

  // REQUIRES: the wire's mutex is held. True once after the adversary refused bytes for which there was room.
  bool take_held_back() { return std::exchange(held_back_, false); }

 private:
  Pipe& pipe() { return wire_.pipes[side_]; }

  // Bytes that may be taken now.
  std::size_t room() {
    const auto held = static_cast<std::size_t>(pipe().taken - pipe().consumed);
    refused_ = wire_.ends[1 - side_].closed;
    if (wire_.stuck() || refused_ || held >= capacity_bytes_) return 0;
    const std::size_t allowed = pipe().send_pace.allow();
    held_back_ = held_back_ || allowed == 0;
    return std::min(allowed, capacity_bytes_ - held);
  }

  void append(Message message) {
    // A slot may reach beyond the cut by less than a cache line.
    const std::size_t past = pipe().send_pace.allow();
    pipe().send_pace.advance(std::min(message.size, past));
    taken_ += message.size;
    pipe().taken = taken_;
    pipe().messages.push_back(std::move(message));
    wire_.notify(1 - side_);
  }

  Wire& wire_;
  std::size_t side_;
  std::size_t capacity_bytes_;
  std::vector<std::byte> slot_;
  bool held_back_ = false;
  bool refused_ = false;  // a send met the closed end
};

class SimRecv final : public PlainRecvLane {
 public:
  SimRecv(Wire& wire, std::size_t side, const LaneTraits& traits) : wire_(wire), side_(side) { traits_ = traits; }

  View peek(std::size_t want) override {
    const std::lock_guard lock(wire_.mutex);
    return look(want);
  }

  bool consume(std::size_t n) override {
    const std::lock_guard lock(wire_.mutex);
    use(n);
    return true;
  }

  // Is not faster; zero-copy sends and copies are read through peek(). But lanes without slots have it, so that both
  // ways of receiving meet the adversary.
  std::size_t pull(std::byte* destination, std::size_t n, Fingerprint* fingerprint) override {
    if (traits_.slots || uses_zcopy(traits_)) return 0;
    const std::lock_guard lock(wire_.mutex);
    const View view = look(n);
    const std::size_t size = std::min(n, view.size);
    if (size == 0) return 0;
    std::memcpy(destination, view.data, size);
    *fingerprint = view.fingerprint;
    use(size);
    return size;
  }

  // Data that arrived before the peer closed can still be read; a killed rank's bytes are gone. The end is an error for
  // a lane that looked for more.
  Status status() override {
    const std::lock_guard lock(wire_.mutex);
    if (Status status = wire_.killed(side_); !status.is_ok()) return status;
    return ended_ ? closed_by(wire_.ends[1 - side_].rank) : Status::ok();
  }

  // REQUIRES: the wire's mutex is held. True once after the adversary hid bytes that had arrived.
  bool take_held_back() { return std::exchange(held_back_, false); }

 private:
  Pipe& pipe() { return wire_.pipes[1 - side_]; }

  View look(std::size_t want) {
    ended_ = pipe().messages.empty() && wire_.ends[1 - side_].closed;
    if (pipe().messages.empty() || wire_.stuck()) return {};
    std::size_t allowed = pipe().recv_pace.allow();
    // Until the caller asks, also if another look has seen it meanwhile: that may not have been the executor's.
    held_back_ = held_back_ || allowed == 0;
    if (allowed == 0) return {};
    if (shown_ > 0 && shown_ < want) {
      if (shown_ >= allowed) allowed = pipe().recv_pace.widen();
      if (shown_ >= pipe().messages.front().left()) join();
    }
    const Message& front = pipe().messages.front();
    shown_ = std::min(front.left(), allowed);
    return {front.data(), shown_, front.fingerprint};
  }

  // Joins the first two pieces if they belong to one operation.
  void join() {
    auto& messages = pipe().messages;
    if (messages.size() < 2 || messages[0].fingerprint != messages[1].fingerprint) return;
    Message joined;
    joined.fingerprint = messages[0].fingerprint;
    joined.size = messages[0].left() + messages[1].left();
    joined.copy.reserve(joined.size);
    for (std::size_t i = 0; i < 2; ++i) {
      joined.copy.insert(joined.copy.end(), messages[i].data(), messages[i].data() + messages[i].left());
    }
    messages.pop_front();
    messages.front() = std::move(joined);
  }

  void use(std::size_t n) {
    if (n == 0) return;
    Message& front = pipe().messages.front();
    front.used += n;
    if (front.left() == 0) pipe().messages.pop_front();
    pipe().consumed += n;
    pipe().recv_pace.advance(n);
    shown_ = 0;
    wire_.notify(1 - side_);
  }

  Wire& wire_;
  std::size_t side_;
  std::size_t shown_ = 0;  // size of the view since the last consume()
  bool held_back_ = false;
  bool ended_ = false;  // a look found the end
};

class SimLink final : public PlainLink {
 public:
  SimLink(std::shared_ptr<Wire> wire, std::size_t side, const LaneTraits& send, const LaneTraits& recv,
          std::size_t capacity_bytes)
      : wire_(std::move(wire)),
        side_(side),
        wait_fd_(wire_->ends[side].wakeup_fd.get()),
        send_(*wire_, side, send, capacity_bytes),
        recv_(*wire_, side, recv) {}
  ~SimLink() override { close(); }
  SimLink(const SimLink&) = delete;
  SimLink& operator=(const SimLink&) = delete;

  SendLane& send() override { return send_; }
  RecvLane& recv() override { return recv_; }

  bool arm() override {
    const std::lock_guard lock(wire_->mutex);
    End& end = wire_->ends[side_];
    eventfd_t rings = 0;
    (void)::eventfd_read(end.wakeup_fd.get(), &rings);  // nothing to read is fine
    const bool send_held = send_.take_held_back();
    const bool recv_held = recv_.take_held_back();
    end.armed = !std::exchange(end.activity, false) && !send_held && !recv_held;
    return end.armed;
  }
  void disarm() override {
    const std::lock_guard lock(wire_->mutex);
    wire_->ends[side_].armed = false;
  }
  [[nodiscard]] std::span<const int> wait_fds() const override { return {&wait_fd_, 1}; }
  void revoke() noexcept override { close(); }

 private:
  void close() {
    const std::lock_guard lock(wire_->mutex);
    wire_->ends[side_].closed = true;
    wire_->notify(1 - side_);
  }

  std::shared_ptr<Wire> wire_;
  std::size_t side_;
  int wait_fd_;
  SimSend send_;
  SimRecv recv_;
};

}  // namespace

std::unique_ptr<Link> make_end(std::shared_ptr<Wire> wire, std::size_t side, const Options& options, bool send_slots,
                               bool recv_slots) {
  LaneTraits traits;
  traits.transport = "sim";
  if (options.maps_source) traits.zcopy_bytes = traits.zcopy_any_bytes = traits.least_zcopy_bytes = options.zcopy_bytes;
  traits.pulls = true;
  traits.piece_bytes = options.piece_bytes;
  LaneTraits send = traits;
  send.slots = send_slots;
  LaneTraits recv = traits;
  recv.slots = recv_slots;
  return std::make_unique<SimLink>(std::move(wire), side, send, recv, options.capacity_bytes);
}

}  // namespace tutti::internal::transport::sim
