#include "transport/verbs/connection.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/memfd.h"
#include "os/clock.h"

namespace tutti::internal::transport::verbs {
namespace {

// From the first sign that a peer has ended until its leave notice or last message must have arrived.
constexpr std::int64_t kGraceNs = 200'000'000;

}  // namespace

template <class T>
Result<PinnedPages<T>> PinnedPages<T>::create() {
  // Separate pages: registered pages are pinned, and a child of fork(2) must not share them.
  void* p = ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return map_error("memory of a verbs link", errno);
  return PinnedPages(static_cast<T*>(p));
}
template <class T>
PinnedPages<T>::~PinnedPages() {
  if (memory_ != nullptr) ::munmap(memory_, sizeof(T));
}
template class PinnedPages<Inbox>;
template class PinnedPages<Outbox>;

Connection::Connection(int peer, PinnedPages<Inbox> inbox, PinnedPages<Outbox> outbox, Completions& completions)
    : peer_(peer),
      completions_(completions),
      taker_(completions.add(*this)),
      inbox_(std::move(inbox)),
      outbox_(std::move(outbox)) {}

Connection::~Connection() {
  if (!closed_) send_leave_notice();
  close(Status());
}

Status Connection::add_rail(Device& device, std::size_t device_index, int queue_pairs) {
  RailState rail;
  rail.device = &device;
  rail.device_index = device_index;
  // Read for markers: see QueuePair::post_marker().
  auto inbox = device.register_memory(&*inbox_, sizeof(Inbox), device.port().fabric == Fabric::kIwarp);
  if (!inbox.is_ok()) return inbox.status();
  rail.inbox = std::move(*inbox);
  auto outbox = device.register_memory(&*outbox_, sizeof(Outbox));
  if (!outbox.is_ok()) return outbox.status();
  rail.outbox = std::move(*outbox);
  rail.entries = queue_pairs * QueuePair::kCompletions;
  rails_.reserve(rails_.size() + 1);
  auto completions = completions_.reserve(device, device_index, rail.entries);
  if (!completions.is_ok()) return completions.status();
  rail.completions = *completions;
  rails_.push_back(std::move(rail));
  return {};
}

void Connection::create_pairs(int queue_pairs, const Options& options) {
  const std::size_t count = rails_.size() * static_cast<std::size_t>(queue_pairs);
  for (std::size_t i = 0; i < count; ++i) {
    const RailState& rail = rails_[rail_of(i)];
    const QueuePair::Attachment attachment{taker_,           static_cast<std::uint8_t>(i), inbox_->announcements[i],
                                           rail.inbox->lkey, outbox_->announcements[i],    rail.outbox->lkey};
    pairs_.emplace_back(*rail.completions, options, attachment);
  }
}

Status Connection::keep(UniqueFd socket, std::shared_ptr<void> owner, std::shared_ptr<void> connection) {
  socket_ = std::move(socket);
  owner_ = std::move(owner);
  connection_ = std::move(connection);
  return completions_.watch(socket_.get(), taker_);
}

bool Connection::may_send() {
  const auto room = [&] {
    return next_ - acknowledged_ < kSlots && !in_flight_[next_ % kSlots] &&
           std::all_of(pairs_.begin(), pairs_.end(),
                       [](const QueuePair& pair) { return pair.room() >= kPostsPerSend; });
  };
  if (!status_.is_ok() || !broken_.is_ok() || closed_) return false;
  if (room()) [[likely]]
    return true;
  poll();
  return status_.is_ok() && broken_.is_ok() && room();
}

// Small messages use the first queue pair, which is as fast as any; long ones are spread over all.
QueuePair& Connection::pair_for(std::size_t payload_bytes) {
  if (pairs_.size() == 1 || is_inline(payload_bytes)) return pairs_[0];
  return pairs_[next_ % pairs_.size()];
}

void Connection::send(const Fingerprint& fingerprint, const Registered& payload, std::size_t n,
                      const AdvertisementLine* advertisement) {
  const std::uint32_t index = next_ % kSlots;
  Slot& image = outbox_->slots[index];
  QueuePair& pair = pair_for(n);
  const auto pair_index = static_cast<std::size_t>(&pair - pairs_.data());
  const RailState& rail = rails_[rail_of(pair_index)];
  const std::uint64_t slot_address = rail.peer_inbox + offsetof(Inbox, slots) + index * sizeof(Slot);
  image.header = {static_cast<std::uint32_t>(n), advertisement != nullptr, next_, fingerprint};

  const Sge header{&image, sizeof(MessageHeader), rail.outbox->lkey};
  const Sge whole{&image, static_cast<std::uint32_t>(sizeof(MessageHeader) + n), rail.outbox->lkey};
  Sge body{image.payload, static_cast<std::uint32_t>(n), rail.outbox->lkey};
  if (payload.keys != nullptr) {
    body = {payload.address, static_cast<std::uint32_t>(n), payload.keys->lkeys[rail.device_index]};
  }
  const std::array<Sge, 2> both{header, body};
  const bool free_at_once = advertisement == nullptr && payload.keys == nullptr && is_inline(n);
  const WorkId id{free_at_once ? WorkId::kPlain : WorkId::kSlot, 0, static_cast<std::uint8_t>(index)};
  const std::uint32_t word = encode(ImmediateKind::kMessage, received_, next_);
  int error = 0;
  if (advertisement != nullptr) {
    const QueuePair::Write direct_put{std::span(&body, 1),
                                      advertisement->address + (sent_bytes_ - advertisement->position),
                                      advertisement->rkeys[rail_of(pair_index)]};
    error = pair.post(&direct_put, {std::span(&header, 1), slot_address, rail.peer_rkey}, word, id);
  } else if (payload.keys != nullptr) {
    error = pair.post(nullptr, {both, slot_address, rail.peer_rkey}, word, id);
  } else {
    error = pair.post(nullptr, {std::span(&whole, 1), slot_address, rail.peer_rkey}, word, id);
  }
  in_flight_[index] = !free_at_once;
  credited_ = received_;
  ++next_;
  sent_bytes_ += n;
  check_posted(error, "sending");
}

const AdvertisementLine* Connection::find_advertisement() {
  while (advertisements_begin_ != advertisements_end_) {
    const AdvertisementLine& advertisement = advertisements_[advertisements_begin_ % kAdvertisementLines];
    if (sent_bytes_ < advertisement.position + advertisement.bytes)
      return sent_bytes_ >= advertisement.position ? &advertisement : nullptr;
    ++advertisements_begin_;
  }
  return nullptr;
}

const Slot* Connection::arrived() {
  if (!arrived_[received_ % kSlots]) {
    poll();
    if (!arrived_[received_ % kSlots]) return nullptr;
  }
  return &inbox_->slots[received_ % kSlots];
}

void Connection::consume() {
  arrived_[received_ % kSlots] = false;
  ++received_;
  if (received_ - credited_ >= kCreditAfter) announce_credit();
}

// If there is no room now, the next message or the next poll announces the credits.
void Connection::announce_credit() {
  if (!status_.is_ok() || closed_ || pairs_[0].room() < kPostsPerSend) return;
  credited_ = received_;
  const int error = pairs_[0].post(nullptr, {{}, rails_[0].peer_inbox, rails_[0].peer_rkey},
                                   encode(ImmediateKind::kCredit, received_, 0), {});
  check_posted(error, "sending");
}

void Connection::send_first_credits() {
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const RailState& rail = rails_[rail_of(i)];
    const int error = pairs_[i].post(nullptr, {{}, rail.peer_inbox, rail.peer_rkey},
                                     encode(ImmediateKind::kCredit, received_, 0), {});
    check_posted(error, "sending");
  }
}

bool Connection::advertise(std::uint64_t position, std::uint64_t bytes, const std::byte* address,
                           const memory::RdmaKeys& keys) {
  const std::uint32_t line = own_advertisements_ % kAdvertisementLines;
  if (!status_.is_ok() || closed_ || advertisement_in_flight_[line] || pairs_[0].room() < kPostsPerSend) return false;
  AdvertisementLine& image = outbox_->advertisements[line];
  image = {};
  image.position = position;
  image.bytes = bytes;
  image.address = reinterpret_cast<std::uintptr_t>(address);
  for (std::size_t r = 0; r < rails_.size(); ++r) image.rkeys[r] = keys.rkeys[rails_[r].device_index];
  const bool free_at_once = pairs_[0].is_inline(sizeof image);
  const WorkId id{free_at_once ? WorkId::kPlain : WorkId::kAdvertisementLine, 0, static_cast<std::uint8_t>(line)};
  const Sge sge{&image, sizeof image, rails_[0].outbox->lkey};
  const std::uint64_t target =
      rails_[0].peer_inbox + offsetof(Inbox, advertisements) + line * sizeof(AdvertisementLine);
  advertisement_in_flight_[line] = !free_at_once;
  const int error = pairs_[0].post(nullptr, {std::span(&sge, 1), target, rails_[0].peer_rkey},
                                   encode(ImmediateKind::kAdvertisement, received_, own_advertisements_), id);
  ++own_advertisements_;
  credited_ = received_;
  check_posted(error, "advertising memory");
  return status_.is_ok();
}

void Connection::poll() {
  for (const RailState& rail : rails_) {
    if (closed_) return;
    if (Status s = rail.completions->poll(); !s.is_ok()) return fail(std::move(s));
  }
  if (received_ - credited_ >= kCreditAfter) announce_credit();
}

void Connection::take(const ibv_wc& completion, const WorkId& id) {
  QueuePair& pair = pairs_[id.pair];
  if (completion.status != IBV_WC_SUCCESS) {
    if (broken_.is_ok()) {
      broken_ = completion_error(completion, *rails_[rail_of(id.pair)].device, peer_);
      broken_ns_ = now_ns();
    }
    // A request may be flushed because the peer has left; its leave notice arrives a little later.
    if (completion.status != IBV_WC_WR_FLUSH_ERR && !has_all()) fail(broken_);
    return;
  }
  if (id.kind == WorkId::kReceive) {
    heard_[id.pair] = true;
    const std::uint32_t word = pair.received(completion, id.index);
    handle_immediate(word);
    check_posted(pair.post_receives(false), "receiving");
    return;
  }
  pair.completed(id);
  if (id.kind == WorkId::kSlot) in_flight_[id.index] = false;
  if (id.kind == WorkId::kAdvertisementLine) advertisement_in_flight_[id.index] = false;
}

void Connection::handle_immediate(std::uint32_t word) {
  // Messages may overtake each other on different queue pairs: an older count is behind by more than all slots.
  const std::uint32_t ahead = (consumed_of(word) - acknowledged_) & kConsumedMask;
  if (ahead <= kSlots) acknowledged_ += ahead;
  switch (immediate_kind(word)) {
    case ImmediateKind::kMessage: {
      bool& arrived = arrived_[number_of(word) % kSlots];
      if (arrived) fail(Status::internal(fmt::format("rank {}: protocol error: verbs messages out of order", peer_)));
      arrived = true;
      break;
    }
    case ImmediateKind::kAdvertisement:
      (void)find_advertisement();  // drops passed advertisements
      if (advertisements_end_ - advertisements_begin_ == kAdvertisementLines ||
          number_of(word) != (advertisements_end_ & kNumberMask)) {
        fail(Status::internal(fmt::format("rank {}: protocol error: verbs advertisements out of order", peer_)));
        break;
      }
      advertisements_[advertisements_end_ % kAdvertisementLines] =
          inbox_->advertisements[advertisements_end_ % kAdvertisementLines];
      ++advertisements_end_;
      break;
    case ImmediateKind::kCredit: break;
  }
}

bool Connection::peer_left() {
  if (peer_left_) return true;
  std::uint32_t consumed = 0;
  const ssize_t n = ::recv(socket_.get(), &consumed, sizeof consumed, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return false;
  peer_left_ = true;
  peer_left_ns_ = now_ns();
  // It would stay readable; sleeping threads have been notified.
  completions_.unwatch(socket_.get());
  if (n != sizeof consumed || next_ - consumed > kSlots) return true;  // it died
  got_leave_notice_ = true;
  acknowledged_ = consumed;
  for (std::uint32_t number = next_ - kSlots; number != consumed; ++number) in_flight_[number % kSlots] = false;
  return true;
}

void Connection::send_leave_notice() {
  if (!socket_.valid() || !status_.is_ok() || std::exchange(sent_leave_notice_, true)) return;
  (void)::send(socket_.get(), &received_, sizeof received_, MSG_NOSIGNAL | MSG_DONTWAIT);
}

Status Connection::check(bool receives) {
  if (!status_.is_ok() || closed_) return status_;
  for (const RailState& rail : rails_) {
    if (Status s = rail.device->check_events(); !s.is_ok()) fail(std::move(s));
    if (rail.completions->broken()) fail(rail.device->gone("its completions were lost"));
  }
  // Either everything that the peer sent was acknowledged before it left, and has arrived; or it died, and its messages
  // may still be in flight.
  if (status_.is_ok() && peer_left() && (receives || !has_all()) && now_ns() - peer_left_ns_ > kGraceNs) {
    fail(Status::remote(fmt::format("rank {}: the peer closed the connection", peer_)));
  }
  if (status_.is_ok() && !broken_.is_ok() && (receives || !has_all()) && now_ns() - broken_ns_ > kGraceNs)
    fail(broken_);
  poll();
  return status_;
}

bool Connection::arm() {
  if (closed_) return false;
  for (const RailState& rail : rails_) completions_.arm(*rail.completions);
  poll();
  const bool quiet = completions_.quiet();
  // These become errors only by time: no event would end the sleep.
  const std::int64_t end_ns = std::max(peer_left_ns_, broken_ns_);
  return quiet && (end_ns == 0 || now_ns() - end_ns > 2 * kGraceNs);
}

bool Connection::flushed() {
  if (!status_.is_ok() || !broken_.is_ok() || closed_ || peer_left()) return true;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const RailState& rail = rails_[rail_of(i)];
    if (pairs_[i].room() > 0) check_posted(pairs_[i].post_marker(rail.peer_inbox, rail.peer_rkey), "sending");
  }
  poll();
  return !status_.is_ok() ||
         std::all_of(pairs_.begin(), pairs_.end(), [](const QueuePair& pair) { return pair.idle(); });
}

void Connection::close(const Status& why) noexcept {
  if (std::exchange(closed_, true)) return;
  if (status_.is_ok()) status_ = why;
  for (QueuePair& pair : pairs_) pair.destroy();
  connection_.reset();
  for (const RailState& rail : rails_) rail.completions->release(rail.entries);
  completions_.remove(taker_);
  if (!socket_.valid()) return;
  completions_.unwatch(socket_.get());
  (void)::shutdown(socket_.get(), SHUT_RDWR);
}

void Connection::fail(Status status) {
  if (status_.is_ok()) status_ = std::move(status);
}

void Connection::check_posted(int error, const char* what) {
  if (error != 0 && status_.is_ok()) {
    fail(Status::system(fmt::format("rank {}: verbs: {} on {}", peer_, what, rails_[0].device->name()), error));
  }
}

}  // namespace tutti::internal::transport::verbs
