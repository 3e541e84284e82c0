#include "join/process_rank.h"

#include <algorithm>
#include <map>

#include "base/first_use.h"
#include "os/fork.h"
#include "os/mutex.h"

namespace tutti::internal {
namespace {

struct RanksHere {
  ForkMutex mutex;
  std::multimap<Secret, const ProcessRank*> ranks TUTTI_GUARDED_BY(mutex);
};

// Lives as long as the process: ranks may be destroyed by destructors of static objects.
RanksHere& registry() {
  static constinit FirstUse<RanksHere, Surplus::kKept> made;
  return made.get();
}
// Made at load time: a child that is forked while another thread makes it could not use it.
[[maybe_unused]] const RanksHere& made_at_load = registry();

}  // namespace

void ProcessRank::enter(const Secret& job) {
  RanksHere& all = registry();
  const MutexLock lock(all.mutex);
  all.ranks.emplace(job, this);
  job_ = job;
  entered_ = true;
}

bool ProcessRank::others_may_come() const {
  RanksHere& all = registry();
  const MutexLock lock(all.mutex);
  const auto [begin, end] = all.ranks.equal_range(job_);
  const auto here = std::this_thread::get_id();
  const auto ours = [&](const ProcessRank& rank) { return rank.thread_.load(std::memory_order_relaxed) == here; };
  const bool alone = std::all_of(begin, end, [&](const auto& entry) { return entry.second == this; });
  return alone || (ours(*this) && std::none_of(begin, end, [&](const auto& entry) {
                     return entry.second != this && ours(*entry.second);
                   }));
}

void ProcessRank::leave() {
  if (!entered_) return;
  entered_ = false;
  RanksHere& all = registry();
  const MutexLock lock(all.mutex);
  const auto [begin, end] = all.ranks.equal_range(job_);
  const auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second == this; });
  if (found != end) all.ranks.erase(found);
}

}  // namespace tutti::internal
