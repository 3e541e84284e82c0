// Started by a launcher: finds its job, joins it, gathers, leaves. With "mpi" (when built with MPI), MPI_Init comes
// afterwards, to check that the launcher's connection still works; with "alone" it comes first, in processes that no
// MPI launcher started, each of which is a separate job for MPI. "linger" makes rank 0 outlive the others.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "join/launch/environment.h"
#include "join/launch/local_rank.h"

#ifdef TUTTI_TEST_WITH_MPI
#include <mpi.h>
#endif

using namespace tutti::internal;

namespace {

int fail(const char* what, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.message().c_str());
  return 1;
}

Result<Job> join_any(const LaunchedJob& found, const Settings& settings, Deadline deadline) {
  if (const auto* root = std::get_if<KnownRoot>(&found.root)) {
    return join(*root, found.rank, found.ranks, settings, deadline);
  }
  return join(std::get<UniqueIdBytes>(found.root), found.rank, found.ranks, settings, deadline);
}

int join_and_leave(LaunchedJob* found) {
  Result<Settings> given = settings_from_environment();
  if (!given.is_ok()) return fail("settings_from_environment", given.status());
  Settings settings = *given;
  settings.interface = "lo";
  const Deadline deadline = Deadline::after_ms(60'000);
  Result<LaunchedJob> detected = detect_job(settings, deadline);
  if (!detected.is_ok()) return fail("detect_job", detected.status());
  *found = *detected;
  // All ranks are on this machine.
  Result<LocalRank> local = detect_local_rank();
  if (!local.is_ok()) return fail("detect_local_rank", local.status());
  if (local->rank != found->rank || local->ranks != found->ranks) {
    return fail("detect_local_rank", Status::internal("it differs from the rank"));
  }
  Result<Job> job = join_any(*found, settings, deadline);
  if (!job.is_ok()) return fail("join", job.status());
  if (found->ranks == 1) return job->tree == nullptr ? 0 : fail("join", Status::internal("a tree for one rank"));
  Result<std::vector<std::string>> all = job->tree->all_gather(std::to_string(found->rank), deadline);
  if (!all.is_ok()) return fail("all_gather", all.status());
  for (int rank = 0; rank < found->ranks; ++rank) {
    if (all.value()[static_cast<std::size_t>(rank)] != std::to_string(rank)) {
      return fail("all_gather", Status::internal("a wrong part"));
    }
  }
  auto failure = std::make_shared<FailureState>();
  if (Status s = job->tree->watch(failure, {}); !s.is_ok()) return fail("watch", s);
  job->tree->leave();
  return failure->failed() ? fail("leave", failure->status()) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  LaunchedJob found;
  [[maybe_unused]] const bool alone = argc > 1 && std::strcmp(argv[1], "alone") == 0;
#ifdef TUTTI_TEST_WITH_MPI
  if (alone) MPI_Init(&argc, &argv);
#endif
  // Twice: a process may make several communicators from its environment.
  for (int round = 0; round < 2; ++round) {
    if (const int error = join_and_leave(&found); error != 0) return error;
  }
#ifdef TUTTI_TEST_WITH_MPI
  int mpi_rank = -1;
  if (!alone) MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  if (mpi_rank != (alone ? 0 : found.rank)) return fail("MPI", Status::internal("the ranks differ"));
#endif
  if (argc > 1 && std::strcmp(argv[1], "linger") == 0 && found.rank == 0) ::sleep(1);
  std::printf("joined as %d of %d by %s\n", found.rank, found.ranks, found.launcher.c_str());
  return 0;
}
