#include "net/acceptor.h"

#include <fmt/core.h>

#include "base/log.h"
#include "os/clock.h"
#include "os/kernel.h"

namespace tutti::internal::net {
namespace {

constexpr std::int64_t kPauseMs = 10;
constexpr std::int64_t kWarningPauseMs = 10'000;

}  // namespace

void Acceptor::add_listener(UniqueFd listener, bool is_unix) {
  listeners_.push_back({std::move(listener), is_unix, 0, false});
}

void Acceptor::limit_queues(int most) {
  for (const Listener& listener : listeners_) os::kernel().listen(listener.fd.get(), most);
}

void Acceptor::prepare(PollSet* set) {
  const std::int64_t now = now_ns();
  const bool full = pending_.size() >= kMaxPending && now < pending_.front().accepted_ns + kMinPatienceMs * kNsPerMs;
  const bool paused = now < pause_until_ns_;
  for (Listener& listener : listeners_) {
    listener.polled = !paused && !full;
    if (listener.polled) listener.entry = set->add(listener.fd.get(), POLLIN);
  }
  if (paused) set->wake_at(Deadline::after_ms((pause_until_ns_ - now) / kNsPerMs + 1));
  if (full) set->wake_at(Deadline::after_ms(kPauseMs));
  for (Pending& pending : pending_) {
    pending.polled = true;
    pending.entry = set->add(pending.stream.get(), pending.handshake.events());
  }
  if (!pending_.empty()) {
    const std::int64_t left_ns = pending_.front().accepted_ns + kHandshakeMs * kNsPerMs - now;
    set->wake_at(Deadline::after_ms(left_ns / kNsPerMs + 1));
    // Somebody else in this process may want their descriptors.
    set->wake_at(Deadline::after_ms(kMinPatienceMs));
  }
}

void Acceptor::process(const PollSet& set) {
  const std::int64_t now = now_ns();
  for (auto at = pending_.begin(); at != pending_.end();) {
    const bool silent = now >= at->accepted_ns + kHandshakeMs * kNsPerMs;
    const bool moved = at->polled && set.ready(at->entry) != 0;
    const bool gone = (moved && advance(&*at)) || silent;
    at = gone ? pending_.erase(at) : std::next(at);
  }
  if (Shortage::anywhere()) give_up_strangers();
  for (Listener& listener : listeners_) {
    if (listener.polled && now_ns() >= pause_until_ns_ && set.ready(listener.entry) != 0) accept_from(&listener);
  }
}

// Closes pending connections one by one, first those that have had time to authenticate. The next unauthenticated peer
// must not take the freed descriptor at once.
void Acceptor::give_up_strangers() {
  pause_until_ns_ = now_ns() + kPauseMs * kNsPerMs;
  if (!pending_.empty() && now_ns() >= pending_.front().accepted_ns + kMinPatienceMs * kNsPerMs) pending_.pop_front();
}

std::vector<Authenticated> Acceptor::take() {
  std::vector<Authenticated> result;
  result.swap(ready_);
  return result;
}

// True if there is room for one more.
bool Acceptor::make_room() {
  if (pending_.size() < kMaxPending) return true;
  if (now_ns() < pending_.front().accepted_ns + kMinPatienceMs * kNsPerMs) return false;
  pending_.pop_front();
  return true;
}

void Acceptor::accept_from(Listener* listener) {
  while (make_room()) {
    Result<UniqueFd> accepted = accept_one(listener->fd.get());
    if (!accepted.is_ok()) {
      // Out of descriptors or memory: pending connections are closed, here or elsewhere in this process.
      pending_.empty() ? shortage_.note(accepted.status()) : shortage_.end();
      log::debug(accepted.status().message());
      give_up_strangers();
      return;
    }
    shortage_.end();
    if (!accepted->valid()) return;
    pending_.push_back({ByteStream(std::move(accepted).value()), listener->is_unix,
                        Handshake(Handshake::Role::kAcceptor, secret_, mine_), now_ns(), 0, false});
    // Often the greeting has already arrived.
    if (advance(&pending_.back())) pending_.pop_back();
  }
}

// True if the connection is no longer pending: authenticated or refused.
bool Acceptor::advance(Pending* pending) {
  Result<bool> finished = pending->handshake.advance(&pending->stream);
  if (!finished.is_ok()) {
    if (pending->handshake.wrong_secret() || pending->handshake.other_version()) {
      warn_of_refusal(*pending, finished.status());
    } else {
      log::debug("refused a connection: " + finished.status().message());
    }
    return true;
  }
  if (*finished) ready_.push_back({std::move(pending->stream), pending->handshake.peer(), pending->is_unix});
  return *finished;
}

// Usually this is a rank of this job with another secret or library, which can never connect. It retries often, so not
// every attempt is logged.
void Acceptor::warn_of_refusal(const Pending& pending, const Status& why) {
  ++unwarned_;
  const std::int64_t now = now_ns();
  if (now < next_warning_ns_) return;
  next_warning_ns_ = now + kWarningPauseMs * kNsPerMs;
  Result<Address> from = peer_address(pending.stream.get());
  const std::string whose = mine_.rank < 0 ? "the job's root" : fmt::format("rank {}", mine_.rank);
  const std::string refused = unwarned_ == 1 ? "a connection" : fmt::format("{} connections", unwarned_);
  const std::string whence = from.is_ok() ? from->text() : "an unknown address";
  if (pending.handshake.other_version()) {
    log::warn(fmt::format("{} refused {}, the last from {}: {}. Load the same library on all ranks", whose, refused,
                          whence, why.message()));
  } else {
    log::warn(
        fmt::format("{} refused {} with a different secret, the last from {}. Set the same TUTTI_SECRET on all ranks, "
                    "and check that every rank has this job's unique id or address",
                    whose, refused, whence));
  }
  unwarned_ = 0;
}

}  // namespace tutti::internal::net
