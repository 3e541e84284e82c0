// What the tree's thread does for one communicator: it carries out what other threads have asked for (ControlComm), and
// hears what other ranks say.
//
// Threads: the tree's alone. id(), members() and parent() any.
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

// Says that another communicator has the same id. `from`: a rank of that one in this numbering; -1: unknown.
Notice clash_of_ids(int from);

class CommAgent {
 public:
  // All outlive it. `parent`: the communicator that this one is made of; 0 also of the first. `may_miss_members`: it
  // fails also if a member has left `parent` without making its part of this one.
  CommAgent(SocketTree* tree, const CommMembers& members, CommId parent, bool may_miss_members, CommShared* shared);
  CommAgent(const CommAgent&) = delete;
  CommAgent& operator=(const CommAgent&) = delete;

  [[nodiscard]] CommId id() const { return members_.name().id; }
  [[nodiscard]] CommId parent() const { return parent_; }
  [[nodiscard]] const CommMembers& members() const { return members_; }
  [[nodiscard]] AllGather& gathers() { return gathers_; }
  [[nodiscard]] const LeaveNotices& leave_notices() const { return leave_notices_; }

  // Does what other threads have asked for. Returns whether it is to be dismissed, having said so to the others.
  [[nodiscard]] bool handle_commands();
  // The same of a tree that can tell nobody anything.
  [[nodiscard]] bool wants_to_go() const;
  // The communicator fails, here and everywhere.
  void fail(const Notice& notice);
  // It fails here; nobody can be told.
  void fail_here(const Status& status) noexcept;

  // ---- From other ranks
  // False if the frame is damaged.
  bool hear(const Header& header, net::Unpacker* unpacker, const std::string& frame, const Neighbour* from);
  void hear_calls(Calls calls, const Neighbour* from);
  void hear_death(const Death& death);
  // A rank has left the job, and with it all communicators; or the communicator that this one is made of.
  void hear_bye(int job_rank);
  // A rank has left another communicator, perhaps the one that this is made of.
  void hear_left(CommId comm, int job_rank);
  // The same of all that had left before.
  void hear_departed(const CommAgent& comm);
  void hear_answer(const Answer& answer);
  [[nodiscard]] Whereabouts whereabouts() const;

  // ---- Parts and leave notices wait to be merged with others
  void pass_on_at_once();
  // When they are to go on at the latest; 0: none waits.
  [[nodiscard]] std::int64_t due_ns() const;
  void advance(std::int64_t now_ns);

  // ---- Resending
  // A rank has become a neighbour, perhaps anew, and may have heard nothing.
  void meet(int job_rank);
  // What may have been lost on the way.
  void say_again();
  // What this rank says when it leaves, for later neighbours. Its parts and the failure come first: a rank that hears a
  // leave notice without the part takes it for a failure, and without the failure for a mismatch.
  [[nodiscard]] std::vector<std::string> farewell() const;
  // The same while it stays, of all that have left as far as this rank knows, itself included.
  [[nodiscard]] std::vector<std::string> told() const;

 private:
  enum class Reach : std::uint8_t { kMembers, kJob };
  [[nodiscard]] bool are_members(const std::string& members, int from);
  bool on_parts(Parts parts, const std::string& frame, const Neighbour* from);
  void on_decision(std::string decision);
  void on_notice(const Notice& notice, const std::string& frame, Reach reach, const Neighbour* from);
  void fail_by_clash(int from);
  void tell_failure(const Notice& notice);
  void on_leave_notices(const std::vector<LeaveNotice>& leave_notices, const Neighbour* from);
  void send_leave_notice();
  void on_compare(const std::string& frame, const Neighbour* from);
  void report_own(std::vector<CallRecord> calls);
  [[nodiscard]] CallSummary own_calls() const;
  void judge(int rank, const CallSummary& calls);
  void judge_departed();
  [[nodiscard]] std::vector<std::string> own_parts() const;

  SocketTree& tree_;
  const CommMembers& members_;
  const CommId parent_;
  const bool may_miss_members_;
  CommShared& shared_;
  AllGather gathers_;
  LeaveNotices leave_notices_;
  RefusalNotices refusals_;
  CallLedger ledger_;        // of this rank and those below it
  RankSet heard_of_;         // the places of ranks that have made their parts, as far as is known
  bool any_notice_ = false;  // all members have been told of a failure, or will be
  std::string notice_;       // by this frame, unless it was a death
  bool asked_for_calls_ = false;
};

}  // namespace tutti::internal::control
