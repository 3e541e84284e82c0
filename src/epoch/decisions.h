// The decisions of rank 0 for all ranks of a communicator: which algorithm serves a kind of calls, and whether a
// schedule may run unproven. Simulating the candidates of one size class for 64 ranks takes some 20 ms of processor
// time, a proof for 300 ranks the same, and every rank would get the same result. So rank 0 sends it along the control
// tree.
//
// If no decision arrives in time, a rank decides by itself: rank 0 may not have called the operation yet, or a notice
// may be lost while the tree reconnects. Its decision is the same, so it does not matter which rank made it.
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
  // A kind of calls for which one algorithm is selected.
  struct CallKind {
    Collective collective = Collective::kAllReduce;
    schedule::Order order = schedule::Order::kAny;
    int size_class = 0;  // bits of the byte count
    auto operator<=>(const CallKind&) const = default;
  };
  using Entry = algorithms::AlgorithmEntry;

  // `tree` may be null: then this rank decides everything, as with few ranks. `ranks_per_cpu`: as in Membership. The
  // tree and the failure outlive this.
  Decisions(ControlTree* tree, const FailureState& failure, int rank, int ranks, double ranks_per_cpu);

  // Whether another rank decides, so that this one may wait.
  [[nodiscard]] bool are_told() const { return tree_ != nullptr && rank_ != 0; }
  // On rank 0; once for each.
  void tell_selected(const CallKind& kind, const Entry& entry) TUTTI_EXCLUDES(mutex_);
  void tell_checked(const Entry& entry, int root) TUTTI_EXCLUDES(mutex_);
  // On the other ranks. Null, or false: this rank must decide by itself, or the communicator has failed.
  [[nodiscard]] const Entry* await_selected(const CallKind& kind, Deadline deadline) const TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool await_checked(const Entry& entry, int root, Deadline deadline) const TUTTI_EXCLUDES(mutex_);
  // The same without waiting.
  [[nodiscard]] const Entry* selected(const CallKind& kind) const TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool checked(const Entry& entry, int root) const TUTTI_EXCLUDES(mutex_);
  // Processes a decision of another rank. A damaged one, or one with an unknown algorithm, is ignored: then this rank
  // decides, and fingerprints show a difference.
  void hear(const std::string& decision) TUTTI_EXCLUDES(mutex_);

  // Ranks of smaller communicators decide themselves: the simulation takes 1 ms, on all of them at the same time.
  static constexpr int kFewRanks = 8;

 private:
  template <class Known>
  bool await(Deadline deadline, int patience_ms, Known known) const TUTTI_EXCLUDES(mutex_);

  ControlTree* const tree_;  // null: no decisions are sent
  const FailureState& failure_;
  const int rank_;
  const int patience_ms_;
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  std::map<CallKind, const Entry*> selected_ TUTTI_GUARDED_BY(mutex_);
  std::set<std::pair<const Entry*, int>> checked_ TUTTI_GUARDED_BY(mutex_);  // with the root
};

}  // namespace tutti::internal
