// The leave notices of a communicator: which members call nothing more, and what they have called.
//
// Ranks usually leave together, after the same calls. So leave notices are merged: a rank passes them upwards when all
// members below it have left, and the topmost passes them down when all have. What is not merged in 20 ms goes on as it
// is. Of ranks with equal calls one notice names all, and without the calls if these are all members.
//
// Threads: the tree's alone, but for what it writes to CommShared.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>

#include "control/all_gather.h"
#include "control/comm_members.h"
#include "control/comm_shared.h"
#include "control/control_messages.h"
#include "control/neighbours.h"
#include "control/rank_set.h"

namespace tutti::internal::control {

class LeaveNotices {
 public:
  // All outlive it. `gathers`: the communicator's parts go on before its leave notices, because a leave notice without
  // the part is taken for a failure.
  LeaveNotices(const CommMembers& members, CommShared* shared, Neighbours* neighbours, AllGather* gathers)
      : members_(members), shared_(*shared), neighbours_(*neighbours), gathers_(*gathers) {}

  // This rank calls nothing more than that. REQUIRES: once.
  void part(const CallSummary& calls);
  // This rank has sent its leave notice: nobody misses it here.
  [[nodiscard]] bool has_parted() const { return parted_; }
  // What it has called. REQUIRES: has_parted().
  [[nodiscard]] const CallSummary& own_calls() const { return own_calls_; }
  // The places of those that are new. *watching: who is to be told of them.
  RankSet hear(const LeaveNotice& leave_notice, const Neighbour* from, std::shared_ptr<const Watching>* watching);
  // Threads that wait for others to leave look again.
  void wake_waiting();

  // Those that are due by the tree's shape, or `at_once` all.
  void pass_on(bool at_once);
  // When they are to go on at the latest; 0: none waits.
  [[nodiscard]] std::int64_t due_ns() const { return due_ns_; }
  void advance(std::int64_t now_ns);
  // A rank has become a neighbour, perhaps anew.
  void meet(int job_rank) { told_.erase(job_rank); }

  [[nodiscard]] bool has_departed(int rank) const;
  // All members have said that they call nothing more.
  [[nodiscard]] bool is_over() const;
  // The job's rank is no member, or has left, or its leave notice may be on its way: another has come, or this rank's
  // own has gone, since `recent_ns`.
  [[nodiscard]] bool may_have_left(int job_rank, std::int64_t recent_ns) const;

 private:
  RankSet add(const LeaveNotice& leave_notice) TUTTI_REQUIRES(shared_.mutex);

  const CommMembers& members_;
  CommShared& shared_;
  Neighbours& neighbours_;
  AllGather& gathers_;
  bool parted_ = false;
  CallSummary own_calls_;
  // When the last rank left, this one included. No clock has been at this beginning.
  std::int64_t last_leave_ns_ = std::numeric_limits<std::int64_t>::min() / 2;
  std::map<int, RankSet> told_;  // whose leave notices each neighbour has heard, by its rank in the job
  std::int64_t due_ns_ = 0;
};

}  // namespace tutti::internal::control
