// What one communicator has of the job's control tree: a ControlTree of its own numbering. See control_tree.h for what
// it promises, socket_tree.h for what carries its messages.
//
// Other threads leave commands, which the tree's thread carries out; that thread alone speaks and listens.
//
// In three files: control_comm.cc (what other threads ask of it, and the commands), control_comm_receive.cc (what comes
// from other ranks), control_comm_parting.cc (leave notices, and what ranks have called).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "control/call_ledger.h"
#include "control/control_messages.h"
#include "control/control_neighbour.h"
#include "control/control_tree.h"
#include "os/mutex.h"

namespace tutti::internal::control {

class SocketTree;

class ControlComm final : public ControlTree {
 public:
  // `members`: their ranks in the job, by rank in this communicator; the tree's own is among them.
  ControlComm(std::shared_ptr<SocketTree> tree, CommId id, std::vector<int> members);
  // Made of `parent`: see ControlTree::split().
  ControlComm(std::shared_ptr<SocketTree> tree, CommId id, std::vector<int> members, CommId parent, GivesUp gives_up);
  ~ControlComm() override;

  // ---- Any thread: once, before all else
  Status enlist();

  // ---- Any thread: ControlTree
  using ControlTree::split;
  Result<std::unique_ptr<ControlTree>> split(std::uint64_t id, std::vector<int> members, GivesUp gives_up) override;
  Result<std::vector<std::string>> all_gather(const std::string& mine, Deadline deadline) override;
  Status watch(std::shared_ptr<FailureState> failure, Witness witness) override;
  void announce_failure(const Status& status) override;
  void report_calls(std::vector<CallRecord> calls) override;
  void report_refusal(const Refusal& refusal, std::int64_t wait_ms) override TUTTI_EXCLUDES(mutex_);
  void ask(Question question) override;
  void tell_decision(const std::string& decision) override TUTTI_EXCLUDES(mutex_);
  Status compare_with_departed() override TUTTI_EXCLUDES(mutex_);
  void compare_calls() override;
  bool finish(std::int64_t wait_ms) override;
  void leave() override;

  // ---- The tree's thread
  [[nodiscard]] CommId id() const { return name_.id; }
  // Does what other threads have asked for. Returns whether it is to be dismissed, having said so to the others.
  [[nodiscard]] bool handle_commands();
  // The same of a tree that can tell nobody anything.
  [[nodiscard]] bool wants_to_go() const TUTTI_EXCLUDES(mutex_);
  // False if the frame is damaged.
  bool hear(const Header& header, net::Unpacker* unpacker, const std::string& frame, const Neighbour* from);
  void hear_calls(Calls calls, const Neighbour* from);
  void hear_death(const Death& death);
  // A rank has left the job, and with it all communicators; or the communicator that this one is made of.
  void hear_bye(int job_rank);
  // A rank has left another communicator, perhaps the one that this is made of.
  void hear_left(CommId comm, int job_rank);
  // The same of all that had left before.
  void hear_departed(const ControlComm& comm);
  [[nodiscard]] CommId parent() const { return parent_; }
  // The communicator fails, here and everywhere.
  void fail(const Notice& notice);
  // It fails here; nobody can be told.
  void fail_here(const Status& status) noexcept;
  void answered(const Answer& answer);
  [[nodiscard]] Whereabouts whereabouts() const;
  // What may have been lost on the way.
  void say_again();
  // Parts and leave notices that neighbours have not heard yet, which wait to be merged with others.
  void pass_on_at_once() TUTTI_EXCLUDES(mutex_);
  // When they are to go on at the latest; 0: there are none.
  [[nodiscard]] std::int64_t due_ns() const;
  void advance(std::int64_t now_ns) TUTTI_EXCLUDES(mutex_);
  // A rank has become a neighbour, perhaps anew, and may have heard nothing.
  void meet(int job_rank) TUTTI_EXCLUDES(mutex_);
  // What this rank says when it leaves, for later neighbours. Its parts and the failure come first: a rank that hears a
  // leave notice without the part takes it for a failure, and without the failure for a mismatch.
  [[nodiscard]] std::vector<std::string> farewell() const;
  // The same while it stays, of all that have left as far as this rank knows, itself included.
  [[nodiscard]] std::vector<std::string> told() const;
  // All members have said that they call nothing more.
  [[nodiscard]] bool is_over() const TUTTI_EXCLUDES(mutex_);
  // The job's rank is no member, or has left, or its leave notice may be on its way: another has come, or this rank's
  // own has gone, since `recent_ns`.
  [[nodiscard]] bool may_have_left(int job_rank, std::int64_t recent_ns) const TUTTI_EXCLUDES(mutex_);
  // Nobody misses this rank here: it has sent its leave notice.
  [[nodiscard]] bool has_parted() const { return parted_; }
  [[nodiscard]] int rank_of(int job_rank) const;  // -1: no member
  [[nodiscard]] int job_rank_of(int rank) const { return members_[static_cast<std::size_t>(rank)]; }

 private:
  struct Watching {
    std::shared_ptr<FailureState> failure;
    Witness witness;
  };
  // An all-gather, by place.
  struct Gathering {
    std::vector<std::string> parts;
    RankSet places;               // whose parts are there
    std::map<int, RankSet> told;  // whose parts each neighbour has, by its rank in the job
    bool passed_on = false;       // all parts are there, and on their way to all neighbours
  };
  // What other threads want.
  struct Commands {
    std::vector<std::pair<std::uint32_t, std::string>> parts;  // this rank's, with their rounds
    Status announcement;                                       // the first
    std::vector<std::vector<CallRecord>> reports;
    std::vector<Question> questions;
    std::vector<std::string> decisions;
    std::optional<Refusal> refusal;  // the last
    bool comparing = false;
    bool finishing = false;
    bool leaving = false;
    bool ending = false;  // without leaving
  };

  [[nodiscard]] std::shared_ptr<const Watching> watching() const TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool mute() const TUTTI_REQUIRES(mutex_);
  [[nodiscard]] Result<std::vector<std::string>> gather(std::uint32_t round, Deadline deadline) TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] Status hopeless(std::uint32_t round) TUTTI_REQUIRES(mutex_);
  [[nodiscard]] std::vector<int> to_blame(std::uint32_t round) TUTTI_REQUIRES(mutex_);
  void tell_failure(const Notice& notice);
  [[nodiscard]] bool are_members(const std::string& members, int from);
  bool on_parts(Parts parts, const std::string& frame, const Neighbour* from) TUTTI_EXCLUDES(mutex_);
  Gathering& gathering(std::uint32_t round) TUTTI_REQUIRES(mutex_);
  // Those that are due by the tree's shape, or `at_once` all.
  void pass_on_parts(std::uint32_t round, bool at_once) TUTTI_EXCLUDES(mutex_);
  void pass_on_all_parts() TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool says_parts_again() const TUTTI_EXCLUDES(mutex_);
  void pass_on_leave_notices(bool at_once) TUTTI_EXCLUDES(mutex_);
  void on_decision(std::string decision) TUTTI_EXCLUDES(mutex_);
  void on_notice(const Notice& notice, const std::string& frame, const Neighbour* from);
  void on_leave_notices(std::vector<LeaveNotice> leave_notices, const Neighbour* from);
  // Those that are new, to what is known. Returns their places.
  RankSet add_departed(const LeaveNotice& leave_notice) TUTTI_REQUIRES(mutex_);
  void on_compare(const std::string& frame, const Neighbour* from);
  bool on_refusal(Refusal refusal, const std::string& frame, const Neighbour* from);
  void send_refusal(Refusal refusal) TUTTI_EXCLUDES(mutex_);
  void send_leave_notice();
  [[nodiscard]] std::vector<int> ranks_at(const RankSet& places) const;
  [[nodiscard]] int place_of(int rank) const;
  // Of the tree's shape: the places of the members that are below this rank, with its own.
  [[nodiscard]] const RankSet& places_below();
  void report_own(std::vector<CallRecord> calls);
  void judge(int rank, const CallSummary& calls);
  void judge_departed();
  [[nodiscard]] bool has_departed(int rank) const TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<LeaveNotice> departed() const TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] CallSummary own_calls() const;
  void tell_who_waits() TUTTI_EXCLUDES(mutex_);
  bool look_again(Deadline deadline) TUTTI_REQUIRES(mutex_);

  const std::shared_ptr<SocketTree> tree_;
  const std::vector<int> members_;  // job ranks, by rank
  const CommName name_;
  const CommId parent_;           // the communicator that it is made of; 0 also of the first
  const GivesUp gives_up_;        // called during initialisation only
  std::vector<int> by_job_rank_;  // the ranks, in the order of their job ranks: by place
  int rank_ = -1;
  bool enlisted_ = false;  // constant after enlist()

  // The tree's thread's own.
  bool any_notice_ = false;             // all members have been told of a failure, or will be
  std::string notice_;                  // by this frame, unless it was a death
  std::vector<std::string> own_parts_;  // the last frames of this rank's parts, which others may still need
  std::set<int> heard_of_;              // ranks that have made their parts, as far as is known
  bool parted_ = false;                 // this rank has sent its leave notice
  CallSummary own_parting_;             // with this
  // When the last rank left, this one included. No clock has been at this beginning.
  std::int64_t last_leave_ns_ = std::numeric_limits<std::int64_t>::min() / 2;
  RankSet below_;                // see places_below(); empty: not known yet
  std::map<int, RankSet> told_;  // whose leave notices each neighbour has heard, by its rank in the job
  std::int64_t leave_notices_due_ns_ = 0;
  std::int64_t parts_due_ns_ = 0;
  std::int64_t parts_wait_ms_ = kFirstPartsMs;  // for others to be merged with, the next time
  static constexpr std::int64_t kFirstPartsMs = 50;
  bool asked_for_calls_ = false;
  struct HeardRefusal {
    std::uint32_t serial = 0;
    std::string frame;
  };
  std::map<int, HeardRefusal> refusals_;  // the last of each rank, by rank; this one's as well
  CallLedger ledger_;                     // of this rank and those below it

  mutable Mutex mutex_;
  ConditionVariable changed_;
  Commands commands_ TUTTI_GUARDED_BY(mutex_);
  std::shared_ptr<const Watching> watching_ TUTTI_GUARDED_BY(mutex_);  // null during initialisation
  std::map<int, Refusal> early_refusals_ TUTTI_GUARDED_BY(mutex_);     // heard before that: the last of each rank
  std::vector<std::string> early_decisions_ TUTTI_GUARDED_BY(mutex_);  // likewise
  Status failure_ TUTTI_GUARDED_BY(mutex_);                            // the first
  std::uint32_t next_round_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::uint32_t refusal_told_ TUTTI_GUARDED_BY(mutex_) = 0;                 // the last serial number that is
  std::map<std::uint32_t, Gathering> gatherings_ TUTTI_GUARDED_BY(mutex_);  // by round
  std::vector<LeaveNotice> departed_ TUTTI_GUARDED_BY(mutex_);  // of all ranks that have left, this one among them,
  RankSet departed_places_ TUTTI_GUARDED_BY(mutex_);            // all together
  bool compared_ TUTTI_GUARDED_BY(mutex_) = false;              // own calls with those of all who have left
  bool all_parted_ TUTTI_GUARDED_BY(mutex_) = false;            // all ranks have sent their leave notices
};

}  // namespace tutti::internal::control
