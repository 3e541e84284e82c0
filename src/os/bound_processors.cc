#include "os/bound_processors.h"

#include "os/fork.h"

namespace tutti::internal {
namespace {

// Made when the library is loaded, and never destroyed, like the data that it guards.
ForkMutex& mutex = *new ForkMutex;
cpu_set_t all TUTTI_GUARDED_BY(mutex);  // empty: static data starts as zeros

}  // namespace

void add_bound_processors(const cpu_set_t& processors) {
  const MutexLock lock(mutex);
  CPU_OR(&all, &all, &processors);
}

std::optional<cpu_set_t> bound_processors() {
  const MutexLock lock(mutex);
  if (CPU_COUNT(&all) == 0) return std::nullopt;
  return all;
}

}  // namespace tutti::internal
