// Which ranks have not arrived? A rank in whose operation nothing moves asks upwards. Rank 0 sends a probe down the
// tree, of which every rank gives its neighbour a receipt at once. A rank that has given none when the question's
// patience is over is silent, and its neighbour reports it; a rank that has not begun the operation reports itself, and
// whether it is at work inside an earlier one. A little later rank 0 gives what has been reported as the answer to all.
// Since every neighbour is judged by the one next to it and within the same time, the answer takes no longer in a deep
// tree, and ranks below a silent one are not blamed.
//
// A question is given a receipt as well. Whose parent gives none answers those below it by itself: the parent is
// silent. Ranks whose parent has left or died ask again where they have found another, or do as rank 0 does.
//
// One question of a communicator at a time: who asks while another's is being answered gets that answer. All ranks of
// the job take part, since those that are no members are between those that are; of these, though, it is not said that
// they are absent, only of members.
//
// Threads: the tree's alone.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "control/comm_table.h"
#include "control/control_messages.h"
#include "control/job_view.h"
#include "control/neighbours.h"
#include "control/parent_search.h"
#include "net/frame.h"
#include "net/socket.h"

namespace tutti::internal::control {

class Inquiries {
 public:
  // All outlive it.
  Inquiries(const JobView& view, const CommTable& comms, const ParentSearch& search, Neighbours* neighbours)
      : view_(view), comms_(comms), search_(search), neighbours_(*neighbours) {}

  // On behalf of this rank or one below it.
  void inquire(CommId comm, const Question& question);
  // What this rank had asked the parent that is gone.
  void inquire_again();
  // False if the frame is damaged.
  bool hear(const Header& header, net::Unpacker* unpacker, Neighbour* from);
  // The neighbour is none any more, or leaves: it owes no receipt.
  void forget_owing(int rank);
  void clear() { rounds_.clear(); }

  // In a poll loop: prepare(set), set.wait(), advance().
  void prepare(net::PollSet* set) const;
  void advance();

 private:
  // What this rank knows of the question that is being answered in a communicator.
  struct Round {
    enum class Phase { kAsked, kProbing };
    Phase phase = Phase::kAsked;
    std::uint32_t token = 0;  // of this rank's last inquiry
    Question question;
    std::int64_t due_ns = 0;  // who has given no receipt then is silent; 0: that is judged
    std::int64_t end_ns = 0;  // the answer is given, or waited for no longer
    std::set<int> owing;      // the neighbours that owe a receipt
    std::vector<Absence> absent;
  };
  Round* begin(CommId comm, Round::Phase phase, const Question& question);
  void send_inquiry(CommId comm, Round* round, FrameKind kind, Neighbour* to);
  void probe(CommId comm, const Question& question);
  void on_inquiry(CommId comm, FrameKind kind, const Inquiry& inquiry, Neighbour* from);
  void on_receipt(CommId comm, std::uint32_t token, const Neighbour* from);
  void on_absence(CommId comm, const Absence& absence);
  void on_answer(CommId comm, const Answer& answer);
  void judge_silence(CommId comm);

  const JobView& view_;
  const CommTable& comms_;
  const ParentSearch& search_;
  Neighbours& neighbours_;
  std::map<CommId, Round> rounds_;
  std::uint32_t token_ = 0;
};

}  // namespace tutti::internal::control
