// The processors to which threads of this process have been bound by TUTTI_BIND, all of them together.
//
// Threads: any.
#pragma once

#include <sched.h>

#include <optional>

namespace tutti::internal {

void add_bound_processors(const cpu_set_t& processors);
// Nothing: no thread has been bound.
std::optional<cpu_set_t> bound_processors();

}  // namespace tutti::internal
