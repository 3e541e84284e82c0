// What a rank does while nothing moves in its operation: reports its last calls, asks who has not arrived, has a
// person told, and puts into words what it learns.
//
// Threads: stalled() and missing() by the thread of the operation at work; answered() by any.
#pragma once

#include <cstdint>
#include <string>
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
// inside an operation only those are named that nobody who is named is further behind than: the others may wait for
// those. Empty if nobody is absent.
std::string describe_absence(const Answer& answer, const RankTable<PeerInfo>& peers);

// When the notices of one communicator are to be written: once per wait, then every minute, though several ranks
// wait for the same and ask one after the other. Not thread-safe.
class NoticeClock {
 public:
  explicit NoticeClock(std::int64_t notice_ms) : notice_ms_(notice_ms) {}
  // `refusal`: the number of the last one that stands; 0: none. A new one is always due.
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
  // All outlive this. notice_ms 0: no person is told.
  Stalls(ControlTree& tree, const Membership& membership, const FailureState& failure, const CallHistory& history,
         const Refusals& refusals, std::int64_t timeout_ms, std::int64_t notice_ms);

  Status stalled(std::int64_t waited_ms, std::int64_t left_ms, const Awaited* awaited) override;
  std::string missing() override;
  // The same where a silent rank is among them, else empty: what it tells has reached only a part of the tree.
  std::string silent();
  void answered(const Answer& answer) TUTTI_EXCLUDES(mutex_);
  // The wait that begins is for a send or receive, which is in no history; null: for a collective again.
  void set_transfer(const Transfer* transfer) {
    transfer_ = transfer;
    next_notice_ms_ = notice_ms_;
    asked_ns_ = last_waited_ms_ = 0;
  }

 private:
  // The answer may come before it returns.
  void ask(std::int64_t patience_ms, std::int64_t waited_ms, const Awaited* awaited) TUTTI_EXCLUDES(mutex_);
  // What to look at if every rank has called the operation.
  [[nodiscard]] std::string hint(const Awaited* awaited) const;
  [[nodiscard]] std::string describe_answer(const Answer& answer) const;
  void tell_a_person(const Answer& answer);
  // Asks if a refusal has become known, so that a person is told. An error: it has stood for too long.
  Status look_at_refusals(std::int64_t waited_ms, const Awaited* awaited);
  [[nodiscard]] Refusals::Standing awaited_refusals(const Awaited* awaited) const;

  ControlTree& tree_;
  const Membership& membership_;
  const FailureState& failure_;
  const CallHistory& history_;
  const Refusals& refusals_;
  const std::int64_t patience_ms_;  // of what is asked before the deadline
  const std::int64_t notice_ms_;
  const std::int64_t made_ns_ = now_ns();
  // Of the wait at work.
  const Transfer* transfer_ = nullptr;
  std::uint32_t sequence_ = 0;
  std::int64_t last_waited_ms_ = 0;
  std::int64_t next_notice_ms_ = 0;
  bool reported_ = false;      // once per operation
  std::uint64_t refusal_ = 0;  // the number of the last one that was asked about
  std::int64_t asked_ns_ = 0;  // before the deadline; 0: not yet

  Mutex mutex_;
  ConditionVariable changed_;
  std::string absent_ TUTTI_GUARDED_BY(mutex_);  // in words, of the last answer
  bool any_silent_ TUTTI_GUARDED_BY(mutex_) = false;
  std::int64_t answered_ns_ TUTTI_GUARDED_BY(mutex_) = 0;
  NoticeClock clock_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal
