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
#include <algorithm>
#include <climits>
#include <utility>

#include "control/control_comm.h"
#include "control/socket_tree.h"
#include "os/clock.h"

namespace tutti::internal::control {
namespace {

constexpr std::int64_t kMs = 1'000'000;
// An answer that has not come so long after it should have will not come: something has died on its way.
constexpr std::int64_t kForgetMs = 1000;
constexpr std::size_t kMaxRounds = 1024;  // that ranks which are no members follow at a time

}  // namespace

// Null: there are too many.
SocketTree::Round* SocketTree::begin(CommId comm, Round::Phase phase, const Question& question) {
  if (rounds_.size() >= kMaxRounds && find(comm) == nullptr && !rounds_.contains(comm)) return nullptr;
  const std::int64_t now = now_ns();
  Round* const round = &(rounds_[comm] = {phase, ++token_, question, now + question.patience_ms * kMs, 0, {}, {}});
  const bool answers = phase == Round::Phase::kProbing && parent() == nullptr;
  const std::int64_t reports_ms = inquiry_ms(question.patience_ms) - question.patience_ms;
  round->end_ns = round->due_ns + (reports_ms + (answers ? 0 : kForgetMs)) * kMs;
  return round;
}

void SocketTree::send_inquiry(CommId comm, Round* round, FrameKind kind, Neighbour* to) {
  round->owing.insert(to->rank);
  send(pack_inquiry(comm, kind, {round->token, round->question}), to);
}

// On behalf of this rank or one below it.
void SocketTree::inquire(CommId comm, const Question& question) {
  if (rounds_.contains(comm)) return;
  Neighbour* const up = parent();
  if (up == nullptr && !search_) return probe(comm, question);
  Round* const round = begin(comm, Round::Phase::kAsked, question);
  if (round != nullptr && up != nullptr) send_inquiry(comm, round, FrameKind::kAsk, up);
}

void SocketTree::probe(CommId comm, const Question& question) {
  Round* const round = begin(comm, Round::Phase::kProbing, question);
  for (Neighbour& neighbour : neighbours_) {
    const bool below = !neighbour.is_parent && neighbour.socket.valid();
    if (below && round != nullptr) send_inquiry(comm, round, FrameKind::kProbe, &neighbour);
  }
}

// What this rank had asked the parent that is gone.
void SocketTree::inquire_again() {
  std::vector<std::pair<CommId, Question>> asked;
  for (const auto& [comm, round] : rounds_) {
    if (round.phase == Round::Phase::kAsked) asked.emplace_back(comm, round.question);
  }
  for (const auto& [comm, question] : asked) {
    rounds_.erase(comm);
    inquire(comm, question);
  }
}

void SocketTree::on_inquiry(CommId comm, FrameKind kind, const Inquiry& inquiry, Neighbour* from) {
  send(pack_here(comm, inquiry.token), from);
  if (kind == FrameKind::kAsk) return inquire(comm, inquiry.question);
  probe(comm, inquiry.question);
}

void SocketTree::on_receipt(CommId comm, std::uint32_t token, const Neighbour* from) {
  const auto round = rounds_.find(comm);
  if (round != rounds_.end() && round->second.token == token) round->second.owing.erase(from->rank);
}

void SocketTree::on_absence(CommId comm, const Absence& absence) {
  const auto round = rounds_.find(comm);
  if (Neighbour* const up = parent(); up != nullptr) {
    send(pack_absence(comm, absence), up);
  } else if (round != rounds_.end() && round->second.phase == Round::Phase::kProbing) {
    round->second.absent.push_back(absence);
  }
}

void SocketTree::on_answer(CommId comm, const Answer& answer) {
  rounds_.erase(comm);
  if (ControlComm* const member = find(comm)) member->answered(answer);
  const std::string frame = pack_answer(comm, answer);
  for (Neighbour& neighbour : neighbours_) {
    if (!neighbour.is_parent) send(frame, &neighbour);
  }
}

// The patience is over.
void SocketTree::judge_silence(CommId comm) {
  Round& round = rounds_.at(comm);
  round.due_ns = 0;
  const Question question = round.question;
  for (const int rank : std::exchange(round.owing, {})) {
    if (!is_there(rank)) continue;  // it has left or died meanwhile
    const Absence silent{rank, true};
    if (round.phase == Round::Phase::kAsked) return on_answer(comm, {question, {silent}});
    on_absence(comm, silent);
  }
  // A rank that has sent its leave notice is not missed.
  const ControlComm* const member = find(comm);
  if (round.phase != Round::Phase::kProbing || member == nullptr || member->has_parted()) return;
  const Whereabouts now = member->whereabouts();
  if (is_before(now.sequence, question.sequence)) on_absence(comm, {rank_, false, now.sequence, now.inside});
}

void SocketTree::advance_rounds() {
  std::vector<CommId> comms;
  for (const auto& [comm, round] : rounds_) comms.push_back(comm);
  const std::int64_t now = now_ns();
  for (const CommId comm : comms) {
    if (rounds_.at(comm).due_ns != 0 && now >= rounds_.at(comm).due_ns) judge_silence(comm);
    const auto at = rounds_.find(comm);
    if (at == rounds_.end() || now < at->second.end_ns) continue;
    const Round round = std::move(at->second);
    rounds_.erase(at);
    if (round.phase == Round::Phase::kProbing && parent() == nullptr) on_answer(comm, {round.question, round.absent});
  }
}

void SocketTree::wake_for_rounds(net::PollSet* set) const {
  const std::int64_t now = now_ns();
  for (const auto& [comm, round] : rounds_) {
    const std::int64_t next = round.due_ns != 0 ? round.due_ns : round.end_ns;
    set->wake_at(Deadline::after_ms(next <= now ? 0 : (next - now + kMs - 1) / kMs));
  }
}

}  // namespace tutti::internal::control
