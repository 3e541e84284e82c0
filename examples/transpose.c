/* The ranks hold a square matrix by rows, kRows each, and transpose it with one all-to-all. Start it under mpirun, srun
 * or torchrun, or with TUTTI_RANK, TUTTI_WORLD_SIZE and TUTTI_ROOT set. */
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>

enum { kRows = 3 };

/* The matrix's element at a row and a column. */
static int element(int row, int column) {
  return 1000 * row + column;
}

/* For each rank the block of this rank's rows and that rank's columns, column by column: so it arrives as rows. */
static void fill(int* send, int rank, int ranks) {
  for (int to = 0; to < ranks; ++to) {
    for (int column = 0; column < kRows; ++column) {
      for (int row = 0; row < kRows; ++row) {
        *send++ = element(rank * kRows + row, to * kRows + column);
      }
    }
  }
}

/* Of what has arrived, block `from` holds columns from * kRows .. of this rank's rows of the transposed matrix. Returns
 * how many elements are wrong. */
static int count_wrong(const int* recv, int rank, int ranks) {
  int wrong = 0;
  for (int from = 0; from < ranks; ++from) {
    for (int row = 0; row < kRows; ++row) {
      for (int column = 0; column < kRows; ++column) {
        wrong += *recv++ != element(from * kRows + column, rank * kRows + row);
      }
    }
  }
  return wrong;
}

/* Transposes; elements of this rank's that are wrong, or -1. */
static int run(tuttiComm_t comm, int rank, int ranks) {
  const size_t block = (size_t)kRows * kRows;
  int* send = malloc((size_t)ranks * block * sizeof *send);
  int* recv = malloc((size_t)ranks * block * sizeof *recv);
  int wrong = -1;
  if (send != NULL && recv != NULL) {
    fill(send, rank, ranks);
    if (tuttiAlltoAll(send, recv, block, tuttiInt32, comm, NULL) == tuttiSuccess) {
      wrong = count_wrong(recv, rank, ranks);
    } else {
      fprintf(stderr, "rank %d: %s\n", rank, tuttiGetLastError(comm));
    }
  }
  free(send);
  free(recv);
  return wrong;
}

int main(void) {
  tuttiComm_t comm = NULL;
  int rank = 0;
  int ranks = 0;
  int wrong = 0;
  if (tuttiCommInitEnv(&comm, NULL) != tuttiSuccess) {
    fprintf(stderr, "%s\n", tuttiGetLastError(NULL));
    return 1;
  }
  tuttiCommUserRank(comm, &rank);
  tuttiCommCount(comm, &ranks);
  wrong = run(comm, rank, ranks);
  if (wrong < 0) {
    tuttiCommAbort(comm);
    return 1;
  }
  printf("rank %d of %d: rows %d to %d transposed, %d wrong\n", rank, ranks, rank * kRows, rank * kRows + kRows - 1,
         wrong);
  return tuttiCommDestroy(comm) == tuttiSuccess && wrong == 0 ? 0 : 1;
}
