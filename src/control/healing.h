// How the control tree closes the gaps that ranks leave.
//
// When a rank dies, or leaves for good, those below it look for another parent (parent_search.h). So every rank
// listens, and knows from the beginning where the others do. All are told of the new place (kAttachment), and then each
// member says again what it has said last in each communicator, and what it knows of its failure and of ranks that are
// gone: that may have been lost on the way. Members that know it already do not pass it on. Meanwhile others wait to
// hear of the ranks that have lost their parents, and find out which of them have died (awaited_ranks.h).
//
// Threads: the tree's alone.
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
  Healing(JobView* view, Neighbours* neighbours, const CommTable& comms, const KeptNotices& notices,
          const net::Secret& secret, std::int64_t silence_ms, TreeEvents* events);
  Healing(const Healing&) = delete;
  Healing& operator=(const Healing&) = delete;

  void look_for_parent();
  [[nodiscard]] const ParentSearch& search() const { return search_; }
  // Of those below a rank that is gone others have still to hear.
  void await_below(int gone);
  // Of another rank. False if it is known.
  bool hear_attachment(const Attachment& attachment, const std::string& frame, const Neighbour* from);
  // Ranks that have lost their parents and take this one.
  void take_in(std::vector<net::Authenticated> connections);
  // A notice of others has been passed on.
  void note_passed() { unheard_ = unheard_ || search_.is_on(); }
  // What this rank says now somebody hears. `over`: all members of the communicator that it is of have left.
  [[nodiscard]] bool is_heard(bool over);
  // From now on this rank looks for nobody.
  void stop();

  // In a poll loop: prepare(set), set.wait(), advance(set), resend().
  void prepare(net::PollSet* set);
  void advance(const net::PollSet& set);
  // What may have been lost.
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
  bool unheard_ = false;  // notices have been passed on while this rank was looking for a parent
  bool resends_ = false;  // what may have been lost
  bool stopped_ = false;
};

}  // namespace tutti::internal::control
