// The members of a communicator that live: what they agree on, and communicators of them.
//
// Threads: any. One thread at a time agrees; another is refused.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "communicator/failures.h"
#include "communicator/late_ranks.h"
#include "communicator/split.h"
#include "control/agreement.h"
#include "control/rank_set.h"
#include "epoch/epoch.h"
#include "join/unique_id.h"
#include "os/clock.h"
#include "os/mutex.h"

namespace tutti::internal {

class Communicator;

// The request of one rank for a communicator of the members that live.
struct ShrinkWish {
  std::vector<int> excluded;             // ascending; the same on all other ranks
  const Settings* settings = nullptr;    // null: those of the communicator
  Status refused;                        // not ok: this rank takes part only to tell the others that it refuses
  const char* call = "tuttiCommShrink";  // for errors
  std::uint32_t series = 0;              // of its agreements
  // Not 0: members that are later than this, or have left, are left out. `late`: gets these, ascending. kTimeout: this
  // rank is late.
  std::int64_t limit_ms = 0;
  std::vector<int>* late = nullptr;
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
  Survivors(const Epoch& epoch, const Failures& failures)
      : epoch_(epoch), failures_(failures), late_ranks_(epoch.rank()) {}

  // Not ok: this rank waits no longer, and that is its result. Called often, under the control tree's lock: it must not
  // call the tree, nor wait.
  using Ends = std::function<Status()>;
  // Collective over the members that `own` does not exclude: see ControlTree::agree(). With takes_late: kTimeout if
  // this rank is late, also if it takes part in an agreement that the others have left behind.
  Result<Agreement> agree(const Proposal& own, Deadline deadline, const Ends& ends = {});
  // Collective over the members that the wish does not exclude and that live: a communicator of these, in their
  // order. If a member dies meanwhile, they begin again without it. All of them get it, or an error.
  Result<std::unique_ptr<Communicator>> shrink(const ShrinkWish& wish, const MakeGroup& make_group);
  // Collective over the members that live, and the new ranks, which join by the id: a new job in which members keep
  // their ranks. The new ranks may have those of dead members. All of them get it, or an error.
  Result<std::unique_ptr<Communicator>> grow(const GrowWish& wish);
  // ---- Notices of survivor mode (survivor_mode.h), of one rank to all. Any thread
  // This rank has ended all collectives, so no rank waits in an agreement any more. `why`: their error on all ranks.
  void tell_end(const Status& why) TUTTI_EXCLUDES(mutex_);
  // Ok, or why a rank has ended all collectives.
  [[nodiscard]] Status ended() const TUTTI_EXCLUDES(mutex_);
  // A rank on time: an offer to invite those of the late ranks that are back (LateRanks::to_invite()). Empty: none.
  [[nodiscard]] std::string offer_phase(std::uint32_t phase, const std::vector<int>& late,
                                        std::int64_t patience_ms) const TUTTI_EXCLUDES(mutex_);
  // What an offer contains: the phase, and the ranks that are invited to it.
  struct NextPhase {
    std::uint32_t phase = 0;
    RankSet invited;
  };
  [[nodiscard]] Result<NextPhase> phase_of(const std::string& offer) const;
  // `tells`: this rank tells the others.
  void invite(const Invitation& invitation, bool tells) TUTTI_EXCLUDES(mutex_);
  // Of a rank that was late: tells the others that it is back, and waits until it is invited to a later phase. If no
  // rank is on time any more, the lowest of those that live invites them all.
  Result<Invitation> await_invitation(LateReturn own, Deadline deadline) TUTTI_EXCLUDES(mutex_);
  // False if this is something else than a notice of another rank.
  bool hear(const std::string& told) TUTTI_EXCLUDES(mutex_);

  // The members that have died, as all agreements of this communicator have found: ascending, the same on all ranks
  // that have made the same calls.
  [[nodiscard]] std::vector<int> failed() const TUTTI_EXCLUDES(mutex_);

 private:
  class Inside;
  Result<Agreement> agree_inside(const Proposal& own, Deadline deadline, const Ends& ends = {}) TUTTI_EXCLUDES(mutex_);
  Status take_id(const GrowWish& wish, const Agreement& agreed, std::optional<UniqueIdBytes>* id) const;
  [[nodiscard]] Status check_not_aborted() const;
  // kTimeout if one of them has said that it is late.
  [[nodiscard]] Status check_on_time(const std::vector<int>& ranks) const TUTTI_EXCLUDES(mutex_);
  struct Notice;
  void tell(const Notice& notice);
  void note(const Notice& notice) TUTTI_EXCLUDES(mutex_);
  void tell_return(const LateReturn& own) TUTTI_EXCLUDES(mutex_);
  // The ranks that have left the communicator.
  [[nodiscard]] RankSet departed() const;
  // Not ok if a member has died that is not in `dead`, which is ascending.
  [[nodiscard]] Status check_alive(const std::vector<int>& dead) const;

  const Epoch& epoch_;
  const Failures& failures_;
  std::atomic<bool> inside_{false};  // a thread is inside a call
  mutable Mutex mutex_;
  std::vector<int> failed_ TUTTI_GUARDED_BY(mutex_);
  ConditionVariable changed_;
  LateRanks late_ranks_ TUTTI_GUARDED_BY(mutex_);
  Status ended_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal
