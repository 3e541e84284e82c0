// How fast the kernel reads another process's memory here: process_vm_readv(2) copies at a third of the speed of a copy
// on some machines (virtual ones, where it looks every page up at great cost), at half of it and more on others.
#pragma once

namespace tutti::internal::memory {

// Whether such a read of 256 KiB takes less than kReadPays times as long as a copy that the process makes itself. Found
// out by the first call of the process, in less than a millisecond; false where the kernel does not permit reads. Any
// thread.
[[nodiscard]] bool reads_of_processes_pay() noexcept;

inline constexpr double kReadPays = 2.5;

}  // namespace tutti::internal::memory
