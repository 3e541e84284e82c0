// TUTTI_BIND: ranks bind themselves.
#pragma once

#include "base/config.h"
#include "base/status.h"

namespace tutti::internal {

// Binds the calling thread, and the threads that it later starts, permanently to the processors of
// topology::share_of(). Never gives a thread processors that it may not already use. `ranks`: of the job, 0 if not
// known yet; a single rank gets the whole machine unless a launcher assigns less. kInvalidUsage if Bind is not kNone
// and the index of this process among the ranks on this machine is not known.
Status bind_calling_thread(Bind bind, int ranks);

}  // namespace tutti::internal
