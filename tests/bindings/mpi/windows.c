/* One-sided communication with ranks that wait in collectives. */
#include <mpi.h>
#include <stdio.h>

enum { kRounds = 200 };

static int rank, ranks, wrong;

static void expect(int holds, const char* what) {
  if (!holds && ++wrong < 20) fprintf(stderr, "rank %d: %s\n", rank, what);
}

/* Rank 0 is in a collective while the others access its memory, which they may lock one after the other. */
static void passive(MPI_Win win, int all) {
  const int one = 1;
  int old = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  for (int round = 0; rank > 0 && round < kRounds; ++round) {
    if (all) {
      MPI_Win_lock_all(0, win);
      MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 0, MPI_SUM, win);
      MPI_Win_flush(0, win);
      MPI_Put(&round, 1, MPI_INT, 0, rank, 1, MPI_INT, win);
      MPI_Win_unlock_all(win);
    } else {
      MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
      MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win);
      MPI_Put(&round, 1, MPI_INT, 0, rank, 1, MPI_INT, win);
      MPI_Win_unlock(0, win);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

static void expect_accesses(MPI_Win win, int* memory, int times) {
  if (rank == 0) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    expect(memory[0] == times * (ranks - 1) * kRounds, "what others have accumulated");
    for (int other = 1; other < ranks; ++other) expect(memory[other] == kRounds - 1, "what others have put");
    MPI_Win_unlock(0, win);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/* After a collective the end of an access is visible at once, as with the MPI library. */
static void active(MPI_Win win) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group some = MPI_GROUP_NULL;
  const int zero = 0;
  int flag = -1;
  MPI_Win_get_group(win, &all);
  if (rank == 0) {
    MPI_Group_excl(all, 1, &zero, &some);
    MPI_Win_start(some, 0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int other = 1; other < ranks; ++other) MPI_Put(&other, 1, MPI_INT, other, 0, 1, MPI_INT, win);
    MPI_Win_complete(win);
    MPI_Barrier(MPI_COMM_WORLD);
  } else {
    MPI_Group_incl(all, 1, &zero, &some);
    MPI_Win_post(some, 0, win);
    MPI_Win_test(win, &flag);
    expect(flag == 0, "the access has not been");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_test(win, &flag);
    expect(flag == 1, "the access has ended");
    if (flag == 0) MPI_Win_wait(win);
  }
  MPI_Group_free(&some);
  MPI_Group_free(&all);
}

int main(int argc, char** argv) {
  enum { kMost = 16 };
  int memory[kMost] = {0};
  int* allocated = NULL;
  MPI_Win win = MPI_WIN_NULL;
  int all_wrong = 0;
  double begin = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  begin = MPI_Wtime();
  MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
  passive(win, 0);
  passive(win, 1);
  expect_accesses(win, memory, 2);
  for (int time = 0; time < 20; ++time) active(win);
  MPI_Win_free(&win);
  MPI_Win_allocate(sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &allocated, &win);
  for (int at = 0; at < kMost; ++at) allocated[at] = 0;
  passive(win, 1);
  passive(win, 0);
  expect_accesses(win, allocated, 2);
  MPI_Win_free(&win);
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d wrong, %.3f s\n", all_wrong, MPI_Wtime() - begin);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
