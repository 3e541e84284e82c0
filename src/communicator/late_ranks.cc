#include "communicator/late_ranks.h"

#include <algorithm>

#include "os/clock.h"

namespace tutti::internal {

void LateRanks::hear(const LateReturn& told) {
  Known& rank = ranks_[told.rank];
  if (told.phase < rank.invited || (rank.has_told && told.phase <= rank.told.phase)) return;
  rank.has_told = true;
  rank.told = told;
  rank.since_ns = now_ns();
}

void LateRanks::hear(const Invitation& told) {
  told.members.each([&](int member) {
    Known& rank = ranks_[member];
    rank.invited = std::max(rank.invited, told.phase);
    if (rank.told.phase < told.phase) rank.has_told = false;
  });
  if (told.phase > last_.phase) last_ = told;
  if (!told.all_were_late || told.members.contains(rank_)) latest_ = std::max(latest_, told.phase);
}

// Null: it is not back.
const LateRanks::Known* LateRanks::find_back(int rank) const {
  const auto at = ranks_.find(rank);
  return at != ranks_.end() && at->second.has_told ? &at->second : nullptr;
}

RankSet LateRanks::to_invite(const std::vector<int>& late, const RankSet& gone, std::int64_t patience_ms) const {
  RankSet back;
  bool waits_for_others = false;
  std::int64_t since_ns = now_ns();
  for (const int rank : late) {
    const Known* const known = find_back(rank);
    if (gone.contains(rank)) continue;
    if (known == nullptr) {
      waits_for_others = true;
    } else {
      back.append(rank, rank + 1);
      since_ns = std::min(since_ns, known->since_ns);
    }
  }
  return waits_for_others && now_ns() - since_ns < patience_ms * kNsPerMs ? RankSet() : back;
}

std::uint32_t LateRanks::next_phase(std::uint32_t phase) const {
  phase = std::max(phase, last_.phase);
  for (const auto& [rank, known] : ranks_) {
    if (known.has_told) phase = std::max(phase, known.told.phase);
  }
  return phase + 1;
}

std::optional<Invitation> LateRanks::invitation(std::uint32_t phase) const {
  return last_.phase > phase ? std::optional(last_) : std::nullopt;
}

std::optional<Invitation> LateRanks::invite_all(const RankSet& living) const {
  Invitation invitation{next_phase(0), 0, living, {}, true};
  bool are_back = true;
  living.each([&](int rank) {
    const Known* const known = find_back(rank);
    are_back = are_back && known != nullptr;
    if (are_back) invitation.calls = std::max(invitation.calls, known->told.calls);
  });
  return are_back ? std::optional(invitation) : std::nullopt;
}

}  // namespace tutti::internal
