/* The measuring loop and the protocol that every worker of perf/compare shares, so that all libraries
 * are timed by the same code. C99 and C++.
 *
 * A worker is one rank of one library, kept alive for the whole comparison. It connects to the
 * controller's Unix socket and blocks in read() between commands, so that the ranks of the libraries
 * that are not being measured leave the cores alone. Commands and answers are lines:
 *
 *   worker:      hello RANK SIZE NAME VERSION
 *   controller:  run COLLECTIVE BYTES WARMUP ITERATIONS MEMORY SKEW
 *   worker:      time NANOSECONDS MOVED | unsupported | wrong INDEX GOT EXPECTED | error TEXT
 *   controller:  quit
 *
 * BYTES is the larger of a rank's buffers, as in nccl-tests; the data are floats, the operator is sum,
 * the root is 0. SKEW is that of blocks with counts of their own (skew.h). NANOSECONDS is the mean of one operation on
 * this rank, of a ping-pong one way. MOVED is how many bytes this rank has to send or to receive, whichever is more,
 * where blocks have counts of their own, else 0. Results are checked after the clock has stopped. */
#ifndef PERF_COMPARE_WORKER_H_
#define PERF_COMPARE_WORKER_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "perf/harness/skew.h"

enum compare_collective {
  kCompareAllReduce,
  kCompareReduceScatter,
  kCompareAllGather,
  kCompareBroadcast,
  kCompareReduce,
  kCompareBarrier,
  kCompareGather,
  kCompareScatter,
  kCompareAllToAll,
  kCompareScan,
  kCompareExscan,
  kCompareAllGatherV,
  kCompareReduceScatterV,
  kCompareGatherV,
  kCompareScatterV,
  kCompareAllToAllV,
  kCompareSendRecv, /* each rank sends to the next one while it receives from the one before */
  kComparePingPong, /* of two ranks, the first sends and then receives, the other receives and then sends */
  kCompareCollectives
};

enum { kCompareMaxRanks = 1024 };

/* One operation, bound to its buffers. */
struct compare_call {
  enum compare_collective collective;
  const float* send; /* broadcast and in-place libraries: equal to recv */
  float* recv;
  size_t count; /* elements as the collective counts them: of one rank's block, or the mean of unequal blocks */
  /* For collectives with blocks: the elements of each block of this rank's contiguous vector, and their offsets. */
  const size_t* counts;
  const size_t* begins;
};

/* The functions of a library. They return 0, or a negative number for "this library cannot". */
struct compare_library {
  const char* name;
  const char* version;
  int rank;
  int size;
  void* state;
  /* Zero-filled or not, at least page aligned. `kind` is "malloc" or a kind only this library knows. */
  float* (*allocate)(void* state, const char* kind, size_t bytes);
  void (*release)(void* state, const char* kind, float* memory);
  /* Called once before a run of calls with the same argument. */
  int (*prepare)(void* state, const struct compare_call* call);
  int (*perform)(void* state, const struct compare_call* call);
};

static int64_t compare_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + (int64_t)now.tv_nsec;
}

static float* compare_malloc(void* state, const char* kind, size_t bytes) {
  void* memory = NULL;
  (void)state;
  if (strcmp(kind, "malloc") != 0 || posix_memalign(&memory, 4096, bytes) != 0) return NULL;
  return (float*)memory;
}

static void compare_free(void* state, const char* kind, float* memory) {
  (void)state;
  (void)kind;
  free(memory);
}

static int compare_collective_from(const char* name) {
  static const char* const kNames[kCompareCollectives] = {
      "all_reduce",       "reduce_scatter", "all_gather", "broadcast",  "reduce",   "barrier",
      "gather",           "scatter",        "alltoall",   "scan",       "exscan",   "all_gather_v",
      "reduce_scatter_v", "gather_v",       "scatter_v",  "alltoall_v", "sendrecv", "ping_pong"};
  int i;
  for (i = 0; i < kCompareCollectives; ++i) {
    if (strcmp(name, kNames[i]) == 0) return i;
  }
  return -1;
}

/* Small integers, so that sums of floats are exact in every order. */
static float compare_value(int rank, size_t index) {
  return (float)(rank + 1 + (int)(index % 13));
}

/* The values of the first `ranks` ranks at an index, added. */
static float compare_sum(int ranks, size_t index) {
  return (float)(ranks * (int)(index % 13) + ranks * (ranks + 1) / 2); /* NOLINT: ranks * (ranks + 1) is even */
}

/* Whether blocks have counts of their own. */
static int compare_varies(enum compare_collective collective) {
  return collective >= kCompareAllGatherV && collective <= kCompareAllToAllV;
}

/* Whether the collective's vector has a block for each rank: then `count` is a block's. */
static int compare_has_blocks(enum compare_collective collective) {
  switch (collective) {
    case kCompareReduceScatter:
    case kCompareAllGather:
    case kCompareGather:
    case kCompareScatter:
    case kCompareAllToAll: return 1;
    default: return compare_varies(collective);
  }
}

/* In an all-to-all with counts of their own, block j of rank r is as large as block (r + j) mod ranks otherwise is, so
 * that ranks send each other as much. `first`: which block is the first; counts[0 .. ranks-1] are in sum all elements.
 */
static void compare_lay_blocks(const struct compare_library* library, const struct compare_call* call, double skew,
                               int first, size_t* counts, size_t* begins) {
  size_t even[kCompareMaxRanks];
  size_t begin = 0;
  int block;
  skewed_counts(skew, library->size, call->count * (size_t)library->size, even);
  for (block = 0; block < library->size; ++block) {
    counts[block] = even[(first + block) % library->size];
    begins[block] = begin;
    begin += counts[block];
  }
}

/* The offset, in the vector of rank `from`, of the block that this rank gets in an all-to-all. Blocks are symmetric:
 * this rank sends as many elements to `from`. */
static size_t compare_sent_from(const struct compare_library* library, const struct compare_call* call, int from) {
  size_t begin = 0;
  int block;
  if (call->collective == kCompareAllToAll) return (size_t)library->rank * call->count;
  for (block = 0; block < library->rank; ++block) {
    /* Block `block` of rank `from` is as large as block (from + block - rank) of this one. */
    begin += call->counts[(from + block - library->rank + library->size) % library->size];
  }
  return begin;
}

/* Of an element of a vector of blocks. */
static float compare_expected_of_block(const struct compare_library* library, const struct compare_call* call,
                                       size_t i) {
  const int permutes = call->collective == kCompareAllToAll || call->collective == kCompareAllToAllV;
  int from = library->size - 1;
  while (from > 0 && call->begins[from] > i) --from;
  i -= call->begins[from];
  return compare_value(from, permutes ? compare_sent_from(library, call, from) + i : i);
}

static float compare_expected(const struct compare_library* library, const struct compare_call* call, size_t i) {
  switch (call->collective) {
    case kCompareAllGather:
    case kCompareAllGatherV:
    case kCompareGather:
    case kCompareGatherV:
    case kCompareAllToAll:
    case kCompareAllToAllV: return compare_expected_of_block(library, call, i);
    case kCompareBroadcast: return compare_value(0, i);
    case kCompareScatter:
    case kCompareScatterV: return compare_value(0, call->begins[library->rank] + i);
    case kCompareReduceScatter:
    case kCompareReduceScatterV: return compare_sum(library->size, call->begins[library->rank] + i);
    case kCompareScan: return compare_sum(library->rank + 1, i);
    case kCompareExscan: return compare_sum(library->rank, i);
    case kCompareSendRecv:
    case kComparePingPong: return compare_value((library->rank + library->size - 1) % library->size, i);
    default: return compare_sum(library->size, i);
  }
}

/* Elements that the collective leaves in this rank's recv. */
static size_t compare_received(const struct compare_library* library, const struct compare_call* call) {
  const size_t vector = call->count * (size_t)library->size;
  switch (call->collective) {
    case kCompareBarrier: return 0;
    case kCompareReduce: return library->rank == 0 ? call->count : 0;
    case kCompareExscan: return library->rank != 0 ? call->count : 0;
    case kCompareGather:
    case kCompareGatherV: return library->rank == 0 ? vector : 0;
    case kCompareAllGather:
    case kCompareAllGatherV:
    case kCompareAllToAll:
    case kCompareAllToAllV: return vector;
    case kCompareReduceScatterV:
    case kCompareScatterV: return call->counts[library->rank];
    default: return call->count;
  }
}

/* Of blocks with counts of their own: what this rank has to send or to receive, in bytes. */
static size_t compare_moved(const struct compare_library* library, const struct compare_call* call) {
  const int rooted = call->collective == kCompareGatherV || call->collective == kCompareScatterV;
  size_t own;
  if (!compare_varies(call->collective)) return 0;
  own = call->counts[library->rank];
  return (rooted && library->rank != 0 ? own : call->count * (size_t)library->size - own) * sizeof(float);
}

static void compare_answer(int fd, const char* text) {
  const size_t length = strlen(text);
  if (write(fd, text, length) != (ssize_t)length) exit(1);
}

static void compare_check_and_answer(int fd, const struct compare_library* library, const struct compare_call* call,
                                     double ns_per_call) {
  const size_t received = compare_received(library, call);
  char answer[160];
  size_t i;
  for (i = 0; i < received; ++i) {
    const float expected = compare_expected(library, call, i);
    if (call->recv[i] != expected) {
      snprintf(answer, sizeof answer, "wrong %zu %g %g\n", i, (double)call->recv[i], (double)expected);
      compare_answer(fd, answer);
      return;
    }
  }
  snprintf(answer, sizeof answer, "time %.3f %zu\n", ns_per_call, compare_moved(library, call));
  compare_answer(fd, answer);
}

static void compare_time(int fd, const struct compare_library* library, const struct compare_call* call, long warmup,
                         long iterations) {
  int64_t begin_ns;
  double ns;
  long i;
  if (library->prepare != NULL && library->prepare(library->state, call) != 0) {
    compare_answer(fd, "unsupported\n");
    return;
  }
  for (i = 0; i < warmup; ++i) {
    if (library->perform(library->state, call) != 0) {
      compare_answer(fd, i == 0 ? "unsupported\n" : "error the operation failed\n");
      return;
    }
  }
  begin_ns = compare_now_ns();
  for (i = 0; i < iterations; ++i) {
    if (library->perform(library->state, call) != 0) {
      compare_answer(fd, "error the operation failed\n");
      return;
    }
  }
  ns = (double)(compare_now_ns() - begin_ns) / (double)iterations;
  compare_check_and_answer(fd, library, call, call->collective == kComparePingPong ? ns / 2 : ns);
}

/* The buffers of the last run, kept: fresh pages in every run would be timed as page faults. */
struct compare_buffers {
  char kind[16];
  size_t bytes;
  float* send;
  float* recv;
};

static int compare_reserve(const struct compare_library* library, struct compare_buffers* buffers, const char* kind,
                           size_t bytes) {
  if (buffers->send != NULL && strcmp(buffers->kind, kind) == 0 && buffers->bytes >= bytes) return 0;
  if (buffers->send != NULL) library->release(library->state, buffers->kind, buffers->send);
  if (buffers->recv != NULL) library->release(library->state, buffers->kind, buffers->recv);
  buffers->bytes = bytes < 4096 ? 4096 : bytes;
  snprintf(buffers->kind, sizeof buffers->kind, "%s", kind);
  buffers->send = library->allocate(library->state, kind, buffers->bytes);
  buffers->recv = library->allocate(library->state, kind, buffers->bytes);
  return buffers->send != NULL && buffers->recv != NULL ? 0 : -1;
}

static void compare_run(int fd, const struct compare_library* library, struct compare_buffers* buffers,
                        const char* arguments) {
  char name[32];
  char kind[16];
  size_t bytes;
  size_t i;
  long warmup;
  long iterations;
  double skew;
  struct compare_call call;
  int collective;
  size_t elements;
  size_t counts[kCompareMaxRanks];
  size_t begins[kCompareMaxRanks];
  if (sscanf(arguments, "%31s %zu %ld %ld %15s %lf", name, &bytes, &warmup, &iterations, kind, &skew) != 6 ||
      iterations < 1 || !(skew >= 1 && skew <= library->size)) {
    compare_answer(fd, "error unreadable command\n");
    return;
  }
  collective = compare_collective_from(name);
  if (collective < 0 || library->size > kCompareMaxRanks) {
    compare_answer(fd, "unsupported\n");
    return;
  }
  if (compare_reserve(library, buffers, kind, bytes) != 0) {
    compare_answer(fd, "error no memory of this kind\n");
    return;
  }
  call.collective = (enum compare_collective)collective;
  call.send = call.collective == kCompareBroadcast ? buffers->recv : buffers->send;
  call.recv = buffers->recv;
  elements = bytes / sizeof(float);
  call.count = elements;
  call.counts = counts;
  call.begins = begins;
  if (compare_has_blocks(call.collective)) {
    const int permutes = call.collective == kCompareAllToAllV;
    call.count /= (size_t)library->size;
    compare_lay_blocks(library, &call, compare_varies(call.collective) ? skew : 1, permutes ? library->rank : 0, counts,
                       begins);
  }
  for (i = 0; i < elements; ++i) buffers->send[i] = compare_value(library->rank, i);
  for (i = 0; i < elements; ++i) {
    buffers->recv[i] = call.collective == kCompareBroadcast && library->rank == 0 ? compare_value(0, i) : -1.0F;
  }
  compare_time(fd, library, &call, warmup, iterations);
}

static int compare_connect(const char* path) {
  struct sockaddr_un address;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  if (connect(fd, (const struct sockaddr*)&address, sizeof address) == 0) return fd;
  close(fd);
  return -1;
}

/* Serves the controller until it says quit or goes away. Returns the process's exit status. */
static int compare_serve(const char* path, const struct compare_library* library) {
  struct compare_buffers buffers = {{0}, 0, NULL, NULL};
  char line[256];
  FILE* commands;
  const int fd = compare_connect(path);
  if (fd < 0) {
    fprintf(stderr, "%s: no controller listens on %s\n", library->name, path);
    return 1;
  }
  snprintf(line, sizeof line, "hello %d %d %s %s\n", library->rank, library->size, library->name, library->version);
  compare_answer(fd, line);
  commands = fdopen(fd, "r");
  if (commands == NULL) return 1;
  while (fgets(line, sizeof line, commands) != NULL && strncmp(line, "run ", 4) == 0) {
    compare_run(fd, library, &buffers, line + 4);
  }
  if (buffers.send != NULL) library->release(library->state, buffers.kind, buffers.send);
  if (buffers.recv != NULL) library->release(library->state, buffers.kind, buffers.recv);
  fclose(commands);
  return 0;
}

#endif /* PERF_COMPARE_WORKER_H_ */
