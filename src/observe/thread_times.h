// How long a thread has run, and how long it has waited for a processor: from the scheduler's counts in /proc.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.h"

namespace tutti::internal::observe {

struct ThreadTimes {
  std::uint64_t run_ns = 0;
  std::uint64_t delay_ns = 0;  // runnable, but without a processor
};

// Which threads one reading is about.
enum class Whose : std::uint8_t { kThread, kProcess };

// A reading of the calling thread; or of its process, in which another thread works for the caller: the time that all
// threads have run, and the first thread's wait for a processor.
struct OwnTimes {
  int thread = 0;  // its id; of a process: 0
  ThreadTimes times;
};

// kSystemError: the kernel does not count, or /proc cannot be read. Keeps a descriptor of the calling thread's counts,
// so that a reading takes a microsecond.
Result<OwnTimes> own_times(Whose whose);
// Closes that descriptor.
void forget_own_times();

// What a thread did in a time outside of its operations, in microseconds. It slept for the rest, or was stopped.
struct Outside {
  std::uint32_t us = 0;  // the whole time
  std::uint32_t run_us = 0;
  std::uint32_t delay_us = 0;
  std::uint32_t elsewhere_us = 0;  // inside collectives of other communicators, on any thread
};
// The last `outside_ns` of `elapsed_ns`, in which the thread has run and waited for a processor for these times. Before
// them it was in operations without long sleeps.
Outside split_time(std::int64_t outside_ns, std::int64_t elapsed_ns, const ThreadTimes& passed);

// Of a process; pid 0: of this one. `thread`: 0: the process, as above. Nothing: as above, or there is no such one.
std::optional<ThreadTimes> times_of(int pid, int thread);

}  // namespace tutti::internal::observe
