// A process of a round, with its ranks as threads.
#pragma once

#include "board.h"

namespace tutti::internal::test::chaos {

// REQUIRES: called in a process that was forked for it and has one thread. `network`: the network namespace of a round
// with tiny buffers.
[[noreturn]] void run_host(const Round& round, InProcessControl& board, int process, int network);

}  // namespace tutti::internal::test::chaos
