#include "limit_checks.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/control_group.h"
#include "join/join.h"
#include "join/root_service.h"
#include "memory/process_reads.h"
#include "os/kernel_files.h"
#include "rdma_checks.h"
#include "transport/shm/arena.h"
#include "transport/shm/cross_memory.h"
#include "transport/shm/layout.h"
#include "transport/verbs/ports/machine.h"

namespace tutti::internal::tools {
namespace {

using transport::verbs::names_in;

// Beside those that its program has and the progress threads: the control tree's, and rank 0's root service.
constexpr std::uint64_t kServiceThreads = 2;
constexpr std::uint64_t kFilesOfProgram = 256;  // few programs have more open
constexpr std::uint64_t kAmpleDevShmBytes = std::uint64_t{64} << 20;

std::string most_text(const std::optional<std::uint64_t>& most) {
  return most ? std::to_string(*most) : "unlimited";
}

std::optional<std::uint64_t> limit_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(limit);
}

// Threads of all processes of this user.
std::uint64_t threads_of_user() {
  std::uint64_t threads = 0;
  for (const std::string& name : names_in("/proc")) {
    struct stat info {};
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (::stat(fmt::format("/proc/{}", name).c_str(), &info) != 0 || info.st_uid != ::getuid()) continue;
    threads += names_in(fmt::format("/proc/{}/task", name)).size();
  }
  return threads;
}

std::uint64_t meminfo_bytes(const std::string& field) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) return std::strtoull(line.c_str() + field.size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

// The errno, or 0, of a child that reads this process's memory, as a rank reads another rank's. `permits`: see
// permit_siblings().
int read_by_sibling(bool permits) {
  if (permits) transport::shm::permit_siblings();
  static volatile int word = 4711;
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return errno;
  if (child == 0) {
    int copy = 0;
    const iovec local{&copy, sizeof copy};
    const iovec remote{const_cast<int*>(&word), sizeof copy};
    const bool read = ::process_vm_readv(parent, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(sizeof copy);
    ::_exit(read ? (copy == 4711 ? 0 : EIO) : errno);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
}

}  // namespace

Check check_descriptors(Limit soft, std::optional<std::uint64_t> hard, int ranks, const Settings& settings) {
  const std::string what = "open files";
  const std::uint64_t needed = descriptors_of_rank(ranks, settings) + descriptors_of_root(ranks);
  const std::string found = fmt::format(
      "each of {} ranks may need {}, and rank 0 for a while {} more; the limit is {}, the hard one {}, {} are "
      "open",
      ranks, descriptors_of_rank(ranks, settings), descriptors_of_root(ranks), most_text(soft.most), most_text(hard),
      soft.used);
  const std::string fix =
      "ulimit -n, nofile in limits.conf(5), LimitNOFILE= of a systemd unit, --ulimit nofile= of a container";
  if (!hard || !soft.most) return {Verdict::kOk, what, found, ""};
  if (*hard < needed + soft.used) return {Verdict::kFail, what, found, fix};
  if (*hard < needed + std::min(*soft.most, kFilesOfProgram)) {
    return {Verdict::kWarn, what, found + ": that leaves few to the program itself", fix};
  }
  return {Verdict::kOk, what, found, ""};
}

Check check_own_descriptors(int ranks, const Settings& settings) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return {Verdict::kWarn, "open files", fmt::format("getrlimit: {}", std::strerror(errno)), ""};
  }
  return check_descriptors({limit_of(limit.rlim_cur), names_in("/proc/self/fd").size()}, limit_of(limit.rlim_max),
                           ranks, settings);
}

Check check_threads(const std::string& whose, Limit limit, int ranks, const Settings& settings,
                    const std::string& fix) {
  const std::string what = fmt::format("threads of {}", whose);
  const auto each = 1 + kServiceThreads + static_cast<std::uint64_t>(settings.progress_threads);
  const std::uint64_t needed = each * static_cast<std::uint64_t>(ranks);
  const std::string found = fmt::format("{} ranks need up to {}, {} each; {} of {} are used", ranks, needed, each,
                                        limit.used, most_text(limit.most));
  if (limit.most && *limit.most < limit.used + needed) return {Verdict::kFail, what, found, fix};
  return {Verdict::kOk, what, found, ""};
}

Checks check_own_threads(int ranks, const Settings& settings) {
  Checks checks;
  rlimit limit{};
  // Root of the first user namespace is not held to it.
  if (::getuid() != 0 && ::getrlimit(RLIMIT_NPROC, &limit) == 0) {
    checks.push_back(check_threads("this user", {limit_of(limit.rlim_cur), threads_of_user()}, ranks, settings,
                                   "ulimit -u, nproc in limits.conf(5)"));
  }
  checks.push_back(check_threads("the control group", group_limit_of_threads(), ranks, settings,
                                 "TasksMax= of a systemd unit, --pids-limit of a container"));
  return checks;
}

Check check_shared_memory() {
  const std::string what = "shared memory";
  if (const Status status = transport::shm::try_shared_memory(); !status.is_ok()) {
    return {Verdict::kFail, what, status.message(),
            fmt::format("{}; or TUTTI_TRANSPORTS=tcp", transport::shm::kSharedMemoryFix)};
  }
  return {Verdict::kOk, what, "memfd_create(2) works; the size of /dev/shm does not matter for it", ""};
}

Check check_dev_shm(const std::string& folder) {
  const std::string what = folder;
  const std::string others = "tutti needs none, but Open MPI, MPICH and PyTorch's data loaders do";
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) {
    return {Verdict::kWarn, what, fmt::format("{}; {}", std::strerror(errno), others),
            fmt::format("mount -t tmpfs tmpfs {}", folder)};
  }
  const std::uint64_t bytes = std::uint64_t{info.f_blocks} * info.f_frsize;
  const std::uint64_t left = std::uint64_t{info.f_bavail} * info.f_frsize;
  const std::string found = fmt::format("{} of {} are free; {}", size_text(left), size_text(bytes), others);
  if (left >= kAmpleDevShmBytes) return {Verdict::kOk, what, found, ""};
  return {Verdict::kWarn, what, found,
          fmt::format("mount -o remount,size=2G {}, --shm-size of a container, or remove what jobs have left in it",
                      folder)};
}

Check check_memory(Limit machine, Limit group, int ranks) {
  constexpr std::uint64_t kPairBytes = transport::shm::Extension::placed_bytes(transport::shm::Turns::kNone);
  const std::string what = "memory";
  const auto n = static_cast<std::uint64_t>(ranks);
  const std::uint64_t most = n * (n - 1) * kPairBytes;
  const auto left_of = [](const Limit& limit) { return *limit.most - std::min(*limit.most, limit.used); };
  std::uint64_t left = machine.most ? left_of(machine) : UINT64_MAX;
  std::string found = fmt::format("{} ranks of this host share up to {} if each exchanges with each; {}", ranks,
                                  size_text(most), machine.most ? size_text(left) + " are available" : "unknown");
  if (group.most) {
    found += fmt::format(", {} of the control group's {}", size_text(left_of(group)), size_text(*group.most));
    left = std::min(left, left_of(group));
  }
  if (most <= left) return {Verdict::kOk, what, found, ""};
  return {Verdict::kWarn, what, found,
          "fewer ranks on the host, more memory (--memory of a container, MemoryMax=, --mem of Slurm), or "
          "TUTTI_TRANSPORTS=tcp"};
}

Check check_own_memory(int ranks) {
  const std::uint64_t available = meminfo_bytes("MemAvailable");
  const Limit machine = available > 0 ? Limit{available, 0} : Limit{};
  Check check = check_memory(
      machine, group_limit("memory", "memory.max", "memory.current", "memory.limit_in_bytes", "memory.usage_in_bytes"),
      ranks);
  if (first_line_of("/proc/sys/vm/overcommit_memory") == "2") {
    check.found += fmt::format("; without overcommit, {} of {} are promised", size_text(meminfo_bytes("Committed_AS")),
                               size_text(meminfo_bytes("CommitLimit")));
  }
  return check;
}

Check check_cross_memory(MemoryReads wanted) {
  const std::string what = "reading other ranks' memory";
  if (wanted == MemoryReads::kNever) return {Verdict::kOk, what, "TUTTI_CROSS_MEMORY=never: not used", ""};
  if (const int error = read_by_sibling(wanted == MemoryReads::kAlways); error != 0) {
    const std::string scope = first_line_of("/proc/sys/kernel/yama/ptrace_scope");
    const std::string yama = scope.empty() ? "" : fmt::format(", kernel.yama.ptrace_scope is {}", scope);
    return {Verdict::kWarn, what,
            fmt::format("process_vm_readv(2): {}{}; large messages are copied twice", std::strerror(error), yama),
            "sysctl kernel.yama.ptrace_scope=0, or 1 and TUTTI_CROSS_MEMORY=always (docs/security.md says what that "
            "opens); --cap-add SYS_PTRACE or another seccomp profile of a container"};
  }
  if (!memory::reads_of_processes_pay()) {
    return {Verdict::kOk, what,
            fmt::format("allowed, but slow here{}", wanted == MemoryReads::kAlways
                                                        ? "; TUTTI_CROSS_MEMORY=always uses it all the same"
                                                        : ", so it is not used"),
            ""};
  }
  return {Verdict::kOk, what, "process_vm_readv(2) is allowed, and fast", ""};
}

Check check_locking(bool has_devices) {
  Check check = check_own_locked_memory();
  if (has_devices || check.verdict == Verdict::kOk) return check;
  check.verdict = Verdict::kWarn;
  check.found += "; only RDMA needs it, of which there is no device here";
  return check;
}

Checks check_limits(int ranks, const Settings& settings) {
  Checks checks = {check_shared_memory(), check_dev_shm(), check_own_memory(ranks),
                   check_own_descriptors(ranks, settings)};
  for (Check& check : check_own_threads(ranks, settings)) checks.push_back(std::move(check));
  checks.push_back(check_locking(!transport::verbs::device_names({}).empty()));
  checks.push_back(check_cross_memory(settings.cross_memory));
  return checks;
}

}  // namespace tutti::internal::tools
