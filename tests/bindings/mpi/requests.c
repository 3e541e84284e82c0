/* Nonblocking collectives beside sends and receives, completed by every call that completes requests; large sends
 * that arrive only if their sender progresses while it is in a collective. */
#include <dirent.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCount = 20000, kLarge = 4 << 20, kRequests = 7 };

static int rank, ranks, wrong;

static void expect(int holds, const char* what) {
  if (!holds && ++wrong < 20) fprintf(stderr, "rank %d: %s\n", rank, what);
}

/* Completes all, in the way of `how`. */
static void complete(int how, int count, MPI_Request* requests) {
  MPI_Status statuses[kRequests];
  int indices[kRequests];
  int flag = 0;
  int index = 0;
  int done = 0;
  switch (how % 7) {
    case 0: MPI_Waitall(count, requests, statuses); break;
    case 1:
      for (int at = count - 1; at >= 0; --at) MPI_Wait(&requests[at], &statuses[at]);
      break;
    case 2:
      for (int at = 0; at < count; ++at) {
        do MPI_Request_get_status(requests[at], &flag, MPI_STATUS_IGNORE);
        while (!flag);
        flag = 0;
        while (!flag) MPI_Test(&requests[at], &flag, MPI_STATUS_IGNORE);
      }
      break;
    case 3:
      for (int at = 0; at < count; ++at) MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
      break;
    case 4:
      for (int all = 0; all < count; all += done) MPI_Waitsome(count, requests, &done, indices, statuses);
      break;
    case 5:
      while (!flag) MPI_Testall(count, requests, &flag, statuses);
      break;
    default:
      for (int all = 0; all < count;) {
        MPI_Testany(count, requests, &index, &flag, MPI_STATUS_IGNORE);
        if (flag && index != MPI_UNDEFINED) ++all;
        MPI_Testsome(count, requests, &done, indices, statuses);
        if (done != MPI_UNDEFINED) all += done;
        if (index == MPI_UNDEFINED && flag) break;
      }
      break;
  }
  for (int at = 0; at < count; ++at) expect(requests[at] == MPI_REQUEST_NULL, "a request is left");
}

static void mix(MPI_Comm comm, int how) {
  static int mine[kCount], sum[kCount], all[8 * kCount], from_left[kCount], strided[3 * kCount];
  MPI_Request requests[kRequests];
  MPI_Datatype every_third = MPI_DATATYPE_NULL;
  const int right = (rank + 1) % ranks;
  const int left = (rank + ranks - 1) % ranks;
  const int root = how % ranks;
  double scanned = 0;
  double one = 1;
  for (int at = 0; at < kCount; ++at) mine[at] = rank + at % 10;
  memset(strided, 0, sizeof strided);
  for (int at = 0; at < 3 * kCount; ++at) strided[at] = rank == root ? at : -1;
  MPI_Type_vector(kCount, 1, 3, MPI_INT, &every_third);
  MPI_Type_commit(&every_third);
  MPI_Irecv(from_left, kCount, MPI_INT, left, 1, comm, &requests[0]);
  MPI_Iallreduce(mine, sum, kCount, MPI_INT, MPI_SUM, comm, &requests[1]);
  MPI_Iallgather(mine, kCount, MPI_INT, all, kCount, MPI_INT, comm, &requests[2]);
  MPI_Ibcast(strided, 1, every_third, root, comm, &requests[3]);
  MPI_Type_free(&every_third);
  MPI_Isend(mine, kCount, MPI_INT, right, 1, comm, &requests[4]);
  MPI_Iscan(&one, &scanned, 1, MPI_DOUBLE, MPI_SUM, comm, &requests[5]);
  MPI_Ibarrier(comm, &requests[6]);
  complete(how, kRequests, requests);
  for (int at = 0; at < kCount; ++at) {
    expect(sum[at] == ranks * (ranks - 1) / 2 + ranks * (at % 10), "iallreduce");
    expect(from_left[at] == left + at % 10, "irecv");
    expect(all[left * kCount + at] == left + at % 10, "iallgather");
    expect(strided[3 * at] == 3 * at, "ibcast");
    expect(strided[3 * at + 1] == (rank == root ? 3 * at + 1 : -1), "ibcast has written into a hole");
  }
  expect(scanned == rank + 1, "iscan");
}

static int open_files(void) {
  int files = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != NULL) ++files;
  closedir(folder);
  return files;
}

/* Packing for many calls at the same time must not use all files that the process may open. */
static void many(MPI_Comm comm) {
  enum { kMany = 300, kPacked = 8192 };
  static int strided[2 * kPacked];
  static int received[kMany][2 * kPacked];
  static MPI_Request requests[kMany];
  static MPI_Status statuses[kMany];
  MPI_Datatype every_second = MPI_DATATYPE_NULL;
  const int before = open_files();
  MPI_Type_vector(kPacked, 1, 2, MPI_INT, &every_second);
  MPI_Type_commit(&every_second);
  for (int at = 0; at < 2 * kPacked; ++at) strided[at] = at;
  for (int call = 0; call < kMany; ++call) {
    MPI_Ibcast(rank == 0 ? strided : received[call], 1, every_second, 0, comm, &requests[call]);
  }
  expect(open_files() <= before + 100, "many calls that pack hold too many files open");
  MPI_Waitall(kMany, requests, statuses);
  for (int call = 0; rank > 0 && call < kMany; ++call) {
    expect(received[call][2 * kPacked - 2] == 2 * kPacked - 2, "one of many broadcasts");
  }
  MPI_Type_free(&every_second);
}

/* The receive is posted only when the sender is already in the collective. */
static void progress(MPI_Comm comm) {
  char* large = calloc(1, kLarge);
  int zero = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  if (ranks == 1) {
    free(large);
    return;
  }
  if (rank == 0) {
    memset(large, 7, kLarge);
    MPI_Isend(large, kLarge, MPI_CHAR, 1, 2, comm, &request);
  }
  if (rank == 1) MPI_Recv(large, kLarge, MPI_CHAR, 0, 2, comm, MPI_STATUS_IGNORE);
  MPI_Bcast(&zero, 1, MPI_INT, ranks - 1, comm);
  MPI_Barrier(comm);
  if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (rank == 1) expect(large[kLarge - 1] == 7, "a large message");
  free(large);
}

int main(int argc, char** argv) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  int all_wrong = 0;
  int flag = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  /* Before any blocking collective. */
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int how = 0; how < 14; ++how) {
    mix(comm, how);
    progress(how % 2 == 0 ? comm : MPI_COMM_WORLD);
  }
  many(comm);
  /* A communicator may be freed while a request of it is pending. */
  MPI_Ibarrier(comm, &request);
  MPI_Comm_free(&comm);
  while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%d wrong\n", all_wrong);
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}
