#include "communicator/stalls.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/rank_list.h"
#include "monitor/lateness.h"
#include "os/clock.h"

namespace tutti::internal {
namespace {

// The limits of the time in which a process must answer before it counts as silent. The machine may be busy with other
// work, so it must not be short; but the question is asked that long before the deadline, and the operation may end
// before.
constexpr std::int64_t kMinPatienceMs = 100;
constexpr std::int64_t kMaxPatienceMs = 1000;
// If this rank waits for the answer.
constexpr std::int64_t kShortPatienceMs = 250;
static_assert(2 * inquiry_ms(kShortPatienceMs) < StallWatch::kAnswerMs);

// The maximum time between two ranks' creation of the communicator.
constexpr std::int64_t kMadeApartMs = 60'000;

// The others react to a refusal only after this time: a program that calls again at once withdraws it sooner.
constexpr std::int64_t kRefusedMs = 200;

// Short waits are a warning if together they are as long as a long one, within this multiple of its time.
constexpr std::int64_t kCountedNotices = 6;
// For each late rank and reason.
constexpr std::int64_t kTellShortWaitsMs = 60 * 60 * 1000;
constexpr std::size_t kMostReasonsTold = 64;

// Time for the answer to travel down the tree.
constexpr std::int64_t kSpareMs = 20;

std::string list_with_who(const std::vector<int>& ranks, const RankTable<PeerInfo>& peers) {
  if (ranks.size() != 1) return list_ranks(ranks);
  const PeerInfo& peer = peers[static_cast<std::size_t>(ranks[0])];
  return describe_rank(ranks[0], peer.hostname, peer.pid);
}

}  // namespace

std::string describe_absence(const Answer& answer, const RankTable<PeerInfo>& peers) {
  std::vector<int> silent;
  std::vector<int> late;
  std::vector<int> behind;
  std::uint32_t at = 0;
  std::string reason;
  std::uint32_t least = answer.question.sequence;  // the lowest number that a missing rank has begun
  for (const Absence& absence : answer.absent) {
    if (!absence.silent && is_before(absence.sequence, least)) least = absence.sequence;
  }
  const bool any_silent =
      std::any_of(answer.absent.begin(), answer.absent.end(), [](const Absence& a) { return a.silent; });
  for (const Absence& absence : answer.absent) {
    if (absence.silent) {
      silent.push_back(absence.rank);
    } else if (!absence.inside) {
      late.push_back(absence.rank);
      at = absence.sequence;
      reason = absence.report;
    } else if (absence.sequence == least && !any_silent) {
      behind.push_back(absence.rank);
    }
  }
  std::vector<std::string> texts;
  if (silent.size() == 1) {
    texts.push_back(list_with_who(silent, peers) + " is silent: its process does not answer on the control connection");
  } else if (!silent.empty()) {
    texts.push_back(list_ranks(silent) + " are silent: their processes do not answer on the control connections");
  }
  if (!late.empty()) {
    texts.push_back(fmt::format("{}{} not called operation {}", list_with_who(late, peers),
                                late.size() == 1 ? " has" : " have", answer.question.sequence));
    if (late.size() == 1) texts.back() += at == 0 ? " (nor any before)" : fmt::format(" (its last was {})", at);
    if (late.size() == 1 && !reason.empty()) texts.back() += ": " + reason;
  }
  if (!behind.empty()) {
    texts.push_back(fmt::format("{}{} still in operation {}", list_with_who(behind, peers),
                                behind.size() == 1 ? " is" : " are", least));
  }
  std::string text;
  for (const std::string& part : texts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

std::string reason_of(const observe::EventRing& ring, int rank) {
  constexpr std::uint32_t kLeastUs = 20'000;
  const auto outside = ring.present_outside();
  return !outside || outside->us < kLeastUs
             ? ""
             : monitor::describe_now(monitor::main_cause(*outside), fmt::format("rank {}", rank));
}

bool NoticeClock::due(const Answer& answer, std::int64_t now_ms, std::uint64_t refusal) {
  const std::int64_t since_ms = now_ms - last_ms_;
  // Within one wait, one rank asks once a minute, and several ranks ask at about the same time.
  const bool same = answer.question.sequence == last_sequence_ || answer.absent == last_absent_;
  const std::int64_t pause_ms = same ? kAgainMs - kAgainMs / 10 : notice_ms_ - notice_ms_ / 10;
  const bool refused = refusal != 0 && refusal != last_refusal_;
  if (any_ && since_ms < pause_ms && !refused) return false;
  last_refusal_ = refusal;
  any_ = true;
  last_ms_ = now_ms;
  last_sequence_ = answer.question.sequence;
  last_absent_ = answer.absent;
  return true;
}

Stalls::Stalls(ControlTree& tree, const Membership& membership, const FailureState& failure, CallHistory& history,
               const Refusals& refusals, std::int64_t timeout_ms, std::int64_t notice_ms)
    : tree_(tree),
      membership_(membership),
      failure_(failure),
      history_(history),
      refusals_(refusals),
      patience_ms_(std::clamp(timeout_ms / 4, kMinPatienceMs, kMaxPatienceMs)),
      notice_ms_(notice_ms),
      clock_(notice_ms) {}

// Only counts that two ranks share can differ without an error: then both wait.
std::string Stalls::hint(const Awaited* awaited) const {
  if (const Refusals::Standing refused = awaited_refusals(awaited); refused.last != 0) return refused.text;
  std::vector<int> ranks;
  if (awaited != nullptr) ranks = awaited->awaited();
  if (ranks.empty() && transfer_ != nullptr) ranks.push_back(transfer_->peer);  // this rank is still connecting to it
  const std::string who = ranks.empty() ? "another rank" : list_ranks(ranks);
  if (transfer_ != nullptr) {
    return fmt::format("rank {} waits for {}, which perhaps has not called the {} that matches", membership_.rank, who,
                       transfer_->sends ? "recv" : "send");
  }
  const std::vector<CallRecord> calls = history_.summary().calls;
  const auto last = calls.empty() ? Collective::kBarrier : executor::collective_of(calls.back().call[0]);
  const bool unchecked = varies(last) && !counts_are_common(last) && !membership_.settings.strict;
  return fmt::format(
      "rank {} waits for {}{}", membership_.rank, who,
      unchecked ? ". The ranks may have passed different counts. Set TUTTI_CHECK=strict to compare them" : "");
}

// `before`: words in front of the operation.
void Stalls::ask(std::int64_t patience_ms, std::int64_t waited_ms, const Awaited* awaited, const std::string& before) {
  Question question;
  question.sequence = history_.sequence();
  question.patience_ms = patience_ms;
  question.waited_ms = waited_ms;
  if (waited_ms > 0 && transfer_ != nullptr) question.what = describe(*transfer_);
  if (waited_ms > 0 && transfer_ == nullptr) {
    // If memory is missing, the history has no calls.
    const std::vector<CallRecord> calls = history_.summary().calls;
    question.what = calls.empty() ? fmt::format("operation {}", question.sequence) : calls.back().text;
  }
  if (waited_ms > 0) question.hint = hint(awaited);
  if (waited_ms > 0) question.what.insert(0, before);
  log::debug(fmt::format("rank {} asks which ranks have not called operation {}", membership_.rank, question.sequence));
  tree_.ask(std::move(question));
}

// For other processes.
void Stalls::note_wait(std::int64_t waited_ms, const Awaited* awaited) {
  std::vector<int> ranks;
  if (awaited != nullptr) ranks = awaited->awaited();
  if (ranks.empty() && transfer_ != nullptr) ranks.push_back(transfer_->peer);
  history_.ring().note_wait(waited_ms, ranks);
}

void Stalls::held_up(std::span<const Held> links, std::int64_t ns) {
  observe::EventRing& ring = history_.ring();
  ring.note_delay();
  for (const Held& link : links) ring.note_link(link.peer, link.sends, ns);
}

Status Stalls::stalled(std::int64_t waited_ms, std::int64_t left_ms, const Awaited* awaited) {
  const std::uint32_t sequence = history_.sequence();
  if (sequence != sequence_ || waited_ms < last_waited_ms_) {
    next_notice_ms_ = notice_ms_;
    asked_ns_ = 0;
  }
  if (sequence != sequence_) reported_ = false;
  const std::int64_t more_ms =
      sequence != sequence_ || waited_ms < last_waited_ms_ ? waited_ms : waited_ms - last_waited_ms_;
  sequence_ = sequence;
  last_waited_ms_ = waited_ms;
  if (waited_ms < noted_ms_ || waited_ms - noted_ms_ >= kNoteMs) {
    noted_ms_ = waited_ms;
    const Status noted = guarded([&] { return note_wait(waited_ms, awaited), Status(); });
    (void)noted;
  }
  if (waited_ms > kStallMs && !reported_) {
    reported_ = true;
    tree_.report_calls(history_.summary().calls);
  }
  if (left_ms <= inquiry_ms(patience_ms_) + kSpareMs) {
    if (asked_ns_ != 0) return {};
    asked_ns_ = now_ns();
    ask(patience_ms_, 0, awaited);
  } else if (notice_ms_ > 0 && waited_ms >= next_notice_ms_) {
    next_notice_ms_ = waited_ms + NoticeClock::kAgainMs;
    ask(std::clamp(notice_ms_ / 4, kMinPatienceMs, kMaxPatienceMs), waited_ms, awaited);
  } else if (notice_ms_ > 0) {
    look_at_short_waits(waited_ms, more_ms, awaited);
  }
  return refusals_.any() ? look_at_refusals(waited_ms, awaited) : Status();
}

// The answer comes only if the late rank does not come sooner.
void Stalls::look_at_short_waits(std::int64_t waited_ms, std::int64_t more_ms, const Awaited* awaited) {
  const std::int64_t now = now_ns();
  if (now - counting_since_ns_ > kCountedNotices * notice_ms_ * kNsPerMs) {
    counting_since_ns_ = now;
    counted_ms_ = 0;
  }
  counted_ms_ += more_ms;
  // A long wait has its own warning.
  if (counted_ms_ < notice_ms_ || counted_ms_ - waited_ms < notice_ms_ / 2) return;
  if (waited_ms < kNoteMs || now < next_count_ns_ || transfer_ != nullptr) return;
  next_count_ns_ = now + NoticeClock::kAgainMs * kNsPerMs;
  const std::int64_t counted_s = (now - counting_since_ns_) / kNsPerMs / 100;
  ask(kMinPatienceMs, waited_ms, awaited,
      fmt::format("{}.{} of the last {}.{} s were waits for other ranks; now ", counted_ms_ / 1000,
                  counted_ms_ / 100 % 10, counted_s / 10, counted_s % 10));
  counting_since_ns_ = 0;
}

// A send or receive waits only for its peer.
Refusals::Standing Stalls::awaited_refusals(const Awaited* awaited) const {
  if (!refusals_.any()) return {};
  if (transfer_ == nullptr) return refusals_.standing(history_.sequence());
  std::vector<int> peers;
  if (awaited != nullptr) peers = awaited->awaited();
  if (peers.empty()) peers.push_back(transfer_->peer);  // this rank is still connecting to it
  for (const int peer : peers) {
    if (Refusals::Standing standing = refusals_.standing(0, peer); standing.last != 0) return standing;
  }
  return {};
}

// A program may catch the error and call again. So a refusal fails this wait only after the notice time.
Status Stalls::look_at_refusals(std::int64_t waited_ms, const Awaited* awaited) {
  if (waited_ms < kRefusedMs) return {};
  const Refusals::Standing refused = awaited_refusals(awaited);
  const std::int64_t stands_ms = (now_ns() - refused.since_ns) / kNsPerMs;
  if (refused.last == 0 || stands_ms < kRefusedMs || notice_ms_ <= 0) return {};
  if (Status s = Refusals::check_overdue(refused, waited_ms, notice_ms_); !s.is_ok()) return s;
  if (std::exchange(refusal_, refused.last) == refused.last) return {};
  next_notice_ms_ = waited_ms + NoticeClock::kAgainMs;
  ask(kMinPatienceMs, waited_ms, awaited);
  return {};
}

// An answer older than this rank's question may be about another wait. If an answer names no rank, this asks once more:
// the machines may have been too busy for the first question.
std::string Stalls::missing() {
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  const bool asked = asked_ns_ != 0 && sequence_ == history_.sequence();
  for (const bool again : {false, true}) {
    if (again || !asked) {
      sequence_ = history_.sequence();
      asked_ns_ = now_ns();
      ask(std::min(patience_ms_, kShortPatienceMs), 0, nullptr);
    }
    const MutexLock lock(mutex_);
    while (answered_ns_ < asked_ns_ && !deadline.passed() && !failure_.failed()) {
      changed_.wait_until(mutex_, Deadline::after_ms(kFailureCheckMs));
    }
    if (deadline.passed() || failure_.failed() || !absent_.empty()) break;
  }
  const MutexLock lock(mutex_);
  return answered_ns_ < asked_ns_ ? "" : absent_;
}

std::string Stalls::silent() {
  std::string text = missing();
  const MutexLock lock(mutex_);
  return any_silent_ ? text : "";
}

void Stalls::answered(const Answer& answer) {
  log::debug(fmt::format("rank {} learns which ranks have not called operation {}: {} ranks", membership_.rank,
                         answer.question.sequence, answer.absent.size()));
  {
    const MutexLock lock(mutex_);
    absent_ = describe_answer(answer);
    any_silent_ = std::any_of(answer.absent.begin(), answer.absent.end(), [](const Absence& a) { return a.silent; });
    answered_ns_ = now_ns();
  }
  changed_.notify_all();
  if (membership_.rank == 0 && answer.question.waited_ms > 0) tell_a_person(answer);
}

std::string Stalls::describe_answer(const Answer& answer) const {
  std::string text = describe_absence(answer, membership_.peers);
  const std::string refused = refusals_.any() ? refusals_.standing(answer.question.sequence).text : "";
  if (!refused.empty()) text += (text.empty() ? "" : "; ") + refused;
  return text;
}

bool Stalls::is_news(const Answer& answer) const {
  const std::int64_t now_ms = now_ns() / kNsPerMs;
  bool news = false;
  for (const Absence& absence : answer.absent) {
    if (absence.inside) continue;
    const auto told = told_.find({absence.rank, absence.report});
    news = news || told == told_.end() || now_ms - told->second > kTellShortWaitsMs;
  }
  return news;
}

void Stalls::note_told(const Answer& answer) {
  if (told_.size() > kMostReasonsTold) told_.clear();
  for (const Absence& absence : answer.absent) {
    if (!absence.inside) told_[{absence.rank, absence.report}] = now_ns() / kNsPerMs;
  }
}

// Writes one line for the whole job, on rank 0.
void Stalls::tell_a_person(const Answer& answer) {
  const std::int64_t ms = answer.question.waited_ms;
  // A damaged message: no rank can have waited longer than the communicator exists.
  if (ms > (now_ns() - made_ns_) / kNsPerMs + kMadeApartMs) return;
  const std::string absent = describe_answer(answer);
  // The question was about a refusal, and its rank has called again since.
  if (absent.empty() && ms < notice_ms_) return;
  {
    const std::uint64_t refusal = refusals_.standing(answer.question.sequence).last;
    const MutexLock lock(mutex_);
    const bool is_short = refusal == 0 && ms < notice_ms_;
    if (is_short && !is_news(answer)) return;
    if (!clock_.due(answer, now_ns() / kNsPerMs, refusal)) return;
    if (is_short) note_told(answer);
  }
  const std::string waited = ms < 1000 ? fmt::format("{} ms", ms) : fmt::format("{} s", ms / 1000);
  log::warn(answer.question.what + " has waited " + waited +
            (absent.empty() ? ", though no rank is missing: " + answer.question.hint : ": " + absent));
}

}  // namespace tutti::internal
