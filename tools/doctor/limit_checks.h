// Checks of this host's limits for ranks: files, threads, memory, and access to each other's memory.
//
// Threads: one. Checks with several outcomes take their facts as arguments, so tests can set them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/config.h"
#include "base/control_group.h"
#include "check.h"

namespace tutti::internal::tools {

// Open files (RLIMIT_NOFILE) of each of `ranks` ranks; the library raises `soft` as far as `hard` allows.
Check check_descriptors(Limit soft, std::optional<std::uint64_t> hard, int ranks, const Settings& settings);
Check check_own_descriptors(int ranks, const Settings& settings);
// Processes and threads that `ranks` ranks add. `whose`: "this user", "the control group".
Check check_threads(const std::string& whose, Limit limit, int ranks, const Settings& settings, const std::string& fix);
Checks check_own_threads(int ranks, const Settings& settings);
// Memory of memfd_create(2), which ranks share: that it can be made, within RLIMIT_FSIZE.
Check check_shared_memory();
// /dev/shm: tutti does not use it, but programs beside tutti do. Empty if it is not a separate file system.
Check check_dev_shm(const std::string& folder = "/dev/shm");
// Compares the most memory that ranks share with the memory that is left, on this machine and in the control group.
Check check_memory(Limit machine, Limit group, int ranks);
Check check_own_memory(int ranks);
// Whether ranks may read each other's memory (process_vm_readv), and fast enough.
Check check_cross_memory(MemoryReads wanted);
// RLIMIT_MEMLOCK, which matters only with RDMA devices.
Check check_locking(bool has_devices);

// All of them.
Checks check_limits(int ranks, const Settings& settings);

}  // namespace tutti::internal::tools
