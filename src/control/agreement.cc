#include "control/agreement.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/rank_list.h"

namespace tutti::internal::control {

Tally Tally::of(int rank, const Proposal& own) {
  Tally tally{RankSet(rank, rank + 1), own.flags, {}, {rank, own.call}, {}};
  if (!own.offer.empty()) tally.offer = {rank, own.offer};
  return tally;
}

void Tally::add(const Tally& more) {
  if (more.given.empty()) return;
  if (given.empty()) {
    *this = more;
    return;
  }
  if (other.rank < 0) {
    if (more.other.rank >= 0) {
      other = more.other.call != caller.call ? more.other : more.caller;
    } else if (more.caller.call != caller.call) {
      other = more.caller;
    }
  }
  flags &= more.flags;
  if (more.caller.rank < caller.rank) {
    if (other.rank >= 0 && other.call == more.caller.call) other = caller;
    caller = more.caller;
  }
  if (offer.rank < 0 || (more.offer.rank >= 0 && more.offer.rank < offer.rank)) offer = more.offer;
  given.add(more.given);
}

bool Decision::operator==(const Decision& as) const {
  return outcome == as.outcome &&
         (outcome != Outcome::kAgreed || (flags == as.flags && offer == as.offer && ranks == as.ranks));
}

std::optional<Decision> decide(const Tally& tally, const RankSet& members, const RankSet& dead, const RankSet& left,
                               bool late) {
  Decision decision{Outcome::kMismatch, tally.flags, tally.offer, {}, tally.caller, tally.other};
  if (tally.other.rank >= 0) return decision;
  const RankSet missing = members.without(tally.given).without(dead);
  decision.outcome = Outcome::kLate;
  decision.ranks = missing;
  if (!missing.without(left).empty()) return late ? std::optional(decision) : std::nullopt;
  decision.outcome = missing.empty() ? Outcome::kAgreed : Outcome::kLeft;
  if (missing.empty()) decision.ranks = members.common_with(dead);
  return decision;
}

Result<Agreement> result_of(const Decision& decision, const std::function<int(int)>& rank_of) {
  std::vector<int> ranks;
  decision.ranks.each([&](int rank) { ranks.push_back(rank_of(rank)); });
  std::sort(ranks.begin(), ranks.end());
  const auto who = [&](const Caller& caller) { return fmt::format("rank {}", rank_of(caller.rank)); };
  switch (decision.outcome) {
    case Outcome::kAgreed: return Agreement{decision.flags, decision.offer.bytes, std::move(ranks)};
    case Outcome::kMismatch:
      return Status::mismatch(fmt::format("{} has called {}, but {} has called {}", who(decision.caller),
                                          decision.caller.call, who(decision.other), decision.other.call));
    case Outcome::kLeft: {
      std::string text =
          fmt::format("{} left the communicator and did not call {}", list_ranks(ranks), decision.caller.call);
      return Agreement{.late = std::move(ranks), .why = Status::remote(std::move(text))};
    }
    case Outcome::kLate: break;
  }
  if (ranks.empty()) {
    return Status::timeout(fmt::format("timed out: {} gave up {} after its whole timeout, so it ends on all ranks",
                                       who(decision.caller), decision.caller.call));
  }
  std::string text = fmt::format("timed out: {} did not call {}", list_ranks(ranks), decision.caller.call);
  if (decision.other.rank >= 0) text += fmt::format("; {} has called {}", who(decision.other), decision.other.call);
  return Agreement{.late = std::move(ranks), .why = Status::timeout(std::move(text))};
}

Result<Agreement> result_for(const Proposal& own, Result<Agreement> result) {
  if (result.is_ok() && !result->late.empty() && !own.takes_late) return std::move(result->why);
  return result;
}

}  // namespace tutti::internal::control
