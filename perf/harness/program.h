// The whole of all_reduce_perf and its siblings.
#pragma once

#include "subject.h"

namespace tutti::internal::perf {

// Returns the exit status: 0 measured and right, 1 wrong data or a failure, 2 invalid command line.
int run_program(Subject subject, int argc, char** argv);

}  // namespace tutti::internal::perf
