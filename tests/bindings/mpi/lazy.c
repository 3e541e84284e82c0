/* Communicators whose first two collectives go to the MPI library (TUTTI_MPI_AFTER=2): all ranks must change to
 * tutti at the same call, and a communicator with few calls must cost nothing. meson.build has the number of calls
 * that tutti takes. */
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "extension.h"

static int rank, ranks, wrong;

static void expect(int holds, const char* what) {
  if (!holds && ++wrong < 20) fprintf(stderr, "rank %d: %s\n", rank, what);
}

static void sum(MPI_Comm comm, const char* what) {
  int mine = 1;
  int size = 0;
  int all = 0;
  MPI_Comm_size(comm, &size);
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comm);
  expect(all == size, what);
}

static void later_sum(MPI_Comm comm, const char* what) {
  int mine = 1;
  int size = 0;
  int all = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm_size(comm, &size);
  MPI_Iallreduce(&mine, &all, 1, MPI_INT, MPI_SUM, comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  expect(all == size, what);
}

static int open_files(void) {
  int files = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != NULL) ++files;
  closedir(folder);
  return files;
}

/* Taken: 2 MPI_Allreduce and 1 MPI_Iallreduce of each rank. */
static void one_after_the_other(void) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  sum(comm, "the first call");
  later_sum(comm, "the second call, which does not block");
  later_sum(comm, "the third, which must not wait for a communicator of tutti to be made");
  sum(comm, "the call that makes it");
  later_sum(comm, "a nonblocking call after it");
  sum(comm, "a blocking call after it");
  MPI_Comm_free(&comm);
}

/* More calls follow, so it is made at once. Taken: 3 MPI_Iallreduce of each rank. */
static void persistent(void) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  int all = 0;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  PERSISTENT(Allreduce)(&rank, &all, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
  MPI_Comm_free(&comm);
  for (int time = 0; time < 3; ++time) {
    all = 0;
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(all == ranks * (ranks - 1) / 2, "a persistent call");
  }
  MPI_Request_free(&request);
}

/* A nonblocking call of the MPI library is in flight when tutti's communicator is made. Taken: 1 MPI_Allreduce. */
static void beside_one_of_the_library(void) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request requests[2];
  int all[2] = {0, 0};
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int at = 0; at < 2; ++at) MPI_Iallreduce(&rank, &all[at], 1, MPI_INT, MPI_SUM, comm, &requests[at]);
  sum(comm, "beside calls of the MPI library");
  for (int at = 0; at < 2; ++at) MPI_Wait(&requests[at], MPI_STATUS_IGNORE);
  expect(all[0] == ranks * (ranks - 1) / 2 && all[1] == all[0], "calls of the MPI library");
  MPI_Comm_free(&comm);
}

/* Communicators of the same ranks, alternately, and of some ranks. Taken: 4 MPI_Allreduce of each rank. */
static void several(void) {
  MPI_Comm comms[2];
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
  MPI_Comm_split(MPI_COMM_WORLD, rank / 2, -rank, &comms[1]);
  for (int time = 0; time < 4; ++time) {
    sum(comms[0], "of all");
    sum(comms[1], "of two");
  }
  MPI_Comm_free(&comms[0]);
  MPI_Comm_free(&comms[1]);
}

static void short_lived(void) {
  enum { kTimes = 100 };
  MPI_Comm comms[kTimes];
  const int before = open_files();
  for (int at = 0; at < kTimes; ++at) {
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[at]);
    sum(comms[at], "of a communicator that is freed soon");
  }
  expect(open_files() == before, "communicators of few calls hold files open");
  for (int at = 0; at < kTimes; ++at) MPI_Comm_free(&comms[at]);
}

/* The ranks use the communicators in different orders, and leave their end to MPI_Finalize. Taken: 2 times 8
 * MPI_Allreduce of each rank. */
static void met_in_different_orders(void) {
  enum { kComms = 8 };
  MPI_Comm comms[kComms];
  MPI_Request requests[kComms];
  int all[kComms];
  for (int at = 0; at < kComms; ++at) MPI_Comm_dup(MPI_COMM_WORLD, &comms[at]);
  for (int at = 0; at < kComms; ++at) {
    const int met = rank % 2 == 0 ? at : kComms - 1 - at;
    MPI_Iallreduce(&rank, &all[met], 1, MPI_INT, MPI_SUM, comms[met], &requests[met]);
  }
  for (int at = 0; at < kComms; ++at) MPI_Wait(&requests[at], MPI_STATUS_IGNORE);
  for (int at = 0; at < kComms; ++at) expect(all[at] == ranks * (ranks - 1) / 2, "a call that meets a communicator");
  for (int time = 0; time < 3; ++time) {
    for (int at = 0; at < kComms; ++at) sum(comms[at], "of a communicator that others met at another time");
  }
}

static void three_sums(MPI_Comm comm, const char* what) {
  for (int time = 0; time < 3; ++time) sum(comm, what);
  MPI_Comm_free(&comm);
}

/* Made in every way. Taken: 3 MPI_Allreduce of each of 2 ranks; of 4 ranks 4, and of two of them 5. */
static void of_every_origin(void) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  const int low = rank < ranks / 2;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2 == 0 ? 0 : MPI_UNDEFINED, 0, &comm);
  if (comm != MPI_COMM_NULL) three_sums(comm, "of some, and none for the others");
  MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  three_sums(comm, "of MPI_Comm_idup");
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  MPI_Comm_create_group(MPI_COMM_WORLD, group, 1, &comm);
  MPI_Group_free(&group);
  three_sums(comm, "of MPI_Comm_create_group");
  MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? ranks / 2 : 0, 2, &between);
  MPI_Intercomm_merge(between, low, &comm);
  three_sums(comm, "of MPI_Intercomm_merge");
  MPI_Comm_free(&between);
  three_sums(half, "of a half");
}

/* One rank may open fewer files than tutti may need: when the ones left by tutti's earlier communicators are used
 * up, all ranks continue with the MPI library. */
static void refused(void) {
  enum { kComms = 30 };
  MPI_Comm comms[kComms];
  const struct rlimit few = {64, 64};
  if (rank == ranks - 1) setrlimit(RLIMIT_NOFILE, &few);
  for (int at = 0; at < kComms; ++at) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[at]);
    for (int time = 0; time < 6; ++time) sum(comms[at], "where a rank may open few files");
  }
  for (int at = 0; at < kComms; ++at) MPI_Comm_free(&comms[at]);
}

/* The ranks have to take the largest number. */
static void set_another_number(void) {
  const char* own = getenv("PMI_RANK") != NULL ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");
  if (own == NULL || atoi(own) == 0) setenv("TUTTI_MPI_AFTER", "0", 1);
}

int main(int argc, char** argv) {
  int all_wrong = 0;
  if (argc > 1) set_another_number();
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  one_after_the_other();
  persistent();
  beside_one_of_the_library();
  several();
  short_lived();
  met_in_different_orders();
  of_every_origin();
  refused();
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
