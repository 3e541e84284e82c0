// Checks of a host for problems that stop or slow ranks, each with the fix. limit_checks.h checks limits,
// network_checks.h networks, rdma_checks.h RDMA.
//
// Threads: one. Checks with several outcomes take their facts as arguments, so tests can set them.
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
// The launchers' variables in the environment: whether they are usable and belong to one job. `found` is the result of
// launchers_in_environment().
Check check_launchers(const std::vector<LauncherTrace>& found);

// Processors that ranks may use, and the time that control groups leave them, in thousandths; nothing: all of it.
Check check_processors(int usable, std::optional<std::uint32_t> millicpus, int ranks);
Check check_own_processors(int ranks);
// The packages, cores, caches and NUMA nodes that hwloc finds.
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
