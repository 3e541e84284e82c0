#include "base/control_group.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/config.h"
#include "os/kernel_files.h"

namespace tutti::internal {
namespace {

std::optional<std::uint64_t> number_in(const std::string& path) {
  const auto number = parse_integer(first_line_of(path), 0, INT64_MAX);
  return number ? std::optional<std::uint64_t>(*number) : std::nullopt;
}

// Of a comma-separated list.
bool has_word(const std::string& list, const std::string& word) {
  return fmt::format(",{},", list).find(fmt::format(",{},", word)) != std::string::npos;
}

// Where a hierarchy of control groups is mounted.
struct Mount {
  int version = 2;
  std::string top;    // of the hierarchy, the group at the mount point
  std::string point;  // in the file system
};

// The mounts that hold limits of the controller. See proc_pid_mountinfo(5).
std::vector<Mount> mounts(const std::string& controller, const std::string& root) {
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
    if (type == "cgroup" && !has_word(options, controller)) continue;
    if (type != "cgroup" && type != "cgroup2") continue;
    mount.version = type == "cgroup2" ? 2 : 1;
    result.push_back(std::move(mount));
  }
  return result;
}

// The group of this process in the hierarchy. See cgroups(7).
std::optional<std::string> own_group(const std::string& controller, int version, const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_it = version == 2 ? line.starts_with("0::") : has_word(controllers, controller);
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

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  for (const Mount& mount : mounts(controller, root)) {
    const std::optional<std::string> group = own_group(controller, mount.version, root);
    if (!group) continue;
    for (std::string below = below_mount(mount, *group);; below.resize(below.rfind('/'))) {
      groups.push_back({root + mount.point + below, mount.version});
      if (below.empty()) break;
    }
  }
  return groups;
}

Limit group_limit(const std::string& controller, const char* most_2, const char* used_2, const char* most_1,
                  const char* used_1) {
  constexpr std::uint64_t kNone = std::uint64_t{1} << 60;  // version 1 has no value for "no limit"
  Limit least;
  for (const auto& [folder, version] : control_groups(controller)) {
    const auto most = number_in(folder + "/" + (version == 2 ? most_2 : most_1));
    const std::uint64_t used = number_in(folder + "/" + (version == 2 ? used_2 : used_1)).value_or(0);
    if (!most || *most >= kNone) continue;
    if (!least.most || *most - std::min(*most, used) < *least.most - std::min(*least.most, least.used)) {
      least = {most, used};
    }
  }
  return least;
}

Limit group_limit_of_threads() {
  return group_limit("pids", "pids.max", "pids.current", "pids.max", "pids.current");
}

std::string limits_of_addresses() {
  std::string text;
  for (const auto& [resource, option] : {std::pair(RLIMIT_AS, "-v"), std::pair(RLIMIT_DATA, "-d")}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    text += fmt::format("{}ulimit {} is {} KiB", text.empty() ? "" : ", ", option, limit.rlim_cur >> 10);
  }
  return text;
}

std::string memory_advice(int error_number) {
  if (error_number != ENOMEM) return {};
  std::string text = limits_of_addresses();
  if (text.empty()) text = "ulimit -v and ulimit -d are unlimited";
  const Limit group =
      group_limit("memory", "memory.max", "memory.current", "memory.limit_in_bytes", "memory.usage_in_bytes");
  if (group.most) {
    text += fmt::format("; the control group may use {} KiB of memory, of which {} are used", *group.most >> 10,
                        group.used >> 10);
  }
  const std::string maps = contents_of("/proc/self/maps");
  const auto mapped = std::count(maps.begin(), maps.end(), '\n');
  if (const auto most = number_in("/proc/sys/vm/max_map_count")) {
    text += fmt::format("; vm.max_map_count is {}, of which {} are used", *most, mapped);
  }
  return fmt::format(" (memory limits: {}. Raise the limit that was reached: ulimit, --memory of a container, sysctl)",
                     text);
}

std::string thread_advice(int error_number) {
  if (error_number != EAGAIN) return {};
  const std::string addresses = limits_of_addresses();  // which a thread's stack takes
  const Limit group = group_limit_of_threads();
  const std::string in_group =
      group.most ? fmt::format("pids.max of the control group is {}, of which {} are used", *group.most, group.used)
                 : "no control group sets pids.max";
  rlimit limit{};
  std::string of_user = "?";
  if (::getrlimit(RLIMIT_NPROC, &limit) == 0) {
    of_user = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  }
  const auto of_machine = number_in("/proc/sys/kernel/threads-max");
  return fmt::format(
      " (thread limits: {}; ulimit -u is {}; kernel.threads-max is {}{}. Raise the limit that was reached: TasksMax= "
      "of a systemd unit or --pids-limit of a container, ulimit{}, sysctl)",
      in_group, of_user, of_machine ? std::to_string(*of_machine) : "?",
      addresses.empty() ? "" : fmt::format("; for its stack: {}", addresses), addresses.empty() ? " -u" : "");
}

}  // namespace tutti::internal
