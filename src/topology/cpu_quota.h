// How much processor time control groups leave this process: cgroup v2's cpu.max, v1's cpu.cfs_quota_us. A group of two
// processors' time may run on a hundred of them; what its ranks waste spinning is then taken from all of them.
//
// Threads: any; nothing here has state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::internal::topology {

struct CpuQuota {
  // The control group that it is of: the same number for all processes of the machine that are in it, in whatever
  // containers.
  std::uint64_t group = 0;
  std::uint32_t millicpus = 0;  // thousandths of a processor's time, that all processes in the group have together; > 0
  bool operator==(const CpuQuota&) const = default;
};

// Those of the groups that this process is in, from its own to the outermost that it sees; none where there is no
// limit. `root`: in place of the folder / (tests).
std::vector<CpuQuota> cpu_quotas(const std::string& root = "");

}  // namespace tutti::internal::topology
