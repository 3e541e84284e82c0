// The state of one communicator that the tree's thread and the other threads of a process share, under one lock. Other
// threads leave commands, and wait for `changed`; the tree's thread executes the commands, and records what it
// receives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/status.h"
#include "control/agreement_messages.h"
#include "control/control_messages.h"
#include "control/control_tree.h"
#include "control/rank_set.h"
#include "os/mutex.h"

namespace tutti::internal::control {

// The receivers of events.
struct Watching {
  std::shared_ptr<FailureState> failure;
  Witness witness;
};

// This rank's part in an agreement.
struct Contribution {
  AgreementName name;
  Tally tally;
  std::int64_t wait_ms = 0;
};

// Requests of other threads.
struct Commands {
  std::vector<std::pair<std::uint32_t, std::string>> parts;  // this rank's parts, with their rounds
  Status announcement;                                       // the first one
  std::vector<std::vector<CallRecord>> reports;
  std::vector<Question> questions;
  std::vector<std::string> decisions;
  std::vector<std::pair<int, std::string>> lasting_decisions;  // with their kinds
  std::optional<Contribution> contribution;
  std::optional<Contribution> given_up;  // this rank's time in it is over
  std::optional<Refusal> refusal;        // the last one
  bool comparing = false;
  bool finishing = false;
  bool leaving = false;
  bool ending = false;  // ends without a leave notice
  // No thread listens any more.
  [[nodiscard]] bool mute() const { return leaving || ending; }
};

struct CommShared {
  mutable Mutex mutex;
  ConditionVariable changed;
  Commands commands TUTTI_GUARDED_BY(mutex);
  std::shared_ptr<const Watching> watching TUTTI_GUARDED_BY(mutex);  // null during initialisation
  std::map<int, Refusal> early_refusals TUTTI_GUARDED_BY(mutex);     // received before that: the last one of each rank
  std::vector<std::string> early_decisions TUTTI_GUARDED_BY(mutex);  // likewise
  Status failure TUTTI_GUARDED_BY(mutex);                            // the first one
  RankSet dead TUTTI_GUARDED_BY(mutex);                              // ranks of the communicator
  std::uint32_t refusal_told TUTTI_GUARDED_BY(mutex) = 0;            // serial number of the last one sent
  std::vector<LeaveNotice> departed TUTTI_GUARDED_BY(mutex);         // of all ranks that have left, including this one,
  RankSet departed_places TUTTI_GUARDED_BY(mutex);                   // of all of them
  bool compared TUTTI_GUARDED_BY(mutex) = false;                     // own calls with those of all departed ranks
  bool all_parted TUTTI_GUARDED_BY(mutex) = false;                   // all ranks have sent their leave notices
  std::string awaited TUTTI_GUARDED_BY(mutex);                       // the key of an agreement; empty: none
  std::optional<Result<Agreement>> agreed TUTTI_GUARDED_BY(mutex);   // its result
  Status cut_off TUTTI_GUARDED_BY(mutex);                            // why the tree can no longer send

  [[nodiscard]] std::shared_ptr<const Watching> who_watches() const TUTTI_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return watching;
  }
  [[nodiscard]] std::vector<LeaveNotice> all_departed() const TUTTI_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return departed;
  }
};

}  // namespace tutti::internal::control
