// The members of a communicator: their ranks in it, their ranks in the job, and their places, which are their indices
// in the order of their ranks in the job. Immutable.
//
// Threads: any.
#pragma once

#include <vector>

#include "control/control_messages.h"
#include "control/rank_set.h"

namespace tutti::internal::control {

class CommMembers {
 public:
  // `job_ranks`: their ranks in the job, by rank in this communicator. `self`: this rank's rank in the job, which is
  // one of them. `ranks`: the size of the job.
  CommMembers(CommId id, std::vector<int> job_ranks, int self, int ranks);

  [[nodiscard]] const CommName& name() const { return name_; }
  [[nodiscard]] int size() const { return static_cast<int>(job_ranks_.size()); }
  [[nodiscard]] int ranks() const { return ranks_; }  // of the job
  // This rank's number here, and in the job.
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int self() const { return self_; }
  [[nodiscard]] int rank_of(int job_rank) const;  // -1: not a member
  [[nodiscard]] int job_rank_of(int rank) const { return job_ranks_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int place_of(int rank) const;
  [[nodiscard]] int rank_at(int place) const { return by_job_rank_[static_cast<std::size_t>(place)]; }
  // In the order of their places.
  [[nodiscard]] std::vector<int> ranks_at(const RankSet& places) const;
  // Only this rank's.
  [[nodiscard]] RankSet own_place() const { return {place_of(rank_), place_of(rank_) + 1}; }
  // In the tree's first shape: the places of this rank and of the members below it.
  [[nodiscard]] const RankSet& places_below() const { return below_; }
  [[nodiscard]] bool are_all(const RankSet& places) const { return places.size() == size(); }

 private:
  // The place of the first member whose rank in the job is at least job_rank.
  [[nodiscard]] int place_from(int job_rank) const;

  const std::vector<int> job_ranks_;
  const CommName name_;
  const int self_;
  const int ranks_;
  std::vector<int> by_job_rank_;  // the ranks, by place
  int rank_ = -1;
  RankSet below_;
};

}  // namespace tutti::internal::control
