#include "transport/connections/reconnector.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "net/frame.h"
#include "net/socket.h"
#include "os/clock.h"

namespace tutti::internal {
namespace {

using StreamState = ReconnectingLink::State;

// A rank that leaves closes its side, and its leave notice may come a little later.
constexpr std::int64_t kLeavingMs = 50;
// The side that does not dial asks for the stream if it has not been dialled by then, and again after kAskAgainMs.
constexpr std::int64_t kAskMs = 100;
constexpr std::int64_t kAskAgainMs = 1000;
// The kernel repeats unanswered connection requests at growing intervals. After an outage, a new request is sooner.
constexpr std::int64_t kRedialMs = 1000;
constexpr std::int64_t kAgainMs = 20;
// A rank listens as long as it lives (connector.cc): if its host refuses for this time, it has ended. The same if it
// only closes connections for the stream: its link has ended.
constexpr std::int64_t kPeerGoneMs = 500;
// Connections for streams of links that this side has not made yet.
constexpr std::size_t kMostArrivals = 1024;
constexpr std::size_t kMessageBytes = 16;
// Numbers of attempts that may have been lost between two that arrive: more than there is time for. So the numbers do
// not run out, whatever a member of the job sends.
constexpr std::uint64_t kMostSkipped = std::uint64_t{1} << 32;
constexpr std::uint64_t kStreamBits = 4;  // a link has at most 16 streams

std::string message_of(std::uint64_t attempt, std::uint64_t received) {
  return net::Packer().number(attempt).number(received).bytes();
}

// It fits into the empty buffer of a new connection.
bool send_message(net::ByteStream* stream, const std::string& message) {
  return stream->send(message.data(), message.size()) == static_cast<ssize_t>(message.size());
}

enum class Receipt : std::uint8_t {
  kWaits,
  kDone,
  kClosed,  // by the peer
  kBroken,
};

// Reads no byte behind the message: those belong to the stream.
Receipt read_message(net::ByteStream* stream, std::string* message) {
  std::array<char, kMessageBytes> bytes{};
  while (message->size() < kMessageBytes) {
    const ssize_t got = stream->recv(bytes.data(), kMessageBytes - message->size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && net::would_block(errno)) return Receipt::kWaits;
    if (got <= 0) return got == 0 ? Receipt::kClosed : Receipt::kBroken;
    message->append(bytes.data(), static_cast<std::size_t>(got));
  }
  return Receipt::kDone;
}

std::pair<std::uint64_t, std::uint64_t> numbers_of(const std::string& message) {
  net::Unpacker unpacker(message);
  const auto attempt = unpacker.number<std::uint64_t>();
  return {attempt, unpacker.number<std::uint64_t>()};
}

// Also if the peer has sent more before.
bool is_closed(int socket) {
  pollfd entry{socket, POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) > 0;
}

std::int64_t ms_since(std::int64_t then_ns) {
  return (now_ns() - then_ns) / kNsPerMs;
}

void wake_by(net::PollSet* set, std::int64_t at_ns) {
  set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, at_ns - now_ns()) / kNsPerMs + 1));
}

}  // namespace

Reconnector::~Reconnector() {
  const MutexLock lock(mutex_);
  visit_.reset();
}

Status Reconnector::begin() {
  const MutexLock lock(mutex_);
  if (ends_.valid()) return {};
  auto bell = EventFd::create();
  if (!bell.is_ok()) return bell.status();
  UniqueFd ends(::epoll_create1(EPOLL_CLOEXEC));
  if (!ends.valid()) return Status::system("epoll_create1", errno);
  bell_ = std::move(*bell);
  ends_ = std::move(ends);
  listeners_->subscribe_streams(bell_.fd());
  return {};
}

bool Reconnector::has_begun() {
  const MutexLock lock(mutex_);
  return ends_.valid();
}

Status Reconnector::add(ReconnectingLink* link, Peer peer, const FailureState& failure, std::int64_t limit_ms) {
  const MutexLock lock(mutex_);
  if (!ends_.valid()) return Status::internal("streams are to be made anew, but begin() has not been called");
  const std::uint64_t id = ++last_id_;
  Link whole{link, std::move(peer), &failure, limit_ms, std::vector<Stream>(link->streams())};
  const Link& added = links_.emplace(id, std::move(whole)).first->second;
  for (std::size_t i = 0; i < added.streams.size(); ++i) watch(id, i, added);
  notice();  // the listeners must be attended from now on
  return {};
}

void Reconnector::remove(const ReconnectingLink* link) noexcept {
  const MutexLock lock(mutex_);
  for (auto at = links_.begin(); at != links_.end(); ++at) {
    if (at->second.link != link) continue;
    for (std::size_t i = 0; i < at->second.streams.size(); ++i) unwatch(i, at->second);
    links_.erase(at);
    return;
  }
}

void Reconnector::watch(std::uint64_t id, std::size_t stream, const Link& link) const {
  epoll_event event{};
  event.events = EPOLLRDHUP | EPOLLET;
  event.data.u64 = id << kStreamBits | stream;
  (void)::epoll_ctl(ends_.get(), EPOLL_CTL_ADD, link.link->socket(stream), &event);
}

void Reconnector::unwatch(std::size_t stream, const Link& link) const {
  (void)::epoll_ctl(ends_.get(), EPOLL_CTL_DEL, link.link->socket(stream), nullptr);
}

// ---- The poll loop --------------------------------------------------------------------------------

void Reconnector::prepare(net::PollSet* set) noexcept {
  const MutexLock lock(mutex_);
  prepared_ = false;
  if (!ends_.valid()) return;
  (void)guarded([&] {
    mutex_.assert_held();
    bell_entry_ = set->add(bell_.fd(), POLLIN);
    ends_entry_ = set->add(ends_.get(), POLLIN);
    if (links_.empty()) {
      visit_.reset();
      arrivals_.clear();
    } else {
      if (!visit_) visit_.emplace(*listeners_, std::vector<std::uint64_t>());
      visit_->prepare(set);
    }
    for (Arrival& arrival : arrivals_) {
      arrival.entry = set->add(arrival.connection.stream, arrival.message.size() < kMessageBytes ? POLLIN : POLLRDHUP);
      arrival.polled = true;
    }
    if (busy_) prepare_streams(set);
    prepared_ = true;
    return Status();
  });
}

void Reconnector::prepare_streams(net::PollSet* set) {
  for (auto& [id, link] : links_) {
    for (std::size_t i = 0; i < link.streams.size(); ++i) {
      Stream& stream = link.streams[i];
      if (stream.resends) set->add(link.link->socket(i), POLLOUT);
      if (!stream.repair) continue;
      Repair& repair = *stream.repair;
      repair.polled = false;
      if (repair.stream.valid()) {
        repair.entry = set->add(repair.stream, POLLIN);
        repair.polled = true;
        if (link.peer.silence_ms > 0) set->wake_at(Deadline::after_ms(net::silence_look_ms(link.peer.silence_ms)));
        continue;  // the peer has as long as it lives
      }
      if (repair.dial) {
        repair.dial->prepare(set);
        repair.polled = true;
        if (repair.dial->connected()) continue;
        wake_by(set, repair.dialled_ns + kRedialMs * kNsPerMs);
      } else {
        wake_by(set, repair.next_ns);
      }
      wake_by(set, repair.unreached_ns + link.limit_ms * kNsPerMs);
    }
  }
}

void Reconnector::process(const net::PollSet& set) noexcept {
  const MutexLock lock(mutex_);
  if (!std::exchange(prepared_, false)) return;
  (void)guarded([&] {
    mutex_.assert_held();
    if (visit_) visit_->process(set);
    if (set.ready(bell_entry_) != 0) {
      bell_.clear();
      busy_ = true;
    }
    if (set.ready(ends_entry_) != 0) see_ends();
    take_in(set);
    if (!busy_) return Status();
    bool busy = false;
    for (auto& [id, link] : links_) {
      for (std::size_t i = 0; i < link.streams.size(); ++i) {
        advance(id, &link, i, set);
        busy = busy || link.streams[i].repair || link.streams[i].resends;
      }
    }
    busy_ = busy;  // last: without memory, the next call goes on
    return Status();
  });
}

void Reconnector::see_ends() {
  std::array<epoll_event, 64> events{};
  const int ready = ::epoll_wait(ends_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < ready; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const auto at = links_.find(event.data.u64 >> kStreamBits);
    if (at == links_.end()) continue;
    const auto stream = static_cast<std::size_t>(event.data.u64 & ((1U << kStreamBits) - 1));
    at->second.link->note_end(stream, (event.events & (EPOLLHUP | EPOLLERR)) != 0);
    busy_ = true;
  }
}

// ---- The side that accepts ------------------------------------------------------------------------

void Reconnector::take_in(const net::PollSet& set) {
  for (net::Authenticated& connection : listeners_->take_streams()) {
    if (arrivals_.size() >= kMostArrivals) arrivals_.pop_front();
    arrivals_.push_back({std::move(connection), "", false, 0});
  }
  for (auto at = arrivals_.begin(); at != arrivals_.end();) {
    const bool complete = at->message.size() == kMessageBytes;
    const bool moved = !std::exchange(at->polled, false) || set.ready(at->entry) != 0;
    const bool over = (moved || complete) && advance(&*at);
    at = over ? arrivals_.erase(at) : std::next(at);
  }
}

// True: nothing more is to do with it.
bool Reconnector::advance(Arrival* arrival) {
  switch (read_message(&arrival->connection.stream, &arrival->message)) {
    case Receipt::kWaits: return false;
    case Receipt::kClosed:
    case Receipt::kBroken: return true;
    case Receipt::kDone: break;
  }
  const auto [attempt, received] = numbers_of(arrival->message);
  return accept(arrival, attempt, received);
}

bool Reconnector::accept(Arrival* arrival, std::uint64_t attempt, std::uint64_t received) {
  const net::Claim& claim = arrival->connection.peer;
  const auto at = std::find_if(links_.begin(), links_.end(), [&](const auto& entry) {
    const Peer& peer = entry.second.peer;
    return peer.communicator == claim.communicator && peer.job_rank == claim.rank;
  });
  // This side may still be making the link.
  if (at == links_.end()) return is_closed(arrival->connection.stream.get());
  Link& link = at->second;
  const std::size_t index = claim.index;
  if (index >= link.streams.size() || link.link->condition(index).state == StreamState::kOver) return true;
  Stream& stream = link.streams[index];
  if (link.peer.dialled) {
    if (attempt == stream.connected) link.link->note_end(index, true);
    if (attempt == stream.tried && stream.repair && stream.repair->stream.valid()) end_attempt(stream.repair.get());
    busy_ = true;
    return true;
  }
  if (attempt <= stream.connected || attempt - stream.connected > kMostSkipped) {
    (void)send_message(&arrival->connection.stream, message_of(stream.connected + 1, 0));
    return true;
  }
  unwatch(index, link);
  const std::uint64_t here = link.link->stop(index);
  if (!stream.repair) {
    stream.repair = std::make_unique<Repair>();
    stream.repair->broken = link.link->condition(index);
    stream.repair->unreached_ns = now_ns();
  }
  busy_ = true;
  if (!send_message(&arrival->connection.stream, message_of(attempt, here))) return true;
  stream.connected = attempt;
  resume(at->first, &link, index, std::move(arrival->connection.stream), received);
  return true;
}

// ---- The side that dials, or asks -----------------------------------------------------------------

void Reconnector::advance(std::uint64_t id, Link* link, std::size_t index, const net::PollSet& set) {
  Stream& stream = link->streams[index];
  if (stream.resends && link->link->resend(index)) stream.resends = false;
  const ReconnectingLink::Condition condition = link->link->condition(index);
  const bool needless = condition.state == StreamState::kWhole || condition.state == StreamState::kOver ||
                        link->failure->failed() ||
                        (link->failure->any_departed() && link->failure->departed(link->peer.rank));
  if (needless) return stream.repair.reset();
  if (!stream.repair) {
    const std::int64_t wait_ms =
        (condition.state == StreamState::kEnded ? kLeavingMs : 0) + (link->peer.dialled ? 0 : kAskMs);
    stream.repair = std::make_unique<Repair>();
    stream.repair->broken = condition;
    stream.repair->next_ns = condition.since_ns + wait_ms * kNsPerMs;
    stream.repair->unreached_ns = condition.since_ns;
  }
  Repair& repair = *stream.repair;
  if (repair.stream.valid()) {
    const std::int64_t silence_ms = link->peer.silence_ms;
    if (silence_ms > 0 && net::is_silent(repair.stream.get(), silence_ms)) end_attempt(&repair);
    if (std::exchange(repair.polled, false) && set.ready(repair.entry) != 0) read_answer(id, link, index);
    return;
  }
  advance_dial(link, index, set);
}

void Reconnector::advance_dial(Link* link, std::size_t index, const net::PollSet& set) {
  Repair& repair = *link->streams[index].repair;
  if (!repair.dial && now_ns() >= repair.next_ns) {
    repair.dial = dial(*link, index);
    repair.dialled_ns = now_ns();
    repair.polled = false;
  }
  if (repair.dial) {
    net::Dial& dial = *repair.dial;
    if (std::exchange(repair.polled, false)) dial.process(set);
    if (dial.done()) return dialled(link, index);
    if (dial.connected()) {
      repair.unreached_ns = now_ns();
    } else if (!dial.shortage().is_ok()) {
      return give_up(link, index, ": " + dial.shortage().message());
    } else if (dial.gone_for(kPeerGoneMs)) {
      return give_up(link, index,
                     fmt::format(": {} has ended: its address is no longer served by this job ({})", link->peer.name,
                                 dial.trouble()));
    } else if (ms_since(repair.dialled_ns) >= kRedialMs) {
      repair.trouble = dial.trouble();
      repair.dial.reset();
      repair.refused_ns = 0;
      repair.next_ns = now_ns() + kAgainMs * kNsPerMs;
    }
  }
  if (ms_since(repair.unreached_ns) < link->limit_ms) return;
  give_up(link, index,
          fmt::format(" within {} ms ({})", link->limit_ms, repair.dial ? repair.dial->trouble() : repair.trouble));
}

std::unique_ptr<net::Dial> Reconnector::dial(const Link& link, std::size_t index) const {
  const net::Claim claim{net::Purpose::kStream,
                         rank_,
                         static_cast<std::uint16_t>(index),
                         static_cast<std::uint16_t>(link.streams.size()),
                         link.peer.communicator,
                         encryption_};
  const net::DialOptions options{.patient = true, .first_is_sure = link.peer.first_is_sure};
  return std::make_unique<net::Dial>(link.peer.addresses, secret_, claim, link.peer.job_rank, options);
}

void Reconnector::dialled(Link* link, std::size_t index) {
  Stream& stream = link->streams[index];
  Repair& repair = *stream.repair;
  net::ByteStream made = repair.dial->take();
  repair.dial.reset();
  repair.next_ns = now_ns() + (link->peer.dialled ? kAgainMs : kAskAgainMs) * kNsPerMs;
  repair.unreached_ns = repair.next_ns;
  if (!link->peer.dialled) {
    (void)send_message(&made, message_of(stream.connected, 0));
    return;
  }
  unwatch(index, *link);
  const std::uint64_t received = link->link->stop(index);
  if (!send_message(&made, message_of(++stream.tried, received))) return;
  net::watch_silence(made.get(), link->peer.silence_ms);
  repair.answer.clear();
  repair.ended_here = false;
  repair.stream = std::move(made);
}

void Reconnector::dial_again(Repair* repair) {
  repair->stream.reset();
  repair->unreached_ns = now_ns();
  repair->next_ns = now_ns() + kAgainMs * kNsPerMs;
}

// The answer, and bytes behind it, may have arrived. read_answer() comes to them next.
void Reconnector::end_attempt(Repair* repair) {
  repair->ended_here = true;
  (void)::shutdown(repair->stream.get(), SHUT_RDWR);
}

// Bytes of the stream may follow the answer, and the peer may rely on them once this side's kernel has them. So this
// side does not close the connection before it has seen its end.
void Reconnector::read_answer(std::uint64_t id, Link* link, std::size_t index) {
  Stream& stream = link->streams[index];
  Repair& repair = *stream.repair;
  const Receipt reading = read_message(&repair.stream, &repair.answer);
  if (reading == Receipt::kWaits) return;
  if (reading != Receipt::kDone) {
    dial_again(&repair);
    if (reading == Receipt::kBroken || repair.ended_here) return;
    // Earlier ones do not count if the peer was out of reach since.
    if (repair.refused_ns == 0 || ms_since(repair.dialled_ns) >= kPeerGoneMs) repair.refused_ns = now_ns();
    if (ms_since(repair.refused_ns) >= kPeerGoneMs)
      give_up(link, index, ": " + link->peer.name + " has ended the link");
    return;
  }
  const auto [attempt, received] = numbers_of(repair.answer);
  if (attempt > stream.tried) {
    stream.tried = attempt - 1;
    return dial_again(&repair);
  }
  if (attempt != stream.tried) return give_up(link, index, ": protocol error: an answer to another attempt");
  stream.connected = attempt;
  resume(id, link, index, std::move(repair.stream), received);
}

// ---- Both -----------------------------------------------------------------------------------------

void Reconnector::resume(std::uint64_t id, Link* link, std::size_t index, net::ByteStream made,
                         std::uint64_t received) {
  Stream& stream = link->streams[index];
  net::watch_silence(made.get(), link->peer.silence_ms);
  net::set_unpaced_if_local(made.get());
  auto again = link->link->resume(index, std::move(made), received);
  if (!again.is_ok()) return give_up(link, index, ": " + again.status().message());
  constexpr double kBytesOfKb = 1000;
  log::info(fmt::format("rank {}: tcp connection made anew after {} ms, {} kB sent again", link->peer.rank,
                        ms_since(stream.repair->broken.since_ns),
                        std::lround(static_cast<double>(*again) / kBytesOfKb)));
  watch(id, index, *link);
  stream.resends = !link->link->resend(index);
  stream.repair.reset();
}

void Reconnector::give_up(Link* link, std::size_t index, const std::string& why) {
  link->link->give_up(index, why);
  link->streams[index].repair.reset();
}

}  // namespace tutti::internal
