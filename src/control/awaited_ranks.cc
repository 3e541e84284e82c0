#include "control/awaited_ranks.h"

#include <algorithm>

#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// Almost all ranks find another parent sooner.
constexpr std::int64_t kRootAsksMs = 100;
constexpr std::int64_t kAllAskMs = 8000;     // if the root does not ask: it may be stopped
constexpr std::ptrdiff_t kMostAsked = 64;    // at the same time
constexpr std::int64_t kAskMs = 1000;        // the time to answer
constexpr std::int64_t kAskAgainMs = 1000;   // after an answer
constexpr std::int64_t kLongestMs = 10'000;  // between two questions to a rank that does not answer
constexpr std::int64_t kLeastWaitMs = 10;

}  // namespace

// A rank without another neighbour may have died unseen, together with the ranks below it: so these are awaited as
// well, until a rank above them is found.
void AwaitedRanks::await_below(int gone) {
  awaited_.erase(gone);
  for (const int rank : view_.below(gone, true)) {
    if (rank == view_.rank() || !view_.is_there(rank)) continue;
    Awaited& awaited = awaited_[rank];
    awaited = {};
    awaited.since_ns = now_ns();
    awaited.pause_ms = kAskAgainMs;
  }
}

void AwaitedRanks::ask_at_once(int rank) {
  if (!view_.is_there(rank)) return;
  Awaited& awaited = awaited_[rank];
  awaited = {};
  awaited.since_ns = now_ns();
  awaited.at_once = true;
  awaited.pause_ms = kAskAgainMs;
}

void AwaitedRanks::found(int rank) {
  awaited_.erase(rank);
  for (const int other : view_.below(rank, false)) awaited_.erase(other);
}

std::int64_t AwaitedRanks::ask_ns(const Awaited& awaited, bool is_root) {
  if (awaited.at_once) return awaited.not_before_ns;
  return std::max(awaited.not_before_ns, awaited.since_ns + (is_root ? kRootAsksMs : kAllAskMs) * kNsPerMs);
}

void AwaitedRanks::prepare(net::PollSet* set, bool is_root) {
  const std::int64_t now = now_ns();
  for (auto& [rank, awaited] : awaited_) {
    const std::int64_t next_ns = awaited.dial ? awaited.asked_ns + kAskMs * kNsPerMs : ask_ns(awaited, is_root);
    // A due rank does not make this wait end at once: the ranks being asked come first.
    set->wake_at(Deadline::after_ms(std::max(kLeastWaitMs, (next_ns - now + kNsPerMs - 1) / kNsPerMs)));
    if (awaited.dial) awaited.dial->prepare(set);
  }
}

void AwaitedRanks::forget_root() {
  const int root = view_.root();
  if (awaited_.contains(root)) found(root);
}

std::vector<int> AwaitedRanks::judge(const net::PollSet& set, bool is_root) {
  std::vector<int> lost;
  if (awaited_.empty()) return lost;
  forget_root();
  auto asked =
      std::count_if(awaited_.begin(), awaited_.end(), [](const auto& entry) { return entry.second.dial != nullptr; });
  for (auto& [rank, awaited] : awaited_) {
    if (!awaited.dial && asked < kMostAsked && now_ns() >= ask_ns(awaited, is_root)) {
      begin_asking(rank, &awaited);
      ++asked;
    }
    if (is_lost(rank, &awaited, set)) lost.push_back(rank);
  }
  for (const int rank : lost) awaited_.erase(rank);
  return lost;
}

void AwaitedRanks::begin_asking(int rank, Awaited* awaited) const {
  awaited->dial = dialler_.dial(rank, DialPurpose::kQuery);
  awaited->asked_ns = now_ns();
  if (!awaited->dial) awaited->not_before_ns = awaited->asked_ns + kLongestMs * kNsPerMs;
}

// Decides from the answer of the rank or of its host, or from a missing answer.
bool AwaitedRanks::is_lost(int rank, Awaited* awaited, const net::PollSet& set) const {
  const std::int64_t now = now_ns();
  const auto pause = [&](std::int64_t ms) {
    awaited->dial.reset();
    awaited->not_before_ns = now + ms * kNsPerMs;
  };
  if (awaited->dial) {
    awaited->dial->process(set);
    const bool refused = awaited->dial->gone_for(kRefusedMs);
    if (refused && awaited->refused_ns == 0) awaited->refused_ns = now - kRefusedMs * kNsPerMs;
    if (awaited->dial->done()) {  // it is alive, and gets time to find a parent
      awaited->since_ns = now;
      awaited->refused_ns = 0;
      awaited->pause_ms = kAskAgainMs;
      pause(kAskAgainMs);
    } else if (refused && dialler_.counts_as_dead(rank, awaited->refused_ns)) {
      return true;
    } else if (now >= awaited->asked_ns + kAskMs * kNsPerMs) {
      pause(awaited->pause_ms);
      awaited->pause_ms = std::min(awaited->pause_ms * 2, kLongestMs);
    }
  }
  return now >= awaited->since_ns + silence_ms_ * kNsPerMs;
}

}  // namespace tutti::internal::control
