// What the threads of a process do.
#pragma once

#include <sys/types.h>

namespace tutti::internal::test::chaos {

// To the standard output: by gdb, or else what the kernel tells. Takes a minute at most.
void print_stacks(pid_t pid);

}  // namespace tutti::internal::test::chaos
