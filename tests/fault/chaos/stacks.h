// Stacks of the threads of a process.
#pragma once

#include <sys/types.h>

namespace tutti::internal::test::chaos {

// Prints to the standard output: with gdb, or else the kernel's information. Takes a minute at most.
void print_stacks(pid_t pid);

}  // namespace tutti::internal::test::chaos
