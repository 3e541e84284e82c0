// The work of the tree's thread for one communicator: it executes the commands of other threads (ControlComm), and
// handles the messages of other ranks.
//
// Threads: the tree's only. id(), members() and parent(): any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "control/all_gather.h"
#include "control/call_ledger.h"
#include "control/comm_members.h"
#include "control/comm_shared.h"
#include "control/control_messages.h"
#include "control/leave_notices.h"
#include "control/neighbour.h"
#include "control/rank_set.h"
#include "control/refusal_notices.h"

namespace tutti::internal::control {

class SocketTree;

// The error that another communicator has the same id. `from`: a rank of that one in this numbering; -1: unknown.
Notice clash_of_ids(int from);

class CommAgent {
 public:
  // All outlive it. `parent`: the communicator from which this one is made; 0 also for the first. `may_miss_members`:
  // it fails also if a member has left `parent` without making its part of this one.
  CommAgent(SocketTree* tree, const CommMembers& members, CommId parent, bool may_miss_members, CommShared* shared);
  CommAgent(const CommAgent&) = delete;
  CommAgent& operator=(const CommAgent&) = delete;

  [[nodiscard]] CommId id() const { return members_.name().id; }
  [[nodiscard]] CommId parent() const { return parent_; }
  [[nodiscard]] const CommMembers& members() const { return members_; }
  [[nodiscard]] AllGather& gathers() { return gathers_; }
  [[nodiscard]] const LeaveNotices& leave_notices() const { return leave_notices_; }

  // Executes the commands of other threads. Returns whether the communicator can be dismissed; then the other ranks
  // have been told.
  [[nodiscard]] bool handle_commands();
  // The same for a tree that can no longer send anything.
  [[nodiscard]] bool wants_to_go() const;
  // Fails the communicator, here and on all ranks.
  void fail(const Notice& notice);
  // Fails it here; no other rank can be told.
  void fail_here(const Status& status) noexcept;
  // Fails it because this rank gave up in an agreement in which others have a result.
  void fail_late();
  // Fails it here, for a tree that can no longer send anything: no agreement is possible either.
  void cut_off(const Status& why) noexcept;

  // ---- From other ranks
  // False if the frame is damaged.
  bool hear(const Header& header, net::Unpacker* unpacker, const std::string& frame, const Neighbour* from);
  void hear_calls(Calls calls, const Neighbour* from);
  void hear_death(const Death& death);
  // A rank has left the job, and with it all communicators; or it has left the communicator from which this one is
  // made.
  void hear_bye(int job_rank);
  // A rank has left another communicator, which may be the parent.
  void hear_left(CommId comm, int job_rank);
  // The same for all ranks that had left before.
  void hear_departed(const CommAgent& comm);
  void hear_answer(const Answer& answer);
  // The decision of an agreement, for a thread that waits for it.
  void hear_agreed(const AgreementName& name, const Decision& decision);
  // The members that have left without contributing to the agreement, by their ranks in the job.
  [[nodiscard]] RankSet left_without(const AgreementName& name) const;
  [[nodiscard]] Whereabouts whereabouts() const;
  // Witness::report(); empty: there is none.
  [[nodiscard]] std::string report() const;
  [[nodiscard]] std::string reason() const;
  // Calls Witness::attend_listeners(), and returns its result. Nothing: there is none yet.
  [[nodiscard]] std::optional<bool> attend_listeners() const;
  // The same of Witness::prepare_reconnects() and process_reconnects(). False: there is none yet.
  [[nodiscard]] bool prepare_reconnects(net::PollSet* set) const;
  [[nodiscard]] bool process_reconnects(const net::PollSet& set) const;
  // Witness::remakes_connections; false before watch().
  [[nodiscard]] bool remakes_connections() const;

  // ---- Parts and leave notices wait to be merged with others
  void pass_on_at_once();
  // When they must be forwarded at the latest; 0: none waits.
  [[nodiscard]] std::int64_t due_ns() const;
  void advance(std::int64_t now_ns);

  // ---- Resending
  // A rank has become a neighbour, perhaps again, and may have received nothing.
  void meet(int job_rank);
  // Resends messages that may have been lost.
  void say_again();
  // The messages of this rank when it leaves, for later neighbours. The parts and the failure come first: a rank that
  // receives a leave notice without the part waits for it, and without the failure it reports a mismatch.
  [[nodiscard]] std::vector<std::string> farewell() const;
  // The same while it stays, for all ranks that are known to have left.
  [[nodiscard]] std::vector<std::string> told() const;

 private:
  enum class Reach : std::uint8_t { kMembers, kJob };
  [[nodiscard]] bool are_members(const std::string& members, int from);
  bool on_parts(Parts parts, const Neighbour* from);
  void tell_decision(const std::string& frame);
  void on_decision(std::string decision);
  void on_notice(const Notice& notice, const std::string& frame, Reach reach, const Neighbour* from);
  void fail_by_clash(int from);
  void tell_failure(const Notice& notice);
  void on_leave_notices(const std::vector<LeaveNotice>& leave_notices, const Neighbour* from);
  void send_leave_notice();
  void follow_departures();
  void on_compare(const std::string& frame, const Neighbour* from);
  void report_own(std::vector<CallRecord> calls);
  [[nodiscard]] CallSummary own_calls() const;
  void judge(int rank, const CallSummary& calls);
  void judge_departed();
  [[nodiscard]] std::vector<std::string> parts() const;

  SocketTree& tree_;
  const CommMembers& members_;
  const CommId parent_;
  const bool may_miss_members_;
  CommShared& shared_;
  AllGather gathers_;
  LeaveNotices leave_notices_;
  RefusalNotices refusals_;
  CallLedger ledger_;        // calls of this rank and of those below it
  RankSet heard_of_;         // the places of ranks that are known to have made their parts
  bool any_notice_ = false;  // all members know of a failure, or will be told
  std::string notice_;       // the frame with the failure, unless it was a death
  // The frames with this rank's decisions that later neighbours must know: the last one of each kind.
  std::map<int, std::string> lasting_;
  bool told_clash_ = false;  // all ranks of the job know that another communicator has this id
  bool asked_for_calls_ = false;
};

}  // namespace tutti::internal::control
