// Calls that ranks have refused for their arguments. A refused call has no effect, so the other ranks wait in theirs.
// They are told at once. The refusal stands until its rank calls something of the communicator that is not refused.
//
// A rank that refuses a call while earlier calls are under way tells of it when those are complete: the others have not
// come to the refused one before.
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

  // ---- This rank's
  // The last call was refused, for this reason. tell() is to follow if nothing is under way.
  void refuse(std::string why) TUTTI_EXCLUDES(mutex_);
  // Tells the others, unless they know. Waits at most `wait_ms` for the neighbours to hear of it.
  void tell(std::int64_t wait_ms) TUTTI_EXCLUDES(mutex_);
  // The rank calls something that is not refused.
  void withdraw() TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool stands() const { return stands_.load(std::memory_order_relaxed); }

  // ---- Other ranks'
  void heard(const Refusal& refusal) TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool any() const { return any_.load(std::memory_order_relaxed); }
  // Those that stand and that a rank waits for: all that were refused before operation `sequence` or as that one; of
  // `peer` alone, whatever it has refused, if that is not negative. Not what this rank has refused at the same number
  // as well: the program has tried something, and goes on.
  struct Standing {
    std::string text;           // "rank 2 (host b, pid 77) refused its operation 17: reduce: root 9 is not a rank of 4"
    std::int64_t since_ns = 0;  // the oldest
    std::uint64_t last = 0;     // rises with each refusal that comes; 0: none stands
  };
  [[nodiscard]] Standing standing(std::uint32_t sequence, int peer = -1) const TUTTI_EXCLUDES(mutex_);
  // The failure of operation `sequence`, with what may have been the reason.
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
  bool told_ TUTTI_GUARDED_BY(mutex_) = false;   // of why_
  bool known_ TUTTI_GUARDED_BY(mutex_) = false;  // others know of a refusal
  std::uint32_t serial_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::uint64_t numbers_ TUTTI_GUARDED_BY(mutex_) = 0;
  std::map<int, Heard> heard_ TUTTI_GUARDED_BY(mutex_);  // the last of each rank that has refused anything
};

}  // namespace tutti::internal
