#include "control/all_gather.h"

#include <algorithm>
#include <utility>

#include "base/rank_list.h"
#include "control/tree_shape.h"

namespace tutti::internal::control {
namespace {

// No rank contributes to a round before all ranks have contributed to the previous one.
constexpr std::uint32_t kRoundsAhead = 1;

}  // namespace

std::uint32_t AllGather::begin(const std::string& mine) {
  const MutexLock lock(shared_.mutex);
  const std::uint32_t round = next_round_++;
  static_cast<void>(gathering(round));  // from now on other ranks' parts are kept
  shared_.commands.parts.emplace_back(round, mine);
  return round;
}

// A failure after the last part does not end the wait: watch() reports it. A rank that joins last has all parts at
// once, and may stop running after that: so its own part is sent to the others first.
Result<std::vector<std::string>> AllGather::await(std::uint32_t round, Deadline deadline,
                                                  const ControlTree::GivesUp& gives_up) {
  const MutexLock lock(shared_.mutex);
  for (;;) {
    const Gathering& at = gathering(round);
    const bool complete = members_.are_all(at.places);
    if (complete && (at.passed_on || !shared_.failure.is_ok())) break;
    if (!complete) {
      if (Status s = hopeless(round, at); !s.is_ok()) return s;
    }
    if (deadline.passed()) {
      return Status::timeout("timed out during the initialisation, waiting for " + list_ranks(to_blame(at.places)));
    }
    if (gives_up) {
      if (Status s = gives_up(); !s.is_ok()) return s;
    }
    shared_.changed.wait_until(shared_.mutex,
                               gives_up ? Deadline::after_ms(deadline.left_ms(kFailureCheckMs)) : deadline);
  }
  std::vector<std::string> result(static_cast<std::size_t>(members_.size()));
  std::vector<std::string>& parts = gathering(round).parts;
  for (std::size_t place = 0; place < parts.size(); ++place) {
    result[static_cast<std::size_t>(members_.rank_at(static_cast<int>(place)))] = std::move(parts[place]);
  }
  gatherings_.erase(round);
  return result;
}

AllGather::Gathering& AllGather::gathering(std::uint32_t round) {
  Gathering& at = gatherings_[round];
  at.parts.resize(static_cast<std::size_t>(members_.size()));
  return at;
}

// A leave notice may overtake its rank's parts while the tree heals. So a part that the rank has given is awaited: the
// members that have it resend it.
Status AllGather::hopeless(std::uint32_t round, const Gathering& at) {
  if (!shared_.failure.is_ok()) return shared_.failure;
  for (const LeaveNotice& left : shared_.departed) {
    const RankSet missed = left.places.without(at.places);
    if (missed.empty() || is_before(round, left.rounds)) continue;
    return Status::remote(list_ranks({members_.rank_at(missed.front())}) + " left during the initialisation");
  }
  return {};
}

// Of the ranks whose parts are missing, those next to a rank whose part is here, or next to this rank: a rank that
// forwards nothing may hide the ranks behind it.
std::vector<int> AllGather::to_blame(const RankSet& places) const {
  const auto here = [&](int rank) { return rank == members_.rank() || places.contains(members_.place_of(rank)); };
  const int self = members_.self();
  const auto towards_self = [&](int job_rank) {
    int below = self;  // the ancestor of this rank that is a child of job_rank, if there is one
    while (below > job_rank && tree_parent(below) > job_rank) below = tree_parent(below);
    return below > job_rank && tree_parent(below) == job_rank ? below : tree_parent(job_rank);
  };
  std::vector<int> blamed;
  for (int rank = 0; rank < members_.size(); ++rank) {
    if (here(rank)) continue;
    int next = towards_self(members_.job_rank_of(rank));
    while (next != self && members_.rank_of(next) < 0) next = towards_self(next);
    if (here(members_.rank_of(next))) blamed.push_back(rank);
  }
  return blamed;
}

void AllGather::give(std::uint32_t round, std::string part) {
  const RankSet place = members_.own_place();
  {
    // The lock is taken only here: a failure that the tree's thread reports before comes first.
    const MutexLock lock(shared_.mutex);
    Gathering& at = gathering(round);
    at.parts[static_cast<std::size_t>(place.front())] = std::move(part);
    at.places.add(place);
  }
  given_ = round + 1;
  pass_on(round, false);
}

AllGather::Heard AllGather::hear(Parts parts, const Neighbour* from) {
  const MutexLock lock(shared_.mutex);
  if (is_before(next_round_ + kRoundsAhead, parts.round + 1)) return Heard::kAhead;
  if (is_before(parts.round, next_round_) && !gatherings_.contains(parts.round)) return Heard::kLate;
  Gathering& at = gathering(parts.round);
  if (from != nullptr) at.told[from->rank].add(parts.places);
  auto bytes = parts.bytes.begin();
  parts.places.each([&](int place) {
    if (!at.places.contains(place)) at.parts[static_cast<std::size_t>(place)] = std::move(*bytes);
    ++bytes;
  });
  at.places.add(parts.places);
  shared_.changed.notify_all();
  return Heard::kKept;
}

// `parts`: by place.
std::string AllGather::pack(std::uint32_t round, int from, const RankSet& places,
                            const std::vector<std::string>& parts) const {
  Parts some{round, from, places, {}};
  places.each([&](int place) { some.bytes.push_back(parts[static_cast<std::size_t>(place)]); });
  return pack_parts(members_.name(), some);
}

void AllGather::pass_on(std::uint32_t round, bool at_once) {
  bool complete = false;
  bool waits = false;
  {
    const MutexLock lock(shared_.mutex);
    const auto found = gatherings_.find(round);
    if (found == gatherings_.end()) return;
    Gathering& at = found->second;
    complete = members_.are_all(at.places);
    for (Neighbour* const neighbour : neighbours_.listeners()) {
      RankSet& told = at.told[neighbour->rank];
      if (told.contains(at.places) || !neighbours_.leads_to(members_.name().members, *neighbour)) continue;
      if (!at_once && !complete && !(neighbour->is_parent && at.places.contains(members_.places_below()))) {
        waits = true;
        continue;
      }
      neighbours_.send(pack(round, members_.self(), at.places.without(told), at.parts), neighbour);
      told = at.places;
    }
    if (complete && !at.passed_on && members_.name().id != 0) {
      last_ = pack(round, members_.job_rank_of(members_.rank_at(0)), at.places, at.parts);
    }
  }
  if (waits && due_ns_ == 0) due_ns_ = now_ns() + wait_ms_ * kNsPerMs;
  if (!complete) return;
  // This rank has all parts, and may be stopped from now on. So it first sends its own part to the others.
  neighbours_.flush();
  const MutexLock lock(shared_.mutex);
  if (const auto found = gatherings_.find(round); found != gatherings_.end()) found->second.passed_on = true;
  shared_.changed.notify_all();
}

void AllGather::pass_on_all() {
  std::vector<std::uint32_t> rounds;
  {
    const MutexLock lock(shared_.mutex);
    for (const auto& [round, at] : gatherings_) rounds.push_back(round);
  }
  for (const std::uint32_t round : rounds) pass_on(round, true);
  due_ns_ = 0;
}

void AllGather::advance(std::int64_t now_ns) {
  if (due_ns_ == 0 || now_ns < due_ns_) return;
  wait_ms_ = std::min(2 * wait_ms_, kLongestMs);
  pass_on_all();
}

void AllGather::meet(int job_rank) {
  const MutexLock lock(shared_.mutex);
  for (auto& [round, at] : gatherings_) at.told.erase(job_rank);
}

std::vector<std::string> AllGather::needed() const {
  std::vector<std::string> result;
  const MutexLock lock(shared_.mutex);
  if (!last_.empty()) result.push_back(last_);
  for (const auto& [round, at] : gatherings_) {
    if (!at.passed_on && !at.places.empty()) result.push_back(pack(round, members_.self(), at.places, at.parts));
  }
  return result;
}

}  // namespace tutti::internal::control
