#include "control/comm_members.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "control/tree_shape.h"

namespace tutti::internal::control {

CommMembers::CommMembers(CommId id, std::vector<int> job_ranks, int self, int ranks)
    : job_ranks_(std::move(job_ranks)),
      name_(id, job_ranks_.size() == static_cast<std::size_t>(ranks) ? std::string() : member_bits(job_ranks_)),
      self_(self),
      ranks_(ranks) {
  by_job_rank_.resize(job_ranks_.size());
  std::iota(by_job_rank_.begin(), by_job_rank_.end(), 0);
  std::sort(by_job_rank_.begin(), by_job_rank_.end(), [this](int a, int b) { return job_rank_of(a) < job_rank_of(b); });
  rank_ = rank_of(self);
  const RankSet below = tree_below(self, ranks);
  for (const RankSet::Range& range : below.ranges()) {
    below_.add(RankSet(place_from(range.first), place_from(range.end)));
  }
}

int CommMembers::place_from(int job_rank) const {
  const auto at = std::lower_bound(by_job_rank_.begin(), by_job_rank_.end(), job_rank,
                                   [this](int rank, int wanted) { return job_rank_of(rank) < wanted; });
  return static_cast<int>(at - by_job_rank_.begin());
}

int CommMembers::rank_of(int job_rank) const {
  const int place = place_from(job_rank);
  return place == size() || job_rank_of(rank_at(place)) != job_rank ? -1 : rank_at(place);
}

int CommMembers::place_of(int rank) const {
  return place_from(job_rank_of(rank));
}

std::vector<int> CommMembers::ranks_at(const RankSet& places) const {
  std::vector<int> ranks;
  places.each([&](int place) { ranks.push_back(rank_at(place)); });
  return ranks;
}

}  // namespace tutti::internal::control
