// TUTTI_BIND: ranks bind themselves.
#pragma once

#include "base/config.h"
#include "base/status.h"

namespace tutti::internal {

// Binds the calling thread, for good, to what topology::share_of() says, and so the threads that it starts from then
// on. It never gives a thread processors that it may not use already. `ranks`: of the job, 0 if that is not known yet;
// one that is alone has all of the machine unless a launcher says otherwise. kInvalidUsage where Bind is not kNone and
// nobody says which of the ranks on this machine this process is.
Status bind_calling_thread(Bind bind, int ranks);

}  // namespace tutti::internal
