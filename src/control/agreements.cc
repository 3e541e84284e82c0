#include "control/agreements.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "control/comm_agent.h"
#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// How long contributions wait for those of ranks below that have not called yet.
constexpr std::int64_t kFirstMs = 50;
constexpr std::int64_t kLongestWaitMs = 400;
// Soon after a change of the tree, contributions and decisions that were under way come again: a coordinator decides
// this much later, at most twice. Members that wait for 1.6 s or more still wait then.
constexpr std::int64_t kSettleMs = 200;
// A member that takes part in an agreement has returned from the one before it.
constexpr std::uint32_t kKept = 2;
constexpr std::size_t kMaxKeptRounds = 1024;

}  // namespace

// ---- Rounds -------------------------------------------------------------------------------------

Agreements::Round& Agreements::round_of(const AgreementName& name) {
  const std::string key = name.key();
  auto at = rounds_.find(key);
  if (at == rounds_.end()) {
    make_room(name);
    at = rounds_.try_emplace(key).first;
    at->second.name = name;
    at->second.members = name.members(view_.ranks());
    at->second.serial = ++begun_;
    at->second.next_wait_ms = kFirstMs;
  }
  raise(&at->second, view_.lowest());
  return at->second;
}

void Agreements::make_room(const AgreementName& name) {
  AgreementName old = name;
  old.number -= kKept;
  // Below 2 the number wraps, and there is no such round. Those with an error stay: they did not wait for all members.
  if (const auto at = rounds_.find(old.key()); at != rounds_.end() && !is_error(at->second.decision)) rounds_.erase(at);
  std::erase_if(rounds_, [&](const auto& entry) {
    const AgreementName& known = entry.second.name;
    return known.comm.id == name.comm.id && is_past_series(known.series, name.series);
  });
  if (rounds_.size() < kMaxKeptRounds) return;
  rounds_.erase(std::min_element(rounds_.begin(), rounds_.end(), [](const auto& a, const auto& b) {
    const auto order = [](const Round& round) {
      return std::tuple(!round.decision, is_error(round.decision), round.serial);
    };
    return order(a.second) < order(b.second);
  }));
}

void Agreements::raise(Round* round, int ballot) const {
  if (ballot <= round->ballot) return;
  round->ballot = ballot;
  round->tally = round->own;
  round->left = {};
  round->reported.reset();
  round->told_to = -1;
  // The next coordinator does not wait for it, and may decide otherwise.
  if (!round->members.contains(view_.rank())) round->decision.reset();
}

// A rank that others take for dead must not decide.
bool Agreements::coordinates(const Round& round) const {
  return round.ballot == view_.rank() && view_.lowest() == view_.rank();
}

void Agreements::note_left(Round* round) const {
  if (const CommAgent* const member = comms_.find(round->name.comm.id))
    round->left.add(member->left_without(round->name));
}

// ---- Contributions ------------------------------------------------------------------------------

void Agreements::give(const AgreementName& name, const Tally& own, std::int64_t wait_ms) {
  Round& round = round_of(name);
  round.own = own;
  round.tally.add(own);
  round.end_ns = std::min(round.end_ns, now_ns() + wait_ms * kNsPerMs);
  if (round.decision) deliver(round);  // the others have not waited for this rank
  round.changed = true;
}

void Agreements::give_up(const AgreementName& name, const Caller& self) {
  Round& round = round_of(name);
  if (!round.decision) {
    round.decision.emplace().outcome = Outcome::kLate;
    round.decision->caller = self;
  }
  deliver(round);
  round.changed = true;
}

// A coordinator that decided at once, without ranks that are connected anew, might differ from its predecessor.
std::int64_t Agreements::late_at_ns(const Round& round) const {
  if (round.end_ns == kNever) return kNever;
  constexpr std::int64_t kSettleNs = kSettleMs * kNsPerMs;
  return std::clamp(changed_ns_ + kSettleNs, round.end_ns, round.end_ns + 2 * kSettleNs);
}

std::vector<std::uint64_t> Agreements::contributed_to(CommId comm) const {
  std::vector<std::uint64_t> result;
  for (const auto& [key, round] : rounds_) {
    if (round.name.comm.id == comm && !round.own.given.empty()) result.push_back(round.name.hash());
  }
  std::sort(result.begin(), result.end());
  return result;
}

bool Agreements::await(int rank) const {
  return std::any_of(rounds_.begin(), rounds_.end(), [rank](const auto& entry) {
    const Round& round = entry.second;
    return round.decided_ballot != round.ballot && round.members.contains(rank) && !round.left.contains(rank) &&
           !round.tally.given.contains(rank);
  });
}

void Agreements::forget(CommId comm) {
  std::erase_if(rounds_, [comm](const auto& round) { return round.second.name.comm.id == comm; });
}

void Agreements::look_again() {
  changed_ns_ = now_ns();
  for (auto& [key, round] : rounds_) {
    raise(&round, view_.lowest());
    round.changed = true;
  }
}

void Agreements::meet(int rank) {
  for (auto& [key, round] : rounds_) {
    if (round.told_to == rank) round.told_to = -1;
  }
}

bool Agreements::is_complete_below(const Round& round) const {
  const RankSet below = view_.below_self();
  return std::none_of(round.members.ranges().begin(), round.members.ranges().end(), [&](const RankSet::Range& range) {
    for (int rank = range.first; rank < range.end; ++rank) {
      if (below.contains(rank) && view_.is_there(rank) && !round.tally.given.contains(rank) &&
          !round.left.contains(rank)) {
        return true;
      }
    }
    return false;
  });
}

void Agreements::pass_up(Round* round) {
  Neighbour* const parent = neighbours_.parent();
  const Tally& tally = round->tally;
  const std::optional<Decision>& decision = round->decision ? round->decision : round->reported;
  const bool ends = decision || tally.other.rank >= 0;
  if (parent == nullptr || (tally.given.empty() && !ends)) return;
  const bool tells_end = ends && !(round->told_to == parent->rank && round->told_end);
  const bool is_new = round->told_to != parent->rank || !round->told.contains(tally.given) ||
                      !round->told_left.contains(round->left) || tells_end;
  if (!is_new) return;
  const std::int64_t now = now_ns();
  if (!tells_end && (round->due_ns == 0 || now < round->due_ns) && !is_complete_below(*round)) {
    if (round->due_ns != 0) return;
    round->due_ns = now + round->next_wait_ms * kNsPerMs;
    round->next_wait_ms = std::min(2 * round->next_wait_ms, kLongestWaitMs);
    return;
  }
  const std::int64_t wait_ms = std::clamp<std::int64_t>((round->end_ns - now) / kNsPerMs, 0, kMaxWaitMs);
  neighbours_.send(pack_proposals({round->name, round->ballot, tally, round->left, wait_ms, decision}), parent);
  round->told_to = parent->rank;
  round->told = tally.given;
  round->told_left = round->left;
  round->told_end = ends;
  round->due_ns = 0;
}

bool Agreements::on_proposals(const Header& header, net::Unpacker* unpacker, Neighbour* from) {
  Proposals heard;
  if (!unpack_proposals(header, unpacker, view_.ranks(), &heard)) return false;
  if (from->is_parent) return true;
  Round& round = round_of(heard.name);
  round.end_ns = std::min(round.end_ns, now_ns() + heard.wait_ms * kNsPerMs);
  if (heard.ballot < round.ballot) return true;  // it will hear why, and send again
  raise(&round, heard.ballot);
  round.tally.add(heard.tally);
  round.left.add(heard.left);
  // A rank that has given up differs from those that have a result.
  if (heard.decision && (!round.reported || round.reported->outcome == Outcome::kLate)) {
    round.reported = std::move(heard.decision);
  }
  if (round.decided_ballot != round.ballot) {
    round.changed = true;
  } else {
    neighbours_.send(pack_agreed({round.name, round.ballot, round.passed_on}), from);
  }
  return true;
}

// ---- Decisions ----------------------------------------------------------------------------------

// A member in another agreement of the communicator.
Caller Agreements::other_call(const Round& round, const RankSet& missing) const {
  for (const auto& [key, other] : rounds_) {
    if (other.name.comm.id != round.name.comm.id || &other == &round || !may_hold_members(other.decision)) continue;
    const RankSet both = missing.common_with(other.tally.given);
    if (!both.empty()) return {both.front(), other.tally.caller.call};
  }
  return {};
}

void Agreements::try_to_decide(Round* round, bool late) {
  const RankSet dead =
      RankSet::where(view_.ranks(), [&](int rank) { return !view_.is_there(rank) && !round->left.contains(rank); });
  std::optional<Decision> decision = decide(round->tally, round->members, dead, round->left, late);
  if (!decision) return;
  if (round->decision) {
    decision = round->decision;
  } else if (round->reported) {
    decision = round->reported;
  } else if (decision->outcome == Outcome::kLate) {
    decision->other = other_call(*round, decision->ranks);
  }
  round->decided_ballot = round->ballot;
  take(round, *decision, nullptr);
}

// Tells the other ranks first: a thread that returns with the decision may end this process.
void Agreements::take(Round* round, const Decision& decision, const Neighbour* from) {
  round->passed_on = decision;
  neighbours_.flood_to(round->name.comm.members, pack_agreed({round->name, round->decided_ballot, decision}), from);
  neighbours_.flush();
  const bool differs = round->decision && !(*round->decision == decision);
  if (!round->decision) round->decision = decision;
  if (!differs) return deliver(*round);
  if (CommAgent* const member = comms_.find(round->name.comm.id)) member->fail_late();
}

void Agreements::deliver(const Round& round) const {
  if (CommAgent* const member = comms_.find(round.name.comm.id)) member->hear_agreed(round.name, *round.decision);
}

bool Agreements::on_agreed(const Header& header, net::Unpacker* unpacker, const Neighbour* from) {
  Agreed heard;
  if (!unpack_agreed(header, unpacker, view_.ranks(), &heard)) return false;
  Round& round = round_of(heard.name);
  if (heard.ballot < round.ballot || heard.ballot <= round.decided_ballot) return true;
  raise(&round, heard.ballot);
  round.decided_ballot = heard.ballot;
  take(&round, heard.decision, from);
  return true;
}

// ---- Frames and time ----------------------------------------------------------------------------

bool Agreements::hear(const Header& header, net::Unpacker* unpacker, Neighbour* from) {
  return header.kind == FrameKind::kProposals ? on_proposals(header, unpacker, from)
                                              : on_agreed(header, unpacker, from);
}

void Agreements::prepare(net::PollSet* set) const {
  const std::int64_t now = now_ns();
  const auto wake_at = [&](std::int64_t ns) {
    set->wake_at(Deadline::after_ms(ns <= now ? 0 : (ns - now + kNsPerMs - 1) / kNsPerMs));
  };
  for (const auto& [key, round] : rounds_) {
    if (round.decided_ballot == round.ballot) continue;  // it sends and decides nothing more with this ballot
    if (round.due_ns != 0) wake_at(round.due_ns);
    if (round.end_ns != kNever && coordinates(round)) wake_at(late_at_ns(round));
  }
}

void Agreements::advance() {
  const std::int64_t now = now_ns();
  for (auto& [key, round] : rounds_) {
    const bool is_due = round.due_ns != 0 && now >= round.due_ns;
    const bool is_late = now >= late_at_ns(round) && coordinates(round);
    const bool changed = std::exchange(round.changed, false);
    if (round.decided_ballot == round.ballot || !(changed || is_due || is_late)) continue;
    note_left(&round);
    coordinates(round) ? try_to_decide(&round, is_late) : pass_up(&round);
    if (is_due) round.due_ns = 0;
  }
}

}  // namespace tutti::internal::control
