// Checks of calls with blocks of different counts.
#pragma once

#include "base/status.h"
#include "calls/call.h"

namespace tutti::internal::api {

// REQUIRES: the datatype, the count, the operator and the root have been checked.
Status check_varying(const Call& call, int ranks, int rank);

}  // namespace tutti::internal::api
