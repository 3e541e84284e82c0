// Threads that outlive the call that starts them and have no owner. They must not outlive the library's code and its
// dependencies, so they end at the latest when the process exits or the library is unloaded.
#pragma once

#include <functional>

#include "base/status.h"

namespace tutti::internal {

// Runs body(stop_fd) in a new service thread. The body owns everything that it uses, and returns soon after stop_fd has
// become readable. Any thread may call this. A forked child has none of its parent's threads.
Status start_lasting_thread(std::function<void(int stop_fd)> body);

}  // namespace tutti::internal
