// Judges whether two ranks have called the same operations, from their reports.
//
// Threads: any; no function here has state.
#pragma once

#include "base/status.h"
#include "control/call_record.h"

namespace tutti::internal {

// kMismatch, naming both ranks and calls, if they have called different operations under one number. One of them may be
// further than the other.
Status contradiction(int rank, const CallSummary& ours, int peer, const CallSummary& theirs);

// The same for ranks that call nothing more: then they differ also if one has called more than the other.
Status difference(int rank, const CallSummary& ours, int peer, const CallSummary& theirs);

}  // namespace tutti::internal
