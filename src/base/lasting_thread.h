// Threads that outlive the call that starts them and need nobody, but must not outlive the library's code
// and what it is built on: they end at the latest when the process exits or the library is unloaded.
#pragma once

#include <functional>

#include "base/status.h"

namespace tutti::internal {

// Runs body(stop_fd) in a service thread of its own. The body owns all that it uses, and returns soon after
// stop_fd has become readable. Any thread may call this. A forked child has none of its parent's threads.
Status start_lasting_thread(std::function<void(int stop_fd)> body);

}  // namespace tutti::internal
