#include "topology/cpu_quota.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "base/control_group.h"

namespace tutti::internal::topology {
namespace {

std::uint32_t millicpus_of(double quota_us, double period_us) {
  constexpr double kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp(quota_us / period_us * 1000, 1.0, kMost));
}

// 0: no limit.
std::uint32_t limit_of(const ControlGroup& group) {
  double quota_us = 0;
  double period_us = 0;
  if (group.version == 2) {
    std::ifstream(group.folder + "/cpu.max") >> quota_us >> period_us;  // "max" is not a number
  } else {
    std::ifstream(group.folder + "/cpu.cfs_quota_us") >> quota_us;  // -1: none
    std::ifstream(group.folder + "/cpu.cfs_period_us") >> period_us;
  }
  return quota_us > 0 && period_us > 0 ? millicpus_of(quota_us, period_us) : 0;
}

}  // namespace

std::vector<CpuQuota> cpu_quotas(const std::string& root) {
  std::vector<CpuQuota> result;
  for (const ControlGroup& group : control_groups("cpu", root)) {
    const std::uint32_t millicpus = limit_of(group);
    struct stat about {};
    if (millicpus == 0 || ::stat(group.folder.c_str(), &about) != 0) continue;
    const CpuQuota quota{std::uint64_t{about.st_ino} << 1 | (group.version == 2 ? 1U : 0U), millicpus};
    // A hierarchy may be mounted twice.
    if (std::find(result.begin(), result.end(), quota) == result.end()) result.push_back(quota);
  }
  return result;
}

}  // namespace tutti::internal::topology
