#include "control/inquiries.h"

#include <algorithm>
#include <utility>

#include "control/comm_agent.h"
#include "os/clock.h"

namespace tutti::internal::control {
namespace {

// If an answer is late by this time, it will not come: a rank on its way has died.
constexpr std::int64_t kForgetMs = 1000;
constexpr std::size_t kMaxRounds = 1024;  // inquiries that a non-member follows at a time

}  // namespace

// Null: there are too many.
Inquiries::Round* Inquiries::begin(const Key& key, Round::Phase phase, const Question& question) {
  if (rounds_.size() >= kMaxRounds && comms_.find(key.comm) == nullptr && !rounds_.contains(key)) return nullptr;
  const std::int64_t now = now_ns();
  Round* const round = &(rounds_[key] = {phase, ++token_, question, now + question.patience_ms * kNsPerMs, 0, {}, {}});
  const bool answers = phase == Round::Phase::kProbing && neighbours_.parent() == nullptr;
  const std::int64_t reports_ms = inquiry_ms(question.patience_ms) - question.patience_ms;
  round->end_ns = round->due_ns + (reports_ms + (answers ? 0 : kForgetMs)) * kNsPerMs;
  return round;
}

void Inquiries::send_inquiry(CommId comm, Round* round, FrameKind kind, Neighbour* to) {
  round->owing.insert(to->rank);
  neighbours_.send(pack_inquiry(comm, kind, {round->token, round->question}), to);
}

void Inquiries::inquire(CommId comm, const Question& question) {
  const Key key{comm, question.all};
  if (rounds_.contains(key)) return;
  Neighbour* const up = neighbours_.parent();
  if (up == nullptr && !search_.is_on()) return probe(comm, question);
  Round* const round = begin(key, Round::Phase::kAsked, question);
  if (round != nullptr && up != nullptr) send_inquiry(comm, round, FrameKind::kAsk, up);
}

void Inquiries::probe(CommId comm, const Question& question) {
  const Key key{comm, question.all};
  Round* const round = begin(key, Round::Phase::kProbing, question);
  for (Neighbour& neighbour : neighbours_.all()) {
    const bool below = !neighbour.is_parent && neighbour.stream.valid();
    if (below && round != nullptr) send_inquiry(comm, round, FrameKind::kProbe, &neighbour);
  }
  // Others need no time to come to the operation.
  if (question.all && round != nullptr) report_own(key, question);
}

void Inquiries::inquire_again() {
  std::vector<std::pair<Key, Question>> asked;
  for (const auto& [key, round] : rounds_) {
    if (round.phase == Round::Phase::kAsked) asked.emplace_back(key, round.question);
  }
  for (const auto& [key, question] : asked) {
    rounds_.erase(key);
    inquire(key.comm, question);
  }
}

void Inquiries::on_inquiry(CommId comm, FrameKind kind, const Inquiry& inquiry, Neighbour* from) {
  neighbours_.send(pack_here(comm, inquiry.token), from);
  if (kind == FrameKind::kAsk) return inquire(comm, inquiry.question);
  probe(comm, inquiry.question);
}

void Inquiries::on_receipt(CommId comm, std::uint32_t token, const Neighbour* from) {
  for (const bool all : {false, true}) {
    const auto round = rounds_.find({comm, all});
    if (round != rounds_.end() && round->second.token == token) round->second.owing.erase(from->rank);
  }
}

void Inquiries::on_absence(const Key& key, const Absence& absence) {
  const auto round = rounds_.find(key);
  if (Neighbour* const up = neighbours_.parent(); up != nullptr) {
    neighbours_.send(pack_absence(key.comm, key.all, absence), up);
  } else if (round != rounds_.end() && round->second.phase == Round::Phase::kProbing) {
    round->second.absent.push_back(absence);
    if (key.all) end_if_complete(&round->second);
  }
}

// When all members have reported themselves.
void Inquiries::end_if_complete(Round* round) {
  const auto reports =
      std::count_if(round->absent.begin(), round->absent.end(), [](const Absence& told) { return !told.silent; });
  if (static_cast<std::uint32_t>(reports) == round->question.sequence) round->due_ns = round->end_ns = 0;
}

void Inquiries::on_answer(CommId comm, const Answer& answer) {
  rounds_.erase({comm, answer.question.all});
  if (CommAgent* const member = comms_.find(comm)) member->hear_answer(answer);
  neighbours_.send_down(pack_answer(comm, answer), nullptr);
}

// The question's patience_ms are over.
void Inquiries::judge_silence(const Key& key) {
  Round& round = rounds_.at(key);
  round.due_ns = 0;
  const Question question = round.question;
  const bool probing = round.phase == Round::Phase::kProbing;
  for (const int rank : std::exchange(round.owing, {})) {
    if (!view_.is_there(rank)) continue;  // it has left or died meanwhile
    const Absence silent{rank, true};
    if (!probing) return on_answer(key.comm, {question, {silent}});
    on_absence(key, silent);
  }
  if (probing && !question.all) report_own(key, question);
}

void Inquiries::report_own(const Key& key, const Question& question) {
  // A rank that has sent its leave notice is not missing.
  const CommAgent* const member = comms_.find(key.comm);
  if (member == nullptr || member->leave_notices().has_parted()) return;
  const Whereabouts now = member->whereabouts();
  if (question.all) {
    on_absence(key, {view_.rank(), false, now.sequence, now.inside, member->report()});
  } else if (is_before(now.sequence, question.sequence)) {
    on_absence(key, {view_.rank(), false, now.sequence, now.inside, now.inside ? "" : member->reason()});
  }
}

void Inquiries::advance() {
  std::vector<Key> keys;
  for (const auto& [key, round] : rounds_) keys.push_back(key);
  const std::int64_t now = now_ns();
  for (const Key& key : keys) {
    if (rounds_.at(key).due_ns != 0 && now >= rounds_.at(key).due_ns) judge_silence(key);
    const auto at = rounds_.find(key);
    if (at == rounds_.end() || now < at->second.end_ns) continue;
    const Round round = std::move(at->second);
    rounds_.erase(at);
    if (round.phase == Round::Phase::kProbing && neighbours_.parent() == nullptr)
      on_answer(key.comm, {round.question, round.absent});
  }
}

bool Inquiries::hear(const Header& header, net::Unpacker* unpacker, Neighbour* from) {
  Inquiry inquiry;
  Absence absence;
  Answer answer;
  std::uint32_t token = 0;
  const bool from_below = !from->is_parent;
  if (header.kind == FrameKind::kAsk || header.kind == FrameKind::kProbe) {
    if ((header.kind == FrameKind::kAsk) != from_below || !unpack_inquiry(unpacker, &inquiry)) return false;
    on_inquiry(header.comm, header.kind, inquiry, from);
  } else if (header.kind == FrameKind::kHere) {
    if (!unpack_here(unpacker, &token)) return false;
    on_receipt(header.comm, token, from);
  } else if (header.kind == FrameKind::kAbsent) {
    bool all = false;
    if (!from_below || !unpack_absence(unpacker, view_.ranks(), &all, &absence)) return false;
    on_absence({header.comm, all}, absence);
  } else {
    if (from_below || !unpack_answer(unpacker, view_.ranks(), &answer)) return false;
    on_answer(header.comm, answer);
  }
  return true;
}

void Inquiries::forget_owing(int rank) {
  for (auto& [key, round] : rounds_) round.owing.erase(rank);
}

void Inquiries::prepare(net::PollSet* set) const {
  const std::int64_t now = now_ns();
  for (const auto& [key, round] : rounds_) {
    const std::int64_t next = round.due_ns != 0 ? round.due_ns : round.end_ns;
    set->wake_at(Deadline::after_ms(next <= now ? 0 : (next - now + kNsPerMs - 1) / kNsPerMs));
  }
}

}  // namespace tutti::internal::control
