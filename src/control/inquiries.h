// Finds out which ranks are missing. A rank whose operation makes no progress sends a question up the tree. Rank 0
// sends a probe down the tree, and every rank gives its neighbour a receipt for it at once. A rank that has given none
// after the question's patience_ms is silent, and its neighbour reports it. A rank that has not begun the operation
// reports itself, and whether it is inside an earlier one. A little later rank 0 sends the reports to all ranks as the
// answer. Because every rank is judged by its neighbour and within the same time, the answer takes no longer in a deep
// tree, and ranks below a silent one are not blamed.
//
// A question gets a receipt as well. If a rank's parent gives none, the rank answers those below it by itself: the
// parent is silent. Ranks whose parent has left or died ask again when they have found another, or act like rank 0.
//
// A communicator has one question about missing ranks at a time: a rank that asks while another question is being
// answered gets that answer. A question for all is answered likewise, beside it: each member that is alive reports
// itself at once, and the answer comes when all have, or after the same time. All ranks of the job take part, because
// non-members are between members; but only members are reported as missing.
//
// Threads: the tree's only.
#pragma once

#include <compare>
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

  // For this rank or one below it.
  void inquire(CommId comm, const Question& question);
  // Repeats the questions that this rank had sent to the parent that is gone.
  void inquire_again();
  // False if the frame is damaged.
  bool hear(const Header& header, net::Unpacker* unpacker, Neighbour* from);
  // The rank is no longer a neighbour, or leaves: it owes no receipt.
  void forget_owing(int rank);
  void clear() { rounds_.clear(); }

  // In a poll loop: prepare(set), set.wait(), advance().
  void prepare(net::PollSet* set) const;
  void advance();

 private:
  struct Key {
    CommId comm = 0;
    bool all = false;  // Question::all
    auto operator<=>(const Key&) const = default;
  };
  // The state of the current question of a communicator.
  struct Round {
    enum class Phase { kAsked, kProbing };
    Phase phase = Phase::kAsked;
    std::uint32_t token = 0;  // of this rank's last question or probe
    Question question;
    std::int64_t due_ns = 0;  // a neighbour without a receipt at this time is silent; 0: already judged
    std::int64_t end_ns = 0;  // when the answer is sent, or no longer awaited
    std::set<int> owing;      // neighbours that owe a receipt
    std::vector<Absence> absent;
  };
  Round* begin(const Key& key, Round::Phase phase, const Question& question);
  void send_inquiry(CommId comm, Round* round, FrameKind kind, Neighbour* to);
  void probe(CommId comm, const Question& question);
  void on_inquiry(CommId comm, FrameKind kind, const Inquiry& inquiry, Neighbour* from);
  void on_receipt(CommId comm, std::uint32_t token, const Neighbour* from);
  void on_absence(const Key& key, const Absence& absence);
  void on_answer(CommId comm, const Answer& answer);
  void judge_silence(const Key& key);
  void report_own(const Key& key, const Question& question);
  static void end_if_complete(Round* round);

  const JobView& view_;
  const CommTable& comms_;
  const ParentSearch& search_;
  Neighbours& neighbours_;
  std::map<Key, Round> rounds_;
  std::uint32_t token_ = 0;
};

}  // namespace tutti::internal::control
