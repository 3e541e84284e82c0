#include "join/launch/trace.h"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cstddef>
#include <utility>

#include "base/config.h"
#include "control/tree_shape.h"
#include "join/launch/ancestry.h"

namespace tutti::internal {
namespace {

std::optional<int> number(const char* name) {
  const auto value = parse_integer(environment_variable(name).value_or(""), 0, kMaxRanks);
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

// A process in between may close the descriptor, as Python's subprocess does, but keep the variable.
bool is_open_socket(const char* name) {
  const auto fd = parse_integer(environment_variable(name).value_or(""), 0, 1 << 20);
  struct stat info {};
  return fd && ::fstat(static_cast<int>(*fd), &info) == 0 && S_ISSOCK(info.st_mode);
}

// Slurm's own --mpi=pmi2 also sets PMI_FD, but speaks another protocol over it; Hydra started by Slurm
// leaves Slurm's variables in place, and its own beside them.
bool has_pmi1() {
  return environment_has("PMI_FD") && environment_has("PMI_RANK") &&
         (!environment_has("SLURM_PROCID") || environment_has("HYDI_CONTROL_FD"));
}

// Variables that each start of ranks sets. Variables that scripts set, such as MASTER_ADDR, are not among them.
struct Found {
  LauncherTrace trace;
  std::vector<const char*> names;
};

std::vector<Found> find_all() {
  std::vector<Found> found;
  if (environment_has("TUTTI_RANK") || environment_has("TUTTI_WORLD_SIZE")) {
    LauncherTrace plain{"plain", "TUTTI_RANK, TUTTI_WORLD_SIZE", number("TUTTI_RANK"), number("TUTTI_WORLD_SIZE")};
    plain.complete = plain.rank && plain.ranks && (plain.ranks == 1 || environment_has("TUTTI_ROOT"));
    found.push_back({std::move(plain), {"TUTTI_RANK", "TUTTI_WORLD_SIZE", "TUTTI_ROOT"}});
  }
  if (environment_has("PMIX_RANK") && environment_has("PMIX_NAMESPACE")) {
    const bool by_slurm = environment_variable("PMIX_NAMESPACE")->rfind("slurm.", 0) == 0;
    const char* const size = by_slurm ? "SLURM_STEP_NUM_TASKS" : "OMPI_COMM_WORLD_SIZE";
    found.push_back({{"pmix", "PMIX_RANK", number("PMIX_RANK"), number(size)}, {"PMIX_RANK", "PMIX_NAMESPACE"}});
  }
  if (has_pmi1()) {
    LauncherTrace pmi{"pmi1", "PMI_FD, PMI_RANK", number("PMI_RANK"), number("PMI_SIZE"), is_open_socket("PMI_FD")};
    found.push_back({std::move(pmi), {"PMI_RANK", "PMI_SIZE", "PMI_FD", "HYDI_CONTROL_FD"}});
  }
  if (environment_has("RANK") && environment_has("WORLD_SIZE")) {
    LauncherTrace torchrun{"torchrun", "RANK, WORLD_SIZE", number("RANK"), number("WORLD_SIZE")};
    torchrun.complete = torchrun.ranks == 1 || (environment_has("MASTER_ADDR") && environment_has("MASTER_PORT"));
    found.push_back({std::move(torchrun), {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}});
  }
  if (environment_has("SLURM_JOB_ID") || environment_has("SLURM_PROCID")) {
    const bool step = environment_has("SLURM_STEP_ID") && environment_has("SLURM_PROCID");
    const char* const size = environment_has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    // Outside of a step what Slurm says is of the allocation, and no rank's.
    found.push_back({{"slurm", "SLURM_PROCID", step ? number("SLURM_PROCID") : std::nullopt,
                      step ? number(size) : std::nullopt, step},
                     {"SLURM_PROCID", "SLURM_STEP_ID", "SLURM_JOB_ID"}});
  }
  return found;
}

Status undecided(const LauncherTrace& a, const LauncherTrace& b) {
  return Status::invalid_usage(
      fmt::format("two launchers contradict each other: {} by {}, and {} by {}; the ancestors of this process do not "
                  "show which of them started it. Set TUTTI_LAUNCHER={} or TUTTI_LAUNCHER={}, or unset the variables "
                  "of the other",
                  text_of(a), a.variables, text_of(b), b.variables, a.launcher, b.launcher));
}

Result<LauncherTrace> find_wanted(const std::vector<LauncherTrace>& found, const std::string& wanted) {
  for (const LauncherTrace& trace : found) {
    if (trace.launcher == wanted) return trace;
  }
  std::string all;
  for (const LauncherTrace& trace : found) all += (all.empty() ? "" : ", ") + text_of(trace);
  return Status::invalid_usage(
      fmt::format("TUTTI_LAUNCHER={}: the environment has no variables of this launcher, only of {}. Unset "
                  "TUTTI_LAUNCHER, or start the program with {}",
                  wanted, all, wanted));
}

}  // namespace

std::vector<Origin> origins_of(std::span<const LauncherVariables> all) {
  std::vector<std::vector<const char*>> names;
  for (const LauncherVariables& one : all) names.push_back(one.names);
  const std::vector<Inheritance> inherited = inheritance_of(names);
  std::vector<Origin> origins;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool set_here = inherited[i].generations == 0 && inherited[i].known;
    // Open MPI's MPI_Init starts a server for a process that has none.
    origins.push_back({all[i].launcher != "pmix" || !set_here, inherited[i].generations});
  }
  return origins;
}

std::optional<std::size_t> innermost(std::span<const Origin> origins) {
  std::optional<std::size_t> last;
  for (std::size_t i = 0; i < origins.size(); ++i) {
    if (!origins[i].starts_ranks) continue;
    if (!last || origins[i].generations < origins[*last].generations) last = i;
  }
  return last;
}

std::string text_of(const LauncherTrace& trace) {
  const auto text = [](const std::optional<int>& n) { return n ? std::to_string(*n) : "?"; };
  return fmt::format("{} (rank {} of {})", trace.launcher, text(trace.rank), text(trace.ranks));
}

bool contradict(const LauncherTrace& a, const LauncherTrace& b) {
  const auto differ = [](const std::optional<int>& m, const std::optional<int>& n) { return m && n && *m != *n; };
  return differ(a.rank, b.rank) || differ(a.ranks, b.ranks);
}

std::vector<LauncherTrace> launchers_in_environment() {
  std::vector<Found> found = find_all();
  // With only one launcher, the origins are not needed.
  if (found.size() > 1) {
    std::vector<LauncherVariables> variables;
    for (const Found& one : found) variables.push_back({one.trace.launcher, one.names});
    const std::vector<Origin> origins = origins_of(variables);
    for (std::size_t i = 0; i < found.size(); ++i) {
      found[i].trace.generations = origins[i].generations;
      found[i].trace.starts_ranks &= origins[i].starts_ranks;
    }
  }
  std::vector<LauncherTrace> traces;
  for (Found& one : found) traces.push_back(std::move(one.trace));
  return traces;
}

Result<LauncherTrace> choose_launcher(const std::vector<LauncherTrace>& found, const std::string& wanted) {
  if (!wanted.empty()) return find_wanted(found, wanted);
  std::vector<Origin> origins;
  for (const LauncherTrace& trace : found) origins.push_back({trace.starts_ranks, trace.generations});
  const auto index = innermost(origins);
  if (!index) return found.front();
  const LauncherTrace* const last = &found[*index];
  for (const LauncherTrace& other : found) {
    if (!other.starts_ranks) continue;
    if (other.generations == last->generations && contradict(*last, other)) return undecided(*last, other);
  }
  if (last->complete || !last->rank || !last->ranks) return *last;
  // A script has set new variables for the ranks of another launcher. They find each other by these.
  for (const LauncherTrace& other : found) {
    if (other.starts_ranks && other.complete && other.rank == last->rank && !contradict(*last, other)) return other;
  }
  return *last;
}

}  // namespace tutti::internal
