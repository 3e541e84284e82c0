// The agreements of communicators: each member contributes, and all members that live get the same decision, whichever
// ranks die meanwhile.
//
// The lowest rank of the job that lives decides; it need not be a member. Ranks send the contributions of those below
// them up the tree, merged. When the coordinator has those of all members that live, it decides, and sends the decision
// down; a rank that gets it forwards it and returns. So each rank sends O(1) messages, and the result takes two passes
// of the tree. (The two phases of the "early returning agreement" of Herault et al., SC 2015.)
//
// If the coordinator dies, the next lowest rank replaces it. A rank's *ballot* is the lowest rank that it believes to
// live, and so rises only. Frames carry the sender's ballot. With a higher ballot, a rank forgets what it merged
// before, and sends its own contribution again, with the decision if it has one. It takes no decision of a lower ballot
// after that. So the new coordinator, which waits for all members that live, learns of each decision that any of them
// has taken or will take, and decides the same. (A rank that is not a member need not be asked, so it forgets its
// decision as well.) tests/model/agreement.pml checks this for up to 5
// ranks, without members that leave or are late.
//
// A member that has contributed may leave the communicator, and is awaited like others: its process sends what it has.
// If it has left the job, it counts as dead.
//
// An agreement is named by the communicator, the members that are excluded, and a number: all others make the same
// calls in the same order.
//
// Threads: the tree's only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/agreement.h"
#include "control/agreement_messages.h"
#include "control/comm_table.h"
#include "control/control_messages.h"
#include "control/job_view.h"
#include "control/neighbours.h"
#include "net/socket.h"

namespace tutti::internal::control {

class Agreements {
 public:
  // All outlive it.
  Agreements(const JobView& view, const CommTable& comms, Neighbours* neighbours)
      : view_(view), comms_(comms), neighbours_(*neighbours) {}
  Agreements(const Agreements&) = delete;
  Agreements& operator=(const Agreements&) = delete;

  // This rank's contribution. `wait_ms`: how long it waits for the others.
  void give(const AgreementName& name, const Tally& own, std::int64_t wait_ms);
  // The rank's time is over: it takes the decision that the others are late, unless it has taken another.
  void give_up(const AgreementName& name, const Caller& self);
  // AgreementName::hash() of those of the communicator to which this rank has contributed last, ascending.
  [[nodiscard]] std::vector<std::uint64_t> contributed_to(CommId comm) const;
  // False if the frame is damaged.
  bool hear(const Header& header, net::Unpacker* unpacker, Neighbour* from);
  // Whether members wait for the rank, which has not left their communicator as far as this rank knows.
  [[nodiscard]] bool await(int rank) const;
  // All members have left the communicator.
  void forget(CommId comm);
  // Ranks have died, left or moved, or this rank has another parent.
  void look_again();
  // A rank has become a neighbour, perhaps again, and may have received nothing.
  void meet(int rank);

  // In a poll loop: prepare(set), set.wait(), read all frames, advance(). Only that sends and decides: so frames that
  // arrive together count together.
  void prepare(net::PollSet* set) const;
  void advance();

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  struct Round {
    AgreementName name;
    RankSet members;                   // that take part
    Tally own;                         // empty: this rank has not contributed, or is not a member
    std::optional<Decision> decision;  // taken by this rank
    Decision passed_on;                // the last that this rank made or forwarded
    int decided_ballot = -1;           // the ballot of that; -1: there is none
    std::int64_t end_ns = kNever;      // when the members wait no longer
    std::uint64_t serial = 0;
    bool changed = false;  // since the last advance()
    // With the current ballot:
    int ballot = 0;
    Tally tally;                       // all contributions, with `own`
    RankSet left;                      // members that left the communicator without contributing
    std::optional<Decision> reported;  // taken by another rank
    // What the parent has been told.
    int told_to = -1;  // -1: nothing
    RankSet told;
    RankSet told_left;
    bool told_end = false;          // that there is a decision, or a different call
    std::int64_t due_ns = 0;        // when contributions must be sent without the rest; 0: none waits
    std::int64_t next_wait_ms = 0;  // how long the next ones wait
  };
  Round& round_of(const AgreementName& name);
  void make_room(const AgreementName& name);
  void raise(Round* round, int ballot) const;
  void pass_up(Round* round);
  // When a coordinator decides without the members that are missing.
  [[nodiscard]] std::int64_t late_at_ns(const Round& round) const;
  [[nodiscard]] bool is_complete_below(const Round& round) const;
  void try_to_decide(Round* round, bool late);
  void take(Round* round, const Decision& decision, const Neighbour* from);
  void deliver(const Round& round) const;
  [[nodiscard]] bool coordinates(const Round& round) const;
  [[nodiscard]] Caller other_call(const Round& round, const RankSet& missing) const;
  bool on_proposals(const Header& header, net::Unpacker* unpacker, Neighbour* from);
  bool on_agreed(const Header& header, net::Unpacker* unpacker, const Neighbour* from);
  void note_left(Round* round) const;

  const JobView& view_;
  const CommTable& comms_;
  Neighbours& neighbours_;
  std::map<std::string, Round> rounds_;  // by AgreementName::key()
  std::uint64_t begun_ = 0;
  std::int64_t changed_ns_ = 0;  // when ranks last died, left or moved
};

}  // namespace tutti::internal::control
