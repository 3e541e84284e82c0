// How the control tree closes the gaps that ranks leave.
//
// When a rank dies, or leaves for good, the ranks below it look for another parent (parent_search.h). So every rank
// listens, and knows from the beginning where the others do. All ranks hear of the new place (kAttachment). Then each
// member resends its last messages in each communicator, and what it knows about failures and about ranks that are
// gone, because they may have been lost on the way. Ranks that know a message already do not forward it. So a rank that
// is not a member resends the parts and notices that it has forwarded: it may be the only rank between two members that
// knows them. Meanwhile other ranks wait for news of the ranks that have lost their parents, and find out which of them
// have died (awaited_ranks.h).
//
// Threads: the tree's only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "control/awaited_ranks.h"
#include "control/comm_table.h"
#include "control/job_view.h"
#include "control/kept_frames.h"
#include "control/neighbours.h"
#include "control/parent_search.h"
#include "control/tree_dial.h"
#include "control/tree_events.h"
#include "net/acceptor.h"
#include "net/socket.h"

namespace tutti::internal::control {

class Healing {
 public:
  // All outlive it.
  Healing(JobView* view, Neighbours* neighbours, const CommTable& comms, const Agreements& agreements,
          const KeptNotices& notices, const net::Secret& secret, Encryption encryption, std::int64_t silence_ms,
          TreeEvents* events);
  Healing(const Healing&) = delete;
  Healing& operator=(const Healing&) = delete;

  // `at_once`: see ParentSearch::begin().
  void look_for_parent(bool at_once = false);
  [[nodiscard]] const ParentSearch& search() const { return search_; }
  // Other ranks must still hear of the ranks below one that is gone.
  void await_below(int gone);
  // The connection to a rank below this one has ended: the rank has died, or looks for a parent.
  void ask_at_once(int rank);
  // Of another rank. False if it is known.
  bool hear_attachment(const Attachment& attachment, const std::string& frame, const Neighbour* from);
  // Connections of ranks that have lost their parents and choose this one.
  void take_in(std::vector<net::Authenticated> connections);
  // A notice of another rank has been forwarded.
  void note_passed() { unheard_ = unheard_ || search_.is_on(); }
  // Whether other ranks receive what this rank sends now. `over`: all members of the message's communicator have left.
  [[nodiscard]] bool is_heard(bool over);
  // From now on this rank looks for no other rank.
  void stop();
  // After that: this rank has left, and looks for a rank that receives its last messages.
  void look_for_receiver();

  // In a poll loop: prepare(set), set.wait(), advance(set), resend().
  void prepare(net::PollSet* set);
  void advance(const net::PollSet& set);
  // Resends messages that may have been lost.
  void resend();

 private:
  void advance_search(const net::PollSet& set);
  void attach(ParentSearch::Parent found);
  void give_up();
  void tell_state(Neighbour* to);
  [[nodiscard]] bool needs_parent() const;

  JobView& view_;
  Neighbours& neighbours_;
  const CommTable& comms_;
  const KeptNotices& notices_;
  TreeEvents& events_;
  const TreeDialler dialler_;
  ParentSearch search_;
  AwaitedRanks awaited_;
  bool unheard_ = false;  // notices were forwarded while this rank was looking for a parent
  bool resends_ = false;  // messages may have been lost
  bool stopped_ = false;
  bool leaves_ = false;  // it has left
};

}  // namespace tutti::internal::control
