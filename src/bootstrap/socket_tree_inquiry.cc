// Which ranks have not arrived? A rank in whose operation nothing moves asks upwards. Rank 0 sends a probe down the
// tree, of which every rank gives its neighbour a receipt at once. A rank that has given none when the question's
// patience is over is silent, and its neighbour reports it; a rank that has not begun the operation reports itself, and
// whether it is at work inside an earlier one. A little later rank 0 gives what has been reported as the answer to all.
// Since every neighbour is judged by the one next to it and within the same time, the answer takes no longer in a deep
// tree, and ranks below a silent one are not blamed.
//
// A question is given a receipt as well. Whose parent gives none answers those below it by itself: the parent is
// silent. Ranks whose parent has left or died do as rank 0 does.
//
// One question at a time: who asks while another's is being answered gets that answer.
#include <algorithm>
#include <climits>
#include <utility>

#include "base/clock.h"
#include "bootstrap/socket_tree.h"

namespace tutti::internal::control {
namespace {

constexpr std::int64_t kMs = 1'000'000;
// An answer that has not come so long after it should have will not come: something has died on its way.
constexpr std::int64_t kForgetMs = 1000;

}  // namespace

Neighbour* SocketTree::parent() {
  const auto found = std::find_if(neighbours_.begin(), neighbours_.end(), [](const Neighbour& neighbour) {
    return neighbour.is_parent && neighbour.socket.valid();
  });
  return found == neighbours_.end() ? nullptr : &*found;
}

// Before watch() this rank is in no operation.
Whereabouts SocketTree::whereabouts() const {
  return witness_.where ? witness_.where() : Whereabouts{};
}

void SocketTree::begin(Round::Phase phase, const Question& question) {
  const std::int64_t now = now_ns();
  round_.phase = phase;
  ++round_.token;
  round_.question = question;
  round_.due_ns = now + question.patience_ms * kMs;
  const bool answers = phase == Round::Phase::kProbing && parent() == nullptr;
  const std::int64_t reports_ms = inquiry_ms(question.patience_ms) - question.patience_ms;
  round_.end_ns = round_.due_ns + (reports_ms + (answers ? 0 : kForgetMs)) * kMs;
  round_.absent.clear();
  for (Neighbour& neighbour : neighbours_) neighbour.owes_receipt = false;
}

void SocketTree::send_inquiry(Kind kind, Neighbour* to) {
  to->owes_receipt = true;
  to->writer.queue(pack_inquiry(kind, {round_.token, round_.question}));
  flush(to);
}

// On behalf of this rank or one below it.
void SocketTree::inquire(const Question& question) {
  if (round_.phase != Round::Phase::kIdle || any_notice_) return;
  Neighbour* const up = parent();
  if (up == nullptr) return probe(question);
  begin(Round::Phase::kAsked, question);
  send_inquiry(Kind::kAsk, up);
}

void SocketTree::probe(const Question& question) {
  begin(Round::Phase::kProbing, question);
  for (Neighbour& neighbour : neighbours_) {
    if (!neighbour.is_parent && neighbour.socket.valid()) send_inquiry(Kind::kProbe, &neighbour);
  }
}

void SocketTree::hear_inquiry(Kind kind, const Inquiry& inquiry, Neighbour* from) {
  from->writer.queue(pack_here(inquiry.token));
  flush(from);
  if (kind == Kind::kAsk) return inquire(inquiry.question);
  probe(inquiry.question);
}

void SocketTree::hear_receipt(std::uint32_t token, Neighbour* from) {
  if (token == round_.token) from->owes_receipt = false;
}

void SocketTree::hear_absence(const Absence& absence) {
  if (Neighbour* const up = parent(); up != nullptr) {
    up->writer.queue(pack_absence(absence));
    flush(up);
  } else if (round_.phase == Round::Phase::kProbing) {
    round_.absent.push_back(absence);
  }
}

void SocketTree::hear_answer(const Answer& answer) {
  round_.phase = Round::Phase::kIdle;
  if (witness_.answered) witness_.answered(answer);
  const std::string frame = pack_answer(answer);
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.is_parent || !neighbour.socket.valid()) continue;
    neighbour.writer.queue(frame);
    flush(&neighbour);
  }
}

// The patience is over.
void SocketTree::judge_silence() {
  round_.due_ns = 0;
  for (const Neighbour& neighbour : neighbours_) {
    if (!neighbour.owes_receipt || !neighbour.socket.valid()) continue;
    const Absence silent{neighbour.rank, true};
    if (round_.phase == Round::Phase::kAsked) return hear_answer({round_.question, {silent}});
    hear_absence(silent);
  }
  const Whereabouts now = whereabouts();
  // A rank that has sent its leave notice is not missed.
  if (round_.phase == Round::Phase::kProbing && !parted_ && is_before(now.sequence, round_.question.sequence)) {
    hear_absence({rank_, false, now.sequence, now.inside});
  }
}

void SocketTree::advance_round() {
  if (round_.phase == Round::Phase::kIdle) return;
  const std::int64_t now = now_ns();
  if (round_.due_ns != 0 && now >= round_.due_ns) judge_silence();
  if (round_.phase == Round::Phase::kIdle || now < round_.end_ns) return;
  if (round_.phase == Round::Phase::kAsked || parent() != nullptr) {
    round_.phase = Round::Phase::kIdle;
    return;
  }
  std::sort(round_.absent.begin(), round_.absent.end(),
            [](const Absence& a, const Absence& b) { return a.rank < b.rank; });
  hear_answer({round_.question, std::move(round_.absent)});
}

// For epoll_wait: -1 while nobody asks.
int SocketTree::round_wait_ms() const {
  if (round_.phase == Round::Phase::kIdle) return -1;
  const std::int64_t next = round_.due_ns != 0 ? round_.due_ns : round_.end_ns;
  return static_cast<int>(std::clamp<std::int64_t>((next - now_ns() + kMs - 1) / kMs, 0, INT_MAX));
}

}  // namespace tutti::internal::control
