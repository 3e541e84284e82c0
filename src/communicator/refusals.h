// Calls that ranks have refused because of their arguments. A refused call has no effect, so the other ranks wait in
// theirs. The rank tells them at once. The refusal stands until the rank makes a call on the communicator that is not
// refused.
//
// If a rank refuses a call while earlier calls are in flight, it reports the refusal when those are complete: the
// others do not reach the refused call before.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "base/status.h"
#include "control/control_tree.h"
#include "epoch/call_history.h"
#include "epoch/membership.h"
#include "os/mutex.h"

namespace tutti::internal {

// Threads: any.
class Refusals {
 public:
  // All outlive this.
  Refusals(ControlTree& tree, const Membership& membership, const CallHistory& history)
      : tree_(tree), membership_(membership), history_(history) {}

  // ---- This rank's refusals
  // The last call was refused, for this reason. tell() must follow if nothing is in flight.
  void refuse(std::string why) TUTTI_EXCLUDES(mutex_);
  // Tells the other ranks, unless they know. Waits at most `wait_ms` for the neighbours to hear of it.
  void tell(std::int64_t wait_ms) TUTTI_EXCLUDES(mutex_);
  // The rank makes a call that is not refused.
  void withdraw() TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool stands() const { return stands_.load(std::memory_order_relaxed); }

  // ---- Other ranks' refusals
  void heard(const Refusal& refusal) TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool any() const { return any_.load(std::memory_order_relaxed); }
  // The refusals that stand and for which a rank waits: all that were refused up to operation `sequence`; if `peer` >=
  // 0, only those of `peer`, of any number. Excludes refusals of a number that this rank has refused too: all ranks
  // tried the same call, and the program continues.
  struct Standing {
    std::string text;           // "rank 2 (host b, pid 77) refused its operation 17: reduce: root 9 is not a rank of 4"
    std::int64_t since_ns = 0;  // of the oldest
    std::uint64_t last = 0;     // rises with each new refusal; 0: none stands
  };
  // Not ok if they have stood for `notice_ms`, and this rank has waited for so long; 0: never.
  static Status check_overdue(const Standing& refused, std::int64_t waited_ms, std::int64_t notice_ms);
  [[nodiscard]] Standing standing(std::uint32_t sequence, int peer = -1) const TUTTI_EXCLUDES(mutex_);
  // Adds to the failure of operation `sequence` the refusals that may be the cause.
  [[nodiscard]] Status explain(Status failure) const TUTTI_EXCLUDES(mutex_);

 private:
  struct Heard {
    Refusal refusal;
    std::uint32_t serial = 0;
    bool stands = false;
    std::int64_t since_ns = 0;
    std::uint64_t number = 0;
  };
  [[nodiscard]] std::string describe(const Refusal& refusal) const;

  ControlTree& tree_;
  const Membership& membership_;
  const CallHistory& history_;
  std::atomic<bool> stands_{false};
  std::atomic<bool> any_{false};
  mutable Mutex mutex_;
  std::string why_ TUTTI_GUARDED_BY(mutex_);
  bool told_ TUTTI_GUARDED_BY(mutex_) = false;   // whether why_ was told
  bool known_ TUTTI_GUARDED_BY(mutex_) = false;  // the other ranks know of a refusal
  std::uint32_t serial_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::uint64_t numbers_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::map<int, Heard> heard_ TUTTI_GUARDED_BY(mutex_);  // the last refusal of each rank
};

}  // namespace tutti::internal
