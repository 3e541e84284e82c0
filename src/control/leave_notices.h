// The leave notices of a communicator: which members call nothing more, and what they have called.
//
// Ranks usually leave together, after the same calls. So leave notices are merged: a rank forwards them up when all
// members below it have left, and the topmost forwards them down when all have. After 20 ms they are forwarded
// unmerged. One notice names all ranks with equal calls, and omits the calls if these are all members.
//
// Threads: the tree's only, except writes to CommShared.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "control/all_gather.h"
#include "control/comm_members.h"
#include "control/comm_shared.h"
#include "control/control_messages.h"
#include "control/neighbours.h"
#include "control/rank_set.h"

namespace tutti::internal::control {

class LeaveNotices {
 public:
  // All outlive it. `gathers`: the communicator's parts are forwarded before its leave notices.
  LeaveNotices(const CommMembers& members, CommShared* shared, Neighbours* neighbours, AllGather* gathers)
      : members_(members), shared_(*shared), neighbours_(*neighbours), gathers_(*gathers) {}

  // This rank calls nothing after `calls`. `agreements`: as in LeaveNotice. REQUIRES: called once.
  void part(const CallSummary& calls, std::vector<std::uint64_t> agreements);
  // This rank has sent its leave notice: it is not missing here.
  [[nodiscard]] bool has_parted() const { return parted_; }
  // The calls of part(). REQUIRES: has_parted().
  [[nodiscard]] const CallSummary& own_calls() const { return own_calls_; }
  // The places of ranks whose notices are new. *watching: the receiver of the event.
  RankSet hear(const LeaveNotice& leave_notice, const Neighbour* from, std::shared_ptr<const Watching>* watching);
  // Wakes threads that wait for other ranks to leave.
  void wake_waiting();

  // Sends the notices that are due by the tree's shape, or all if `at_once`.
  void pass_on(bool at_once);
  // When they must be forwarded at the latest; 0: none waits.
  [[nodiscard]] std::int64_t due_ns() const { return due_ns_; }
  void advance(std::int64_t now_ns);
  // A rank has become a neighbour, perhaps again.
  void meet(int job_rank) { told_.erase(job_rank); }

  [[nodiscard]] bool has_departed(int rank) const;
  // Whether all members have sent their leave notices.
  [[nodiscard]] bool is_over() const;
  // Whether the rank of the job is not a member, or has left, or its leave notice may be in flight, because another has
  // arrived, or this rank's own was sent, since `recent_ns`.
  [[nodiscard]] bool may_have_left(int job_rank, std::int64_t recent_ns) const;

 private:
  RankSet add(const LeaveNotice& leave_notice) TUTTI_REQUIRES(shared_.mutex);

  const CommMembers& members_;
  CommShared& shared_;
  Neighbours& neighbours_;
  AllGather& gathers_;
  bool parted_ = false;
  CallSummary own_calls_;
  // When the last rank left, including this one. Initially an instant before every possible time.
  std::int64_t last_leave_ns_ = std::numeric_limits<std::int64_t>::min() / 2;
  std::map<int, RankSet> told_;  // whose leave notices each neighbour has, by the neighbour's rank in the job
  std::int64_t due_ns_ = 0;
};

}  // namespace tutti::internal::control
