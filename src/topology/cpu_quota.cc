#include "topology/cpu_quota.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace tutti::internal::topology {
namespace {

enum class Version { kOne, kTwo };

// Where a hierarchy of control groups is mounted.
struct Mount {
  Version version = Version::kTwo;
  std::string top;    // of the hierarchy, the group at the mount point
  std::string point;  // in the file system
};

// Of a comma-separated list.
bool has_word(const std::string& list, const std::string& word) {
  std::istringstream words(list);
  for (std::string each; std::getline(words, each, ',');) {
    if (each == word) return true;
  }
  return false;
}

// The mounts that hold processor limits. See proc_pid_mountinfo(5).
std::vector<Mount> mounts(const std::string& root) {
  std::vector<Mount> result;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream front(line.substr(0, dash));
    std::istringstream back(line.substr(dash + 3));
    std::string skipped;
    Mount mount;
    front >> skipped >> skipped >> skipped >> mount.top >> mount.point;
    std::string type;
    std::string options;
    back >> type >> skipped >> options;
    if (front.fail() || back.fail()) continue;
    if (type == "cgroup" && !has_word(options, "cpu")) continue;
    if (type != "cgroup" && type != "cgroup2") continue;
    mount.version = type == "cgroup2" ? Version::kTwo : Version::kOne;
    result.push_back(std::move(mount));
  }
  return result;
}

// The group of this process in the hierarchy. See cgroups(7).
std::optional<std::string> own_group(const std::string& root, Version version) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_it = version == Version::kTwo ? line.starts_with("0::") : has_word(controllers, "cpu");
    if (is_it) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The group's path below the mount point. If the group is not below it, as in some containers, this returns the group
// at the mount point, the outermost that this process sees.
std::string below_mount(const Mount& mount, const std::string& group) {
  const std::string top = mount.top == "/" ? "" : mount.top;
  const bool is_below = group.starts_with(top + "/") && group.find("/..") == std::string::npos;
  std::string below = is_below ? group.substr(top.size()) : "";
  while (below.ends_with('/')) below.pop_back();
  return below;
}

std::uint32_t millicpus_of(double quota_us, double period_us) {
  constexpr double kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::clamp(quota_us / period_us * 1000, 1.0, kMost));
}

// 0: no limit.
std::uint32_t limit_of(const std::string& folder, Version version) {
  double quota_us = 0;
  double period_us = 0;
  if (version == Version::kTwo) {
    std::ifstream(folder + "/cpu.max") >> quota_us >> period_us;  // "max" is not a number
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota_us;  // -1: none
    std::ifstream(folder + "/cpu.cfs_period_us") >> period_us;
  }
  return quota_us > 0 && period_us > 0 ? millicpus_of(quota_us, period_us) : 0;
}

}  // namespace

std::vector<CpuQuota> cpu_quotas(const std::string& root) {
  std::vector<CpuQuota> result;
  for (const Mount& mount : mounts(root)) {
    const std::optional<std::string> group = own_group(root, mount.version);
    if (!group) continue;
    for (std::string below = below_mount(mount, *group);; below.resize(below.rfind('/'))) {
      const std::string folder = root + mount.point + below;
      struct stat about {};
      const std::uint32_t millicpus = limit_of(folder, mount.version);
      if (millicpus != 0 && ::stat(folder.c_str(), &about) == 0) {
        const CpuQuota quota{std::uint64_t{about.st_ino} << 1 | (mount.version == Version::kTwo ? 1U : 0U), millicpus};
        // A hierarchy may be mounted twice.
        if (std::find(result.begin(), result.end(), quota) == result.end()) result.push_back(quota);
      }
      if (below.empty()) break;
    }
  }
  return result;
}

}  // namespace tutti::internal::topology
