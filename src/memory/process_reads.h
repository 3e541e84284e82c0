// Measures how fast the kernel reads another process's memory. process_vm_readv(2) reaches a third of the speed of a
// copy on some machines (virtual ones with costly page look-ups), and half of it or more on others.
#pragma once

namespace tutti::internal::memory {

// Whether such a read of 256 KiB takes less than kReadPays times as long as a copy that the process makes itself. The
// first call of the process measures it, in less than a millisecond. False if the kernel does not permit reads. Any
// thread.
[[nodiscard]] bool reads_of_processes_pay() noexcept;

inline constexpr double kReadPays = 2.5;

}  // namespace tutti::internal::memory
