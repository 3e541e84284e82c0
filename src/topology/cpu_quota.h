// The limits of processor time by control groups: cgroup v2's cpu.max, v1's cpu.cfs_quota_us. A group with the time of
// two processors may run on a hundred of them; if a rank spins, that reduces the time of all ranks in the group.
//
// Threads: any; nothing here has state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::internal::topology {

struct CpuQuota {
  // The control group with the quota: the same number for all processes of the machine in this group, in any container.
  std::uint64_t group = 0;
  std::uint32_t millicpus = 0;  // thousandths of a processor's time, for all processes in the group together; > 0
  bool operator==(const CpuQuota&) const = default;
};

// The quotas of this process's groups, from its own to the outermost visible one; empty if there is no limit. `root`:
// replaces the folder / (tests).
std::vector<CpuQuota> cpu_quotas(const std::string& root = "");

}  // namespace tutti::internal::topology
