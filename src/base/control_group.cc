#include "base/control_group.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/config.h"

namespace tutti::internal {
namespace {

std::optional<std::uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const auto number = parse_integer(line, 0, INT64_MAX);
  return number ? std::optional<std::uint64_t>(*number) : std::nullopt;
}

// The folders of this process's control group, from its own to the outermost, for a controller: those of version 2, and
// of version 1 if that is mounted.
std::vector<std::string> group_folders(const std::string& controller) {
  std::vector<std::string> folders;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() &&
        fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) == std::string::npos)
      continue;
    const std::string top = fmt::format("/sys/fs/cgroup{}{}", controllers.empty() ? "" : "/", controllers);
    std::string group = line.substr(second + 1);
    // In a container the path may not be visible; the mount point is then the container's group.
    struct stat info {};
    if (group.find("/..") != std::string::npos || ::stat((top + group).c_str(), &info) != 0) group.clear();
    while (group.ends_with('/')) group.pop_back();
    for (;; group.resize(group.rfind('/'))) {
      folders.push_back(top + group);
      if (group.empty()) break;
    }
  }
  return folders;
}

}  // namespace

Limit group_limit(const std::string& controller, const char* most_2, const char* used_2, const char* most_1,
                  const char* used_1) {
  constexpr std::uint64_t kNone = std::uint64_t{1} << 60;  // version 1 has no value for "no limit"
  Limit least;
  for (const std::string& folder : group_folders(controller)) {
    for (const auto& [most_file, used_file] : {std::pair(most_2, used_2), std::pair(most_1, used_1)}) {
      const auto most = number_in(folder + "/" + most_file);
      const std::uint64_t used = number_in(folder + "/" + used_file).value_or(0);
      if (!most || *most >= kNone) continue;
      if (!least.most || *most - std::min(*most, used) < *least.most - std::min(*least.most, least.used)) {
        least = {most, used};
      }
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
  std::ifstream maps("/proc/self/maps");
  const auto mapped = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
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
