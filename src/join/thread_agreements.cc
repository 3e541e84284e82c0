#include "join/thread_agreements.h"

namespace tutti::internal {

// A rank that has a result has returned from the agreement before, so no rank looks at the one before that. Ranks that
// wait in it keep it.
ThreadAgreements::Pending ThreadAgreements::give(int rank, const Proposal& own) {
  std::erase_if(rounds_, [&](const auto& entry) { return is_past_series(entry.first.series, own.series); });
  std::erase_if(next_, [&](const auto& entry) {
    const auto& [of, excluded, series] = entry.first;
    return of == rank && is_past_series(series, own.series);
  });
  std::uint32_t& next = next_[{rank, own.excluded, own.series}];
  Pending pending{{own.excluded, own.series, next++}, nullptr};
  if (pending.name.number >= 2) rounds_.erase({own.excluded, own.series, pending.name.number - 2});
  std::shared_ptr<Round>& round = rounds_[pending.name];
  if (round == nullptr) round = std::make_shared<Round>();
  round->tally.add(control::Tally::of(rank, own));
  pending.round = round;
  return pending;
}

std::optional<Result<Agreement>> ThreadAgreements::look(const Pending& pending, RankSet members, const RankSet& dead,
                                                        const RankSet& left, bool late) {
  Round& round = *pending.round;
  for (const int rank : pending.name.excluded) members = members.without(RankSet(rank, rank + 1));
  if (!round.decision) {
    round.decision = control::decide(round.tally, members, dead, left.without(dead), late);
    if (round.decision && round.decision->outcome == control::Outcome::kLate) {
      round.decision->other = other_call(round, round.decision->ranks);
    }
  }
  if (!round.decision) return std::nullopt;
  return control::result_of(*round.decision, [](int rank) { return rank; });
}

// A member in another agreement.
control::Caller ThreadAgreements::other_call(const Round& round, const RankSet& missing) const {
  for (const auto& [name, other] : rounds_) {
    if (other.get() == &round || !control::may_hold_members(other->decision)) continue;
    const RankSet both = missing.common_with(other->tally.given);
    if (!both.empty()) return {both.front(), other->tally.caller.call};
  }
  return {};
}

}  // namespace tutti::internal
