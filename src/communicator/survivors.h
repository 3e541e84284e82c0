// The members of a communicator that live: what they agree on, and communicators of them.
//
// Threads: any. One thread at a time agrees; another is refused.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "communicator/failures.h"
#include "communicator/split.h"
#include "control/agreement.h"
#include "epoch/epoch.h"
#include "join/unique_id.h"
#include "os/clock.h"
#include "os/mutex.h"

namespace tutti::internal {

class Communicator;

// The request of one rank for a communicator of the members that live.
struct ShrinkWish {
  std::vector<int> excluded;           // ascending; the same on all other ranks
  const Settings* settings = nullptr;  // null: those of the communicator
  Status refused;                      // not ok: this rank takes part only to tell the others that it refuses
};

// The request of one rank for a communicator that has more ranks.
struct GrowWish {
  int ranks = 0;
  std::optional<UniqueIdBytes> id;     // at least one rank has it
  const Settings* settings = nullptr;  // null: those of the communicator
  Status refused;                      // not ok: this rank takes part only to tell the others that it refuses
};

class Survivors {
 public:
  using MakeGroup = std::function<Result<std::unique_ptr<Communicator>>(const GroupWish&)>;
  // Both outlive it.
  Survivors(const Epoch& epoch, const Failures& failures) : epoch_(epoch), failures_(failures) {}

  // Collective over the members that `own` does not exclude: see ControlTree::agree().
  Result<Agreement> agree(const Proposal& own, Deadline deadline);
  // Collective over the members that the wish does not exclude and that live: a communicator of these, in their
  // order. If a member dies meanwhile, they begin again without it. All of them get it, or an error.
  Result<std::unique_ptr<Communicator>> shrink(const ShrinkWish& wish, const MakeGroup& make_group);
  // Collective over the members that live, and the new ranks, which join by the id: a new job in which members keep
  // their ranks. The new ranks may have those of dead members. All of them get it, or an error.
  Result<std::unique_ptr<Communicator>> grow(const GrowWish& wish);
  // The members that have died, as all agreements of this communicator have found: ascending, the same on all ranks
  // that have made the same calls.
  [[nodiscard]] std::vector<int> failed() const TUTTI_EXCLUDES(mutex_);

 private:
  class Inside;
  Result<Agreement> agree_inside(const Proposal& own, Deadline deadline) TUTTI_EXCLUDES(mutex_);
  Status take_id(const GrowWish& wish, const Agreement& agreed, std::optional<UniqueIdBytes>* id) const;
  [[nodiscard]] Status check_not_aborted() const;
  // Not ok if a member has died that is not in `dead`, which is ascending.
  [[nodiscard]] Status check_alive(const std::vector<int>& dead) const;

  const Epoch& epoch_;
  const Failures& failures_;
  std::atomic<bool> inside_{false};  // a thread is inside a call
  mutable Mutex mutex_;
  std::vector<int> failed_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal
