#include "join/launch/local_rank.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "catch_compat.h"

using namespace tutti::internal;

namespace {

constexpr const char* kAllNames[] = {"TUTTI_LOCAL_RANK",
                                     "TUTTI_LOCAL_SIZE",
                                     "LOCAL_RANK",
                                     "LOCAL_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK",
                                     "OMPI_COMM_WORLD_LOCAL_SIZE",
                                     "MPI_LOCALRANKID",
                                     "MPI_LOCALNRANKS",
                                     "SLURM_LOCALID",
                                     "SLURM_NODEID",
                                     "SLURM_STEP_ID",
                                     "SLURM_TASKS_PER_NODE",
                                     "SLURM_STEP_TASKS_PER_NODE"};

using Variables = std::vector<std::pair<const char*, const char*>>;

Result<LocalRank> detect(const Variables& variables) {
  for (const char* name : kAllNames) ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
  return detect_local_rank();
}

// {rank, ranks}; {-1, -1}: an error.
std::pair<int, int> found(const Variables& variables) {
  auto local = detect(variables);
  if (!local.is_ok()) return {-1, -1};
  return {local->rank, local->ranks};
}

bool refuses(const Variables& variables, const std::string& text) {
  auto local = detect(variables);
  INFO(local.status().message());
  return local.status().code() == Code::kInvalidUsage && local.status().message().find(text) != std::string::npos;
}

void add(const Variables& more, Variables* all) {
  for (const auto& variable : more) all->push_back(variable);
}

}  // namespace

TEST_CASE("each launcher's variables, in their order") {
  Variables all = {
      {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "3(x2),2"}};
  CHECK(found(all) == std::pair{1, 2});
  add({{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "5"}}, &all);
  CHECK(found(all) == std::pair{0, 5});
  // Only half of torchrun's variables are not enough.
  add({{"LOCAL_RANK", "6"}}, &all);
  CHECK(found(all) == std::pair{0, 5});
  add({{"LOCAL_WORLD_SIZE", "7"}}, &all);
  CHECK(found(all) == std::pair{6, 7});
  add({{"TUTTI_LOCAL_RANK", "8"}, {"TUTTI_LOCAL_SIZE", "9"}}, &all);
  CHECK(found(all) == std::pair{8, 9});
}

// Only MPI_Init sets them in the process that reads them; tests/unit/join/nested_launchers.sh has those of mpirun.
TEST_CASE("local rank: variables of PMIx that this process has set do not count") {
  const Variables by_mpi_init = {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  CHECK(refuses(by_mpi_init, "no launcher says"));
  CHECK(detect_local_rank(LocalRank{1, 3})->ranks == 3);
  CHECK(found({by_mpi_init[0], by_mpi_init[1], {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "3"}}) == std::pair{2, 3});
  // Unless the user selects the launcher.
  ::setenv("TUTTI_LAUNCHER", "pmix", 1);
  CHECK(found(by_mpi_init) == std::pair{0, 1});
  ::unsetenv("TUTTI_LAUNCHER");
}

TEST_CASE("errors name missing and unusable variables") {
  CHECK(refuses({}, "Set TUTTI_LOCAL_RANK, from 0 on, and TUTTI_LOCAL_SIZE"));
  CHECK(detect_local_rank(LocalRank{1, 3})->ranks == 3);
  CHECK(refuses({{"TUTTI_LOCAL_RANK", "0"}}, "TUTTI_LOCAL_SIZE=\"\""));
  CHECK(refuses({{"TUTTI_LOCAL_SIZE", "2"}}, "TUTTI_LOCAL_RANK=\"\""));
  CHECK(refuses({{"TUTTI_LOCAL_RANK", "2"}, {"TUTTI_LOCAL_SIZE", "2"}}, "TUTTI_LOCAL_RANK=\"2\" is not usable"));
  CHECK_FALSE(detect_local_rank(LocalRank{1, 3}).is_ok());
  CHECK(refuses({{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "none"}}, "LOCAL_WORLD_SIZE=\"none\""));
  // A batch script, not a step.
  const Variables batch = {{"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "0"}, {"SLURM_TASKS_PER_NODE", "2"}};
  CHECK(refuses(batch, "no launcher says"));
  Variables step = batch;
  step.emplace_back("SLURM_STEP_ID", "0");
  CHECK(found(step) == std::pair{0, 2});
  step.emplace_back("SLURM_STEP_TASKS_PER_NODE", "two");
  CHECK(refuses(step, "SLURM_STEP_TASKS_PER_NODE=\"two\""));
}

TEST_CASE("Slurm's lists of tasks") {
  CHECK(slurm_tasks_on("4", 0) == 4);
  CHECK(slurm_tasks_on("2(x3),1", 0) == 2);
  CHECK(slurm_tasks_on("2(x3),1", 2) == 2);
  CHECK(slurm_tasks_on("2(x3),1", 3) == 1);
  CHECK(slurm_tasks_on("2(x3),1", 4) == 0);
  CHECK(slurm_tasks_on("1,72(x2),3", 2) == 72);
  for (const char* list : {"", ",", "x", "2(x", "2(x)", "2(x3", "2(x0)", "0", "-1", "2x3", "2(3)", "(x2)"}) {
    INFO(list);
    CHECK(slurm_tasks_on(list, 0) == 0);
  }
  CHECK(slurm_tasks_on("4", -1) == 0);
}
