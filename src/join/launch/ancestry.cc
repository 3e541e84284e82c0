#include "join/launch/ancestry.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/config.h"
#include "os/kernel_files.h"

namespace tutti::internal {
namespace {

// A longer ancestry is a loop of reused process numbers.
constexpr int kMostGenerations = 256;

// The environment with which the process was started: "\0NAME=VALUE\0...\0". Empty if the kernel does not show it, or
// if the process has overwritten it with its title.
std::optional<std::string> starting_environment(pid_t process) {
  std::string entries = contents_of(fmt::format("/proc/{}/environ", process));
  if (entries.find('=') == std::string::npos) return std::nullopt;
  entries.insert(entries.begin(), '\0');
  if (entries.back() != '\0') entries += '\0';
  return entries;
}

// 0: none, or not visible here.
pid_t parent_of(pid_t process) {
  const std::string line = contents_of(fmt::format("/proc/{}/stat", process));
  // "PID (NAME) STATE PARENT ...", and a name may contain anything.
  const std::size_t end = line.rfind(") ");
  if (end == std::string::npos || line.size() < end + 4) return 0;
  const std::string rest = line.substr(end + 4);
  return static_cast<pid_t>(parse_integer(rest.substr(0, rest.find(' ')), 0, INT32_MAX).value_or(0));
}

struct Neighbours {
  std::vector<std::string> entries;  // "\0NAME=VALUE\0"
  bool followed = true;

  [[nodiscard]] bool all_in(const std::string& environment) const {
    return std::all_of(entries.begin(), entries.end(),
                       [&](const std::string& entry) { return environment.find(entry) != std::string::npos; });
  }
};

std::vector<Neighbours> read_groups(std::span<const std::vector<const char*>> groups) {
  std::vector<Neighbours> result(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const char* name : groups[i]) {
      const auto value = environment_variable(name);
      if (!value) continue;
      result[i].entries.push_back(std::string(1, '\0').append(name).append("=").append(*value).append(1, '\0'));
    }
  }
  return result;
}

}  // namespace

std::vector<Inheritance> inheritance_of(std::span<const std::vector<const char*>> groups) {
  std::vector<Neighbours> left = read_groups(groups);
  std::vector<Inheritance> result(groups.size());
  pid_t process = ::getpid();
  for (int generation = 0; generation < kMostGenerations; ++generation) {
    const auto environment = process > 0 ? starting_environment(process) : std::nullopt;
    bool any = false;
    for (std::size_t i = 0; i < left.size(); ++i) {
      if (!left[i].followed) continue;
      result[i] = {generation, environment.has_value()};
      left[i].followed = environment && left[i].all_in(*environment);
      any |= left[i].followed;
    }
    if (!any) break;
    process = parent_of(process);
  }
  return result;
}

}  // namespace tutti::internal
