// What a rank does while its operation makes no progress: reports its last calls, asks which ranks are missing, has a
// warning logged, and describes the answers.
//
// Threads: stalled() and missing() by the thread of the current operation; answered() by any.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/rank_table.h"
#include "base/stall.h"
#include "communicator/refusals.h"
#include "communicator/transfers.h"
#include "control/control_tree.h"
#include "epoch/call_history.h"
#include "epoch/membership.h"
#include "os/clock.h"
#include "os/mutex.h"

namespace tutti::internal {

// "rank 5 (host b, pid 77) has not called operation 17 (its last was 16)", or "is still in operation 16". Of ranks
// inside an operation, names only those that are furthest behind: the others may be waiting for them. Empty if no rank
// is missing.
std::string describe_absence(const Answer& answer, const RankTable<PeerInfo>& peers);

// What the rank does outside of its operations, as a clause; empty: not known, or it was there for a short time.
std::string reason_of(const observe::EventRing& ring, int rank);

// Decides when a communicator logs its notices: once per wait, then every minute, although several ranks wait for the
// same rank and ask one after the other. Not thread-safe.
class NoticeClock {
 public:
  explicit NoticeClock(std::int64_t notice_ms) : notice_ms_(notice_ms) {}
  // `refusal`: the number of the last one that stands; 0: none. For a new one a notice is always due.
  bool due(const Answer& answer, std::int64_t now_ms, std::uint64_t refusal = 0);
  static constexpr std::int64_t kAgainMs = 60'000;

 private:
  const std::int64_t notice_ms_;
  bool any_ = false;
  std::int64_t last_ms_ = 0;
  std::uint32_t last_sequence_ = 0;
  std::vector<Absence> last_absent_;
  std::uint64_t last_refusal_ = 0;
};

class Stalls final : public StallWatch {
 public:
  // All outlive this. notice_ms 0: no warning is logged.
  Stalls(ControlTree& tree, const Membership& membership, const FailureState& failure, CallHistory& history,
         const Refusals& refusals, std::int64_t timeout_ms, std::int64_t notice_ms);

  Status stalled(std::int64_t waited_ms, std::int64_t left_ms, const Awaited* awaited) override;
  void held_up(std::span<const Held> links, std::int64_t ns) override;
  std::string missing() override;
  // Like missing(), if a silent rank is among the missing ones, else empty: a silent rank's notices reach only a part
  // of the tree.
  std::string silent();
  void answered(const Answer& answer) TUTTI_EXCLUDES(mutex_);
  // The next wait is for a send or receive, which is not in the history; null: for a collective again.
  void set_transfer(const Transfer* transfer) {
    transfer_ = transfer;
    next_notice_ms_ = notice_ms_;
    asked_ns_ = last_waited_ms_ = 0;
  }

 private:
  static constexpr std::int64_t kNoteMs = 20;
  void note_wait(std::int64_t waited_ms, const Awaited* awaited);
  // The answer may come before it returns.
  void ask(std::int64_t patience_ms, std::int64_t waited_ms, const Awaited* awaited, const std::string& before = {})
      TUTTI_EXCLUDES(mutex_);
  // The likely reason if every rank has called the operation.
  [[nodiscard]] std::string hint(const Awaited* awaited) const;
  [[nodiscard]] std::string describe_answer(const Answer& answer) const;
  void tell_a_person(const Answer& answer);
  // Whether it has a late rank, or a reason, about which no warning about short waits was logged lately.
  [[nodiscard]] bool is_news(const Answer& answer) const TUTTI_REQUIRES(mutex_);
  // Such a warning is being logged.
  void note_told(const Answer& answer) TUTTI_REQUIRES(mutex_);
  // Whether many short waits together have become long: asks then, at most once a minute.
  void look_at_short_waits(std::int64_t waited_ms, std::int64_t more_ms, const Awaited* awaited);
  // Asks if a refusal has become known, so that a warning is logged. Returns an error if it has stood too long.
  Status look_at_refusals(std::int64_t waited_ms, const Awaited* awaited);
  [[nodiscard]] Refusals::Standing awaited_refusals(const Awaited* awaited) const;

  ControlTree& tree_;
  const Membership& membership_;
  const FailureState& failure_;
  CallHistory& history_;
  const Refusals& refusals_;
  const std::int64_t patience_ms_;  // for questions before the deadline
  const std::int64_t notice_ms_;
  const std::int64_t made_ns_ = now_ns();
  // Of the current wait.
  const Transfer* transfer_ = nullptr;
  std::uint32_t sequence_ = 0;
  std::int64_t last_waited_ms_ = 0;
  std::int64_t next_notice_ms_ = 0;
  bool reported_ = false;               // once per operation
  std::int64_t counting_since_ns_ = 0;  // of short waits
  std::int64_t counted_ms_ = 0;         // since then
  std::int64_t next_count_ns_ = 0;      // when they may be asked about again
  std::uint64_t refusal_ = 0;           // the number of the last refusal that a question was about
  std::int64_t noted_ms_ = -kNoteMs;    // when the wait was last noted for other processes
  std::int64_t asked_ns_ = 0;           // the question before the deadline; 0: not asked yet

  Mutex mutex_;
  ConditionVariable changed_;
  std::string absent_ TUTTI_GUARDED_BY(mutex_);  // the text of the last answer
  bool any_silent_ TUTTI_GUARDED_BY(mutex_) = false;
  std::int64_t answered_ns_ TUTTI_GUARDED_BY(mutex_) = 0;
  NoticeClock clock_ TUTTI_GUARDED_BY(mutex_);
  // Absences of short waits about which a warning was logged: rank, reason, and when. Rank 0 only.
  std::map<std::pair<int, std::string>, std::int64_t> told_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal
