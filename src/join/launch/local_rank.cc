#include "join/launch/local_rank.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/config.h"
#include "control/tree_shape.h"
#include "join/launch/trace.h"

namespace tutti::internal {
namespace {

struct Names {
  const char* rank;
  const char* ranks;
  const char* launcher;
};
constexpr Names kOwn{"TUTTI_LOCAL_RANK", "TUTTI_LOCAL_SIZE", "plain"};
constexpr Names kSlurm{"SLURM_LOCALID", "SLURM_STEP_ID", "slurm"};
// If several came into the environment together, the first one applies.
constexpr Names kLaunchers[] = {kOwn,
                                {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "torchrun"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "pmix"},
                                {"MPI_LOCALRANKID", "MPI_LOCALNRANKS", "pmi1"},
                                kSlurm};

// `ranks`: what `ranks_name` says.
Result<LocalRank> read(const char* rank_name, const char* ranks_name, std::int64_t ranks) {
  const std::string text = environment_variable(rank_name).value_or("");
  const auto rank = parse_integer(text, 0, ranks - 1);
  if (rank) return LocalRank{static_cast<int>(*rank), static_cast<int>(ranks)};
  return Status::invalid_usage(fmt::format("{}=\"{}\" is not usable: it must be from 0 to {}, as {} has {} ranks here",
                                           rank_name, text, ranks - 1, ranks_name, ranks));
}

Result<LocalRank> read(const Names& names) {
  const std::string text = environment_variable(names.ranks).value_or("");
  const auto ranks = parse_integer(text, 1, kMaxRanks);
  if (ranks) return read(names.rank, names.ranks, *ranks);
  return Status::invalid_usage(
      fmt::format("{}=\"{}\" is not usable: it must be the number of ranks on this machine, from 1 to {}", names.ranks,
                  text, kMaxRanks));
}

// What a batch script alone was allotted is not what it runs: see detect_job().
Result<LocalRank> read_slurm() {
  const char* const list_name =
      environment_has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const std::string list = environment_variable(list_name).value_or("");
  const std::string node = environment_variable("SLURM_NODEID").value_or("");
  const int ranks = slurm_tasks_on(list, static_cast<int>(parse_integer(node, 0, kMaxRanks).value_or(-1)));
  if (ranks > 0) return read("SLURM_LOCALID", list_name, ranks);
  return Status::invalid_usage(
      fmt::format("{}=\"{}\" does not say how many tasks the node SLURM_NODEID=\"{}\" has", list_name, list, node));
}

// The variables of the launcher that started this process, by the rule of choose_launcher(): TUTTI_LAUNCHER, or the
// innermost launcher. The rule also applies if there is only one: MPI_Init sets rank 0 of 1 in a process that no MPI
// launcher started.
std::optional<Names> find_names() {
  const std::string wanted = environment_variable("TUTTI_LAUNCHER").value_or("");
  std::vector<Names> found;
  std::vector<LauncherVariables> variables;
  for (const Names& names : kLaunchers) {
    // One of a launcher's two variables alone is not from that launcher; one of tutti's two alone is an error that
    // read() reports.
    const bool half_is_enough = names.rank == kOwn.rank;
    if (half_is_enough ? !environment_has(names.rank) && !environment_has(names.ranks)
                       : !environment_has(names.rank) || !environment_has(names.ranks)) {
      continue;
    }
    // Slurm's PMIx server provides these in Slurm's variables.
    if (wanted == names.launcher || (wanted == "pmix" && names.rank == kSlurm.rank)) return names;
    found.push_back(names);
    variables.push_back({names.launcher, {names.rank, names.ranks}});
  }
  const auto index = innermost(origins_of(variables));
  return index ? std::optional<Names>(found[*index]) : std::nullopt;
}

}  // namespace

int slurm_tasks_on(const std::string& list, int node) {
  std::int64_t left = node;
  for (std::size_t at = 0; node >= 0 && at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    const std::string entry = list.substr(at, end - at);
    const std::size_t times = entry.find("(x");
    std::optional<std::int64_t> nodes = 1;
    if (times != std::string::npos) {
      if (entry.back() != ')') return 0;
      nodes = parse_integer(entry.substr(times + 2, entry.size() - times - 3), 1, kMaxRanks);
    }
    const auto tasks = parse_integer(entry.substr(0, times), 1, kMaxRanks);
    if (!tasks || !nodes) return 0;
    if (left < *nodes) return static_cast<int>(*tasks);
    left -= *nodes;
    at = end + 1;
  }
  return 0;
}

Result<LocalRank> detect_local_rank(const std::optional<LocalRank>& otherwise) {
  if (const auto names = find_names()) return names->rank == kSlurm.rank ? read_slurm() : read(*names);
  if (otherwise) return *otherwise;
  return Status::invalid_usage(
      "no launcher says which of the ranks on this machine this one is: looked for TUTTI_LOCAL_RANK, LOCAL_RANK "
      "(torchrun), OMPI_COMM_WORLD_LOCAL_RANK (Open MPI), MPI_LOCALRANKID (MPICH, Intel MPI) and SLURM_LOCALID in the "
      "environment. Set TUTTI_LOCAL_RANK, from 0 on, and TUTTI_LOCAL_SIZE, the number of ranks on this machine");
}

}  // namespace tutti::internal
