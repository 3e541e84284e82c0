#include "net/dial.h"

#include <algorithm>
#include <utility>

#include "os/clock.h"

namespace tutti::internal::net {

Dial::Dial(const std::vector<Address>& targets, const Secret& secret, const Claim& mine, std::int32_t expected_rank,
           DialOptions options)
    : secret_(secret), mine_(mine), expected_rank_(expected_rank), options_(options), refused_since_ns_(now_ns()) {
  for (const Address& target : targets) {
    attempts_.push_back({target, ByteStream(), Handshake(Handshake::Role::kDialler, secret_, mine_, expected_rank_),
                         false, false, false, 0, 0, 0, 1, "", 0, 0, 0, 0, false, false, false});
  }
}

void Dial::prepare(PollSet* set) {
  const std::int64_t now = now_ns();
  const bool proven = this->proven();
  bool may_start = !proven;  // all addresses before this one have failed or are silent
  for (Attempt& attempt : attempts_) {
    if (done()) return;
    if (!attempt.stream.valid() && may_start && now >= attempt.next_ns) begin(&attempt);
    attempt.polled = attempt.stream.valid();
    if (!attempt.polled) {
      if (attempt.started && !proven)
        set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, attempt.next_ns - now) / kNsPerMs + 1));
      continue;
    }
    attempt.entry = set->add(attempt.stream.get(), attempt.connected ? attempt.handshake.events() : POLLOUT);
    const std::int64_t silent_ms = (now - attempt.begun_ns) / kNsPerMs;
    if (proven) continue;
    prepare_second(&attempt, set);
    if (silent_ms < kStaggerMs) {
      may_start = false;
      set->wake_at(Deadline::after_ms(kStaggerMs - silent_ms));
    }
    if (!options_.patient) set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, kHandshakeMs - silent_ms)));
  }
}

bool Dial::doubts() const {
  return options_.first_is_sure && !attempts_.empty() && attempts_.front().absent_since_ns != 0;
}

void Dial::prepare_second(Attempt* attempt, PollSet* set) {
  if (attempt->connected || !doubts()) return;
  if (attempt->second_ns == 0) {
    const std::int64_t silent_ms = (now_ns() - attempt->begun_ns) / kNsPerMs;
    if (silent_ms < kSecondMs) return set->wake_at(Deadline::after_ms(kSecondMs - silent_ms));
    Result<UniqueFd> fd = start_connect(attempt->address);
    if (fd.is_ok()) attempt->second = std::move(fd).value();
    attempt->second_ns = now_ns();
  }
  attempt->second_polled = attempt->second.valid();
  if (attempt->second_polled) attempt->second_entry = set->add(attempt->second.get(), POLLOUT);
}

// If it is connected, it replaces the first connection.
void Dial::read_second(std::size_t index, const PollSet& set) {
  Attempt& attempt = attempts_[index];
  if (!std::exchange(attempt.second_polled, false) || set.ready(attempt.second_entry) == 0) return;
  const Status connected = connect_result(attempt.second.get());
  if (connected.code() == Code::kInProgress) return;
  if (!connected.is_ok()) return fail(&attempt, connected);
  attempt.stream = ByteStream(std::move(attempt.second));
  attempt.begun_ns = attempt.second_ns;
  attempt.polled = false;
  advance(index);
}

// Neither connection gets an answer.
bool Dial::is_silent(const Attempt& attempt) {
  return attempt.stream.valid() && attempt.second_ns != 0 && now_ns() - attempt.second_ns >= kSecondMs * kNsPerMs;
}

void Dial::process(const PollSet& set) {
  for (std::size_t i = 0; i < attempts_.size() && !done(); ++i) {
    Attempt& attempt = attempts_[i];
    if (attempt.stream.valid() && !attempt.connected) read_second(i, set);
    if (!attempt.polled || !attempt.stream.valid()) continue;
    attempt.polled = false;
    if (set.ready(attempt.entry) != 0) {
      advance(i);
    } else if (!options_.patient && !attempt.handshake.awaits_welcome() &&
               now_ns() - attempt.begun_ns >= kHandshakeMs * kNsPerMs) {
      fail(&attempt, Status::timeout(attempt.connected ? "no answer" : "cannot connect"));
      attempt.silent = true;
    }
  }
  if (done()) attempts_.clear();
}

bool Dial::refused_for(std::int64_t ms) const {
  const bool any_silent = std::any_of(attempts_.begin(), attempts_.end(), [](const Attempt& a) { return a.silent; });
  return all_failed() && !any_silent && !connected() && !shortage_.now() &&
         now_ns() - refused_since_ns_ >= ms * kNsPerMs;
}

bool Dial::any_refused() const {
  return std::any_of(attempts_.begin(), attempts_.end(), [](const Attempt& a) { return a.refused; });
}

bool Dial::only_since(std::int64_t Attempt::*since_ns, std::int64_t ms) const {
  const std::int64_t latest_ns = now_ns() - ms * kNsPerMs;
  return all_failed() && !connected() && std::any_of(attempts_.begin(), attempts_.end(), [&](const Attempt& a) {
           return a.*since_ns != 0 && a.*since_ns <= latest_ns;
         });
}

bool Dial::foreign_for(std::int64_t ms) const {
  return only_since(&Attempt::foreign_since_ns, ms);
}

bool Dial::other_version_for(std::int64_t ms) const {
  return only_since(&Attempt::other_version_since_ns, ms);
}

bool Dial::gone_for(std::int64_t ms) const {
  const std::int64_t since_ns = now_ns() - ms * kNsPerMs;
  const auto is_absent = [&](const Attempt& a) { return a.absent_since_ns != 0 && a.absent_since_ns <= since_ns; };
  if (connected()) return false;
  if (doubts() && is_absent(attempts_.front())) {
    return std::all_of(attempts_.begin() + 1, attempts_.end(),
                       [](const Attempt& a) { return a.stream.valid() ? is_silent(a) : !a.error.empty(); });
  }
  return std::all_of(attempts_.begin(), attempts_.end(), is_absent);
}

bool Dial::refuses_calls_for(std::int64_t ms) const {
  const std::int64_t since_ns = now_ns() - ms * kNsPerMs;
  return !attempts_.empty() && std::all_of(attempts_.begin(), attempts_.end(), [&](const Attempt& a) {
    return a.uncallable_since_ns != 0 && a.uncallable_since_ns <= since_ns;
  });
}

Status Dial::shortage() const {
  if (!shortage_.lasting().is_ok()) return shortage_.lasting();
  return refuses_calls_for(Shortage::kShortageMs) ? Status(Code::kSystemError, trouble()) : Status();
}

bool Dial::unreachable() const {
  return std::all_of(attempts_.begin(), attempts_.end(),
                     [](const Attempt& a) { return !a.error.empty() && !a.reached; });
}

// The answering side is slow, but may be the peer.
bool Dial::connected() const {
  return std::any_of(attempts_.begin(), attempts_.end(),
                     [](const Attempt& a) { return a.stream.valid() && a.connected; });
}

bool Dial::proven() const {
  return std::any_of(attempts_.begin(), attempts_.end(),
                     [](const Attempt& a) { return a.stream.valid() && a.handshake.awaits_welcome(); });
}

bool Dial::all_failed() const {
  return std::all_of(attempts_.begin(), attempts_.end(), [](const Attempt& a) { return !a.error.empty(); });
}

std::string Dial::trouble() const {
  std::string text;
  for (const Attempt& attempt : attempts_) {
    const std::string why = !attempt.error.empty() ? attempt.error : attempt.started ? "no answer" : "not tried";
    text += (text.empty() ? "" : "; ") + attempt.address.text() + ": " + why;
  }
  return text;
}

std::string Dial::likely_cause() const {
  if (lacks()) return {};
  if (connected() || std::any_of(attempts_.begin(), attempts_.end(), [](const Attempt& a) { return a.reached; })) {
    return {};
  }
  if (any_refused()) {
    return "that host answers, but no process listens there: has the process started, on that host, and is the port "
           "right?";
  }
  return "no answer from there: check the address, that the host is up, and that no packet filter (firewall) blocks "
         "the port";
}

void Dial::begin(Attempt* attempt) {
  attempt->started = true;
  attempt->connected = false;
  attempt->second_ns = 0;
  attempt->begun_ns = now_ns();
  attempt->handshake = Handshake(Handshake::Role::kDialler, secret_, mine_, expected_rank_);
  Result<UniqueFd> fd = start_connect(attempt->address);
  if (fd.is_ok()) {
    attempt->stream = ByteStream(std::move(fd).value());
    shortage_.end();
    return;
  }
  if (fd.status().code() == Code::kInProgress) {
    attempt->next_ns = now_ns() + kNsPerMs;
    return;
  }
  fail(attempt, fd.status());
}

void Dial::fail(Attempt* attempt, const Status& why) {
  const bool foreign = attempt->connected && attempt->handshake.wrong_secret();
  const bool refused = !attempt->connected && why.code() == Code::kRemoteError;
  const auto keep = [](bool holds, std::int64_t* since_ns) {
    *since_ns = !holds ? 0 : *since_ns != 0 ? *since_ns : now_ns();
  };
  keep(foreign, &attempt->foreign_since_ns);
  keep(attempt->connected && attempt->handshake.other_version(), &attempt->other_version_since_ns);
  keep(foreign || refused, &attempt->absent_since_ns);
  keep(why.code() == Code::kSystemError && !why.is_exhaustion(), &attempt->uncallable_since_ns);
  attempt->refused = refused;
  attempt->silent = false;
  attempt->reached = attempt->connected || why.is_exhaustion();
  // A process listens there, even if it is not the peer. A local shortage says nothing about the peer.
  if (attempt->reached) refused_since_ns_ = now_ns();
  if (why.is_exhaustion()) shortage_.note(why);
  attempt->stream.reset();
  attempt->second.reset();
  attempt->error = why.message();
  attempt->next_ns = now_ns() + attempt->backoff_ms * kNsPerMs;
  attempt->backoff_ms = std::min(attempt->backoff_ms * 2, kMaxBackoffMs);
}

void Dial::advance(std::size_t index) {
  Attempt& attempt = attempts_[index];
  if (!attempt.connected) {
    const Status connected = connect_result(attempt.stream.get());
    if (connected.code() == Code::kInProgress) return;
    if (!connected.is_ok()) return fail(&attempt, connected);
    attempt.connected = true;
  }
  Result<bool> finished = attempt.handshake.advance(&attempt.stream);
  if (!finished.is_ok()) return fail(&attempt, finished.status());
  if (*finished) {
    stream_ = std::move(attempt.stream);
  } else if (attempt.handshake.awaits_welcome()) {
    for (Attempt& other : attempts_) {
      other.second.reset();
      if (&other != &attempt) other.stream.reset();
    }
  }
}

}  // namespace tutti::internal::net
