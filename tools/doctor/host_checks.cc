#include "host_checks.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>

#include "base/config.h"
#include "base/nccl_variables.h"
#include "base/variables.h"
#include "os/kernel_files.h"
#include "topology/cpu_quota.h"
#include "topology/detect.h"
#include "transport/verbs/options.h"
#include "transport/verbs/ports/machine.h"

namespace tutti::internal::tools {
namespace {

// Variables of other launchers may be incomplete; tutti's own are all required.
bool is_unusable(const LauncherTrace& trace) {
  if (trace.rank && trace.ranks) return *trace.rank >= *trace.ranks;
  return trace.launcher == "plain";
}

}  // namespace

Checks check_settings() {
  Checks checks;
  std::string given;
  for (const Variable& variable : variables()) {
    const std::string name(variable.name);
    const auto value = environment_variable(name.c_str());
    if (!value) continue;
    given += (given.empty() ? "" : ", ") + name;
    Status read = check_variable(name, *value);
    if (read.is_ok() && name == "TUTTI_VERBS") read = transport::verbs::parse_options(*value).status();
    if (read.is_ok()) continue;
    checks.push_back({name == "TUTTI_LOG" ? Verdict::kWarn : Verdict::kFail, name, read.message(),
                      fmt::format("correct or unset it; its default is {}", fallback_of(variable))});
  }
  for (const UnknownVariable& unknown : unknown_names()) {
    checks.push_back({Verdict::kWarn, unknown.name, "tutti does not know it, and ignores it",
                      unknown.meant.empty() ? "unset it (tutti info lists those that there are)"
                                            : fmt::format("did you mean {}?", unknown.meant)});
  }
  if (const std::string ignored = ignored_nccl_variables(); !ignored.empty()) {
    checks.push_back(
        {Verdict::kWarn, "NCCL's settings", ignored, "set tutti's, and unset NCCL's where NCCL is not used"});
  }
  if (checks.empty()) {
    checks.push_back({Verdict::kOk, "settings", given.empty() ? "the environment sets none" : "set: " + given, ""});
  }
  return checks;
}

Check check_launchers(const std::vector<LauncherTrace>& found) {
  const std::string what = "launcher";
  if (found.empty()) return {Verdict::kOk, what, "none in this environment: this process is not a rank", ""};
  std::string all;
  for (const LauncherTrace& trace : found) all += (all.empty() ? "" : ", ") + text_of(trace);
  Result<LauncherTrace> chosen = choose_launcher(found, environment_variable("TUTTI_LAUNCHER").value_or(""));
  if (!chosen.is_ok()) return {Verdict::kFail, what, chosen.status().message(), "set TUTTI_LAUNCHER as said there"};
  if (is_unusable(*chosen)) {
    return {Verdict::kFail, what, fmt::format("{}: that is not usable", all),
            fmt::format("correct or unset {}: ranks are from 0 to their number - 1", chosen->variables)};
  }
  const bool batch = std::all_of(found.begin(), found.end(), [](const LauncherTrace& t) { return !t.starts_ranks; });
  if (batch) {
    return {Verdict::kWarn, what, fmt::format("{}: an allocation without a started rank", all),
            "start the program by srun or mpirun; this check is about the batch script only"};
  }
  return {Verdict::kOk, what, fmt::format("{}; tutti uses {}", all, chosen->launcher), ""};
}

Check check_processors(int usable, std::optional<std::uint32_t> millicpus, int ranks) {
  const std::string what = "processors";
  std::string found = fmt::format("{} usable by this process", usable);
  const bool short_of_time = millicpus && *millicpus < static_cast<std::uint32_t>(1000 * std::min(ranks, usable));
  if (millicpus) found += fmt::format(", control groups leave the time of {:g}", *millicpus / 1000.0);
  if (ranks > usable) {
    return {Verdict::kWarn, what, fmt::format("{}: {} ranks take turns", found, ranks),
            "fewer ranks, or a launcher that binds less (mpirun --bind-to none, srun --cpu-bind=none, -c)"};
  }
  if (short_of_time) {
    return {Verdict::kWarn, what, fmt::format("{}: {} ranks are stopped for a part of the time", found, ranks),
            "--cpus of a container, CPUQuota= of a systemd unit, limits.cpu of Kubernetes: as many as ranks"};
  }
  return {Verdict::kOk, what, found, ""};
}

Check check_own_processors(int ranks) {
  std::optional<std::uint32_t> millicpus;
  for (const topology::CpuQuota& quota : topology::cpu_quotas()) {
    millicpus = std::min(millicpus.value_or(UINT32_MAX), quota.millicpus);
  }
  return check_processors(static_cast<int>(topology::allowed_processors().count()), millicpus, ranks);
}

Check check_topology() {
  const topology::Machine& machine = topology::this_machine();
  const std::string found =
      fmt::format("packages: {}, cores: {}, processors: {}, caches: {}, NUMA nodes: {}", machine.packages.size(),
                  machine.cores.size(), machine.processors.count(), machine.caches.size(), machine.numa_nodes.size());
  if (machine.cores.empty() || machine.caches.empty()) {
    return {Verdict::kWarn, "topology", found + "; the kernel, or the virtual machine, hides some",
            "mount /sys in the container; else algorithms are chosen without it, or by TUTTI_TOPOLOGY"};
  }
  return {Verdict::kOk, "topology", found, ""};
}

Check check_clock(const std::string& source) {
  const std::string what = "clock";
  if (source.empty()) return {Verdict::kOk, what, "the kernel tells no clock source", ""};
  const bool quick = source == "tsc" || source == "kvm-clock" || source == "hyperv_clocksource_tsc_page" ||
                     source == "arch_sys_counter";
  const std::string found = fmt::format("clock source {}", source);
  if (quick) return {Verdict::kOk, what, found + ", read without a system call", ""};
  return {Verdict::kWarn, what, found + ": each look at the clock takes a system call, and waits look often",
          "see dmesg for why tsc is not used (tsc=reliable), and clocksource0/available_clocksource in "
          "/sys/devices/system/clocksource"};
}

Check check_own_clock() {
  return check_clock(first_line_of("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
}

Check check_wall_clock() {
  return {
      Verdict::kOk, "wall clock",
      "only the log uses it. To see whether the clocks of several hosts agree, run chronyc tracking on each, or date "
      "+%s.%N on all at once",
      ""};
}

Check check_huge_pages(const std::string& setting) {
  const std::string what = "huge pages";
  const std::size_t open = setting.find('[');
  const std::size_t close = setting.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return {Verdict::kOk, what, "this kernel has none for shared memory", ""};
  }
  const std::string chosen = setting.substr(open + 1, close - open - 1);
  if (chosen == "never" || chosen == "deny") {
    return {Verdict::kOk, what,
            fmt::format("{} for shared memory; advise would make large buffers of tuttiMemAlloc cheaper (echo advise > "
                        "/sys/kernel/mm/transparent_hugepage/shmem_enabled)",
                        chosen),
            ""};
  }
  return {Verdict::kOk, what, chosen + " for shared memory: buffers of tuttiMemAlloc get them", ""};
}

Checks check_host(int ranks) {
  Checks checks = check_settings();
  checks.push_back(check_launchers(launchers_in_environment()));
  checks.push_back(check_own_processors(ranks));
  checks.push_back(check_topology());
  checks.push_back(check_own_clock());
  checks.push_back(check_wall_clock());
  checks.push_back(check_huge_pages(first_line_of("/sys/kernel/mm/transparent_hugepage/shmem_enabled")));
  return checks;
}

}  // namespace tutti::internal::tools
