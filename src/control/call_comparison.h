// Judges whether two ranks have called the same, from what each tells of its calls.
//
// Threads: any; nothing here has state.
#pragma once

#include "base/status.h"
#include "control/call_record.h"

namespace tutti::internal {

// kMismatch, naming both ranks and calls, if they have called different things under one number. One of them may be
// further than the other.
Status contradiction(int rank, const CallSummary& ours, int peer, const CallSummary& theirs);

// The same of ranks that will call nothing more: then they differ as well if one has called more than the other.
Status difference(int rank, const CallSummary& ours, int peer, const CallSummary& theirs);

}  // namespace tutti::internal
