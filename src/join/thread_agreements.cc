#include "join/thread_agreements.h"

#include <algorithm>

namespace tutti::internal {

// A rank that takes part has returned from the agreement before, so the one before that is over on all.
ThreadAgreements::Name ThreadAgreements::give(int rank, const Proposal& own) {
  std::vector<int> left_out = own.left_out;
  std::sort(left_out.begin(), left_out.end());
  Name name{std::move(left_out), 0};
  name.second = next_[{rank, name.first}]++;
  if (name.second >= 2) rounds_.erase({name.first, name.second - 2});
  rounds_[name].tally.add({RankSet(rank, rank + 1), own.flags, own.offer, {rank, own.call}, {}});
  return name;
}

std::optional<Result<Agreement>> ThreadAgreements::look(const Name& name, RankSet members, const RankSet& dead,
                                                        const RankSet& left, bool late) {
  Round& round = rounds_[name];
  for (const int rank : name.first) members = members.without(RankSet(rank, rank + 1));
  if (!round.decision) {
    round.decision = control::decide(round.tally, members, dead, left.without(dead), late);
    if (round.decision && round.decision->outcome == control::Outcome::kLate) {
      for (const auto& [other, elsewhere] : rounds_) {
        const RankSet& missing = round.decision->ranks;
        const RankSet both = missing.without(missing.without(elsewhere.tally.given));
        if (other != name && control::may_hold_members(elsewhere.decision) && !both.empty()) {
          round.decision->other = {both.front(), elsewhere.tally.caller.call};
        }
      }
    }
  }
  if (!round.decision) return std::nullopt;
  return control::result_of(*round.decision, [](int rank) { return rank; });
}

}  // namespace tutti::internal
