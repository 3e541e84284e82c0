// What rank 0 decides for all ranks of a communicator: which algorithm serves a kind of calls, and whether a schedule
// may run unproven. Simulating the candidates of one size class for 64 ranks takes some 20 ms of processor time, a
// proof for 300 ranks as much, and every rank would come to the same result: so rank 0 tells it along the control tree.
//
// A rank that is told nothing in time decides by itself: rank 0 may not have called the operation yet, or a notice may
// be lost while the tree heals. Its decision is the same, so it does not matter which rank made it.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "algorithms/catalog.h"
#include "base/failure.h"
#include "control/control_tree.h"
#include "os/clock.h"
#include "os/mutex.h"

namespace tutti::internal {

// Any thread.
class Decisions {
 public:
  // Calls for which one algorithm is selected.
  struct CallKind {
    Collective collective = Collective::kAllReduce;
    schedule::Order order = schedule::Order::kAny;
    int size_class = 0;  // bits of the byte count
    auto operator<=>(const CallKind&) const = default;
  };
  using Entry = algorithms::AlgorithmEntry;

  // `tree` may be null: then this rank decides everything, as it does if there are few ranks. `ranks_per_cpu`: as in
  // Membership. The tree and the failure outlive this.
  Decisions(ControlTree* tree, const FailureState& failure, int rank, int ranks, double ranks_per_cpu);

  // Whether another rank decides, and this one may wait for that.
  [[nodiscard]] bool are_told() const { return tree_ != nullptr && rank_ != 0; }
  // On rank 0; once for each.
  void tell_selected(const CallKind& kind, const Entry& entry) TUTTI_EXCLUDES(mutex_);
  void tell_checked(const Entry& entry, int root) TUTTI_EXCLUDES(mutex_);
  // On the others. Null, or false: this rank is to decide by itself, or the communicator has failed.
  [[nodiscard]] const Entry* await_selected(const CallKind& kind, Deadline deadline) const TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool await_checked(const Entry& entry, int root, Deadline deadline) const TUTTI_EXCLUDES(mutex_);
  // The same without waiting.
  [[nodiscard]] const Entry* selected(const CallKind& kind) const TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool checked(const Entry& entry, int root) const TUTTI_EXCLUDES(mutex_);
  // From another rank. What is damaged, or names an algorithm that this rank does not have, is ignored: then this rank
  // decides, and the fingerprints show whether it decides differently.
  void hear(const std::string& decision) TUTTI_EXCLUDES(mutex_);

  // Ranks of smaller communicators decide themselves: the simulation takes them 1 ms, at the same time.
  static constexpr int kFewRanks = 8;

 private:
  template <class Known>
  bool await(Deadline deadline, int patience_ms, Known known) const TUTTI_EXCLUDES(mutex_);

  ControlTree* const tree_;  // null: nothing is told
  const FailureState& failure_;
  const int rank_;
  const int patience_ms_;
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::map<CallKind, const Entry*> selected_ TUTTI_GUARDED_BY(mutex_);
  std::set<std::pair<const Entry*, int>> checked_ TUTTI_GUARDED_BY(mutex_);  // with the root
};

}  // namespace tutti::internal
