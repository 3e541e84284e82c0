// What of a host can keep ranks on it from working, or from being fast: one look at each, with the fix. Limits are
// looked at by limit_checks.h, networks by network_checks.h, RDMA by rdma_checks.h.
//
// Threads: one. What is read and what is judged are apart where the latter has cases.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "join/launch/trace.h"

namespace tutti::internal::tools {

// Each variable that begins with TUTTI_: whether it is known, and its value can be read.
Checks check_settings();
// What launchers have left in the environment, whether it is usable and of one job: `found` as
// launchers_in_environment() says it.
Check check_launchers(const std::vector<LauncherTrace>& found);

// Processors that ranks may use, and the time that control groups leave them, in thousandths; nothing: all of it.
Check check_processors(int usable, std::optional<std::uint32_t> millicpus, int ranks);
Check check_own_processors(int ranks);
// What hwloc tells of packages, cores, caches and NUMA nodes.
Check check_topology();
// The kernel's clock source: reading any other than these takes a system call.
Check check_clock(const std::string& source);
Check check_own_clock();
Check check_wall_clock();
// Transparent huge pages of shared memory: `setting` as /sys/kernel/mm/transparent_hugepage/shmem_enabled has it.
Check check_huge_pages(const std::string& setting);

// All of them, in an order in which they are read.
Checks check_host(int ranks);

}  // namespace tutti::internal::tools
