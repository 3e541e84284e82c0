#include "join/launch/environment.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <string_view>
#include <vector>

#include "base/log.h"
#include "control/tree_shape.h"
#include "join/launch/pmi1.h"
#include "join/launch/pmix.h"
#include "join/launch/trace.h"
#include "net/address.h"
#include "net/auth.h"

namespace tutti::internal {
namespace {

constexpr int kCandidatePorts = 16;
constexpr std::uint32_t kFirstPort = 20000;  // below the range from which kernels choose ports
constexpr std::uint32_t kPorts = 12768;      // so up to 32767
constexpr std::uint32_t kPortStride = 797;   // prime, and not a divisor of kPorts, so that the candidates differ

constexpr const char* kPlain = "plain";

// `wanted`: what it must be.
Status unusable(std::string_view launcher, const char* name, const std::string& wanted) {
  const auto value = environment_variable(name);
  // The names of tutti's own variables show their owner.
  return Status::invalid_usage(
      fmt::format("{}{}{}: it must be {}", launcher == kPlain ? "" : fmt::format("{}: ", launcher), name,
                  value ? fmt::format("=\"{}\" is not usable", *value) : " is not set", wanted));
}

// Reads rank and size from two variables.
Result<LaunchedJob> read_place(const char* launcher, const char* rank_name, const char* size_name) {
  const auto size = parse_integer(environment_variable(size_name).value_or(""), 1, kMaxRanks);
  if (!size) return unusable(launcher, size_name, fmt::format("the number of ranks, from 1 to {}", kMaxRanks));
  const auto rank = parse_integer(environment_variable(rank_name).value_or(""), 0, *size - 1);
  if (!rank) {
    return unusable(launcher, rank_name, fmt::format("from 0 to {}, as {} is {}", *size - 1, size_name, *size));
  }
  return LaunchedJob{launcher, static_cast<int>(*rank), static_cast<int>(*size), KnownRoot{}};
}

// Candidate ports: the same on all ranks of a job, and different for other jobs on the same host.
Result<std::vector<std::uint16_t>> candidate_ports(const std::string& job) {
  constexpr std::string_view kLabel = "tutti candidate ports";
  Result<net::Mac> hash = net::hmac_sha256(kLabel.data(), kLabel.size(), job);
  if (!hash.is_ok()) return hash.status();
  std::uint32_t start = 0;
  for (std::size_t i = 0; i < 4; ++i) start = start << 8 | hash.value()[i];
  std::vector<std::uint16_t> ports;
  for (std::uint32_t i = 0; i < kCandidatePorts; ++i) {
    ports.push_back(static_cast<std::uint16_t>(kFirstPort + (start % kPorts + i * kPortStride) % kPorts));
  }
  return ports;
}

Result<LaunchedJob> detect_plain() {
  Result<LaunchedJob> job = read_place(kPlain, "TUTTI_RANK", "TUTTI_WORLD_SIZE");
  if (!job.is_ok() || job->ranks == 1) return job;
  const auto text = environment_variable("TUTTI_ROOT");
  constexpr const char* kForm = "host:port of rank 0's machine, with a port that is free there";
  if (!text) return unusable(kPlain, "TUTTI_ROOT", kForm);
  Result<net::HostPort> root = net::split_host_port(*text);
  if (!root.is_ok() || root->port == 0) return unusable(kPlain, "TUTTI_ROOT", kForm);
  // The address is not part of the secret. It would exclude no attacker, who knows it anyway, but it would exclude
  // ranks that spell it differently or use a forwarded port.
  job->root = KnownRoot{root->host, {root->port}, kPlain};
  return job;
}

Result<LaunchedJob> detect_pmi1(const Settings& settings, Deadline deadline) {
  Result<LaunchedJob> place = read_place("pmi1", "PMI_RANK", "PMI_SIZE");
  if (!place.is_ok()) return place;
  const auto fd = parse_integer(environment_variable("PMI_FD").value_or(""), 0, 1 << 20);
  if (!fd) return unusable("pmi1", "PMI_FD", "the number of an open file");
  if (::fcntl(static_cast<int>(*fd), F_GETFD) < 0) {
    return Status::invalid_usage(
        fmt::format("pmi1: PMI_FD={}: this process has no such open file: the process that started it closed the "
                    "connection to mpiexec, or MPI_Finalize did. Let the process in between keep it open (in Python "
                    "close_fds=False), or call tutti before MPI_Finalize",
                    *fd));
  }
  return exchange_over_pmi1(static_cast<int>(*fd), place->rank, place->ranks, settings, deadline);
}

Result<LaunchedJob> detect_torchrun() {
  Result<LaunchedJob> job = read_place("torchrun", "RANK", "WORLD_SIZE");
  if (!job.is_ok() || job->ranks == 1) return job;
  const auto host = environment_variable("MASTER_ADDR");
  const auto port = parse_integer(environment_variable("MASTER_PORT").value_or(""), 1, 65535);
  if (!host) return unusable("torchrun", "MASTER_ADDR", "the host of rank 0");
  if (!port) return unusable("torchrun", "MASTER_PORT", "a port from 1 to 65535");
  // MASTER_PORT itself usually belongs to torchrun's store.
  const std::string name =
      fmt::format("torchrun:{}:{}:{}", *port, environment_variable("TORCHELASTIC_RUN_ID").value_or(""),
                  environment_variable("TORCHELASTIC_RESTART_COUNT").value_or(""));
  Result<std::vector<std::uint16_t>> ports = candidate_ports(name);
  if (!ports.is_ok()) return ports.status();
  job->root = KnownRoot{*host, *ports, name};
  return job;
}

// `known`: other information from Slurm.
Status not_started_by_srun(const std::string& known) {
  return Status::invalid_usage(
      fmt::format("slurm: {}SLURM_STEP_ID is not set: this process was started in the allocation of job {} by sbatch "
                  "or salloc, which do not start the other ranks. Start the program by srun or mpirun: srun ./program",
                  known, environment_variable("SLURM_JOB_ID").value_or("?")));
}

Result<LaunchedJob> detect_slurm() {
  const char* size_name = environment_has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  // A batch script that was allotted nodes alone.
  if (!environment_has("SLURM_STEP_ID") && !environment_has(size_name)) return not_started_by_srun("");
  Result<LaunchedJob> job = read_place("slurm", "SLURM_PROCID", size_name);
  if (!job.is_ok() || job->ranks == 1) return job;
  // A batch script runs once; what it was allotted are the ranks that srun would start.
  if (!environment_has("SLURM_STEP_ID")) {
    return not_started_by_srun(fmt::format("{} is {}, but ", size_name, job->ranks));
  }
  const char* list_name = environment_has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  const auto list = environment_variable(list_name);
  const auto job_id = environment_variable("SLURM_JOB_ID");
  if (!list || first_slurm_host(*list).empty()) return unusable("slurm", list_name, "a list of hosts");
  if (!job_id) return unusable("slurm", "SLURM_JOB_ID", "what Slurm sets");
  const std::string name = fmt::format("slurm:{}.{}", *job_id, environment_variable("SLURM_STEP_ID").value_or(""));
  Result<std::vector<std::uint16_t>> ports = candidate_ports(name);
  if (!ports.is_ok()) return ports.status();
  job->root = KnownRoot{first_slurm_host(*list), *ports, name};
  return job;
}

Result<LaunchedJob> detect_pmix(const Settings& settings, Deadline deadline) {
  Result<LaunchedJob> job = exchange_over_pmix(settings, deadline);
  // Without the library, Slurm's own variables still do.
  if (job.is_ok() || job.status().code() != Code::kInvalidUsage || !environment_has("SLURM_PROCID")) return job;
  return detect_slurm();
}

Status no_launcher() {
  return Status::invalid_usage(
      "no launcher found: the environment does not say which rank this process is, and of how many. Start it with "
      "tutti run -n 2 ./program, mpirun, mpiexec, srun or torchrun, or set TUTTI_RANK, TUTTI_WORLD_SIZE and "
      "TUTTI_ROOT. Looked for in the environment: TUTTI_RANK, PMIX_RANK (Open MPI, Slurm), PMI_FD (MPICH), RANK and "
      "WORLD_SIZE (torchrun), SLURM_PROCID");
}

}  // namespace

std::string first_slurm_host(const std::string& list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string::npos) return {};
    const std::string inside = list.substr(at + 1, close - at - 1);
    host += inside.substr(0, inside.find_first_of(",-"));
    at = close;
  }
  return host;
}

Result<LaunchedJob> detect_job(const Settings& settings, Deadline deadline) {
  const std::vector<LauncherTrace> found = launchers_in_environment();
  if (found.empty()) return no_launcher();
  Result<LauncherTrace> chosen = choose_launcher(found, settings.launcher);
  if (!chosen.is_ok()) return chosen.status();
  for (const LauncherTrace& other : found) {
    if (!contradict(*chosen, other)) continue;
    const std::string line = fmt::format("{} started this process, not {}, whose variables are also in the environment",
                                         text_of(*chosen), text_of(other));
    // A script started by the other launcher may have set the same values of these variables for all of its ranks.
    if (settings.launcher.empty() && chosen->ranks == 1 && other.starts_ranks && other.ranks.value_or(1) > 1) {
      log::warn(fmt::format("{}. So this rank is the only one of its job. If it is one of {}, set TUTTI_LAUNCHER={}",
                            line, *other.ranks, other.launcher));
    } else {
      log::info(line);
    }
  }
  if (chosen->launcher == kPlain) return detect_plain();
  if (chosen->launcher == "pmix") return detect_pmix(settings, deadline);
  if (chosen->launcher == "pmi1") return detect_pmi1(settings, deadline);
  if (chosen->launcher == "torchrun") return detect_torchrun();
  return environment_has("SLURM_PROCID") ? detect_slurm() : not_started_by_srun("");
}

}  // namespace tutti::internal
