/* The public header in C99, and a job of one rank from end to end. */
#include <stdio.h>
#include <string.h>

#include "tutti/tutti.h"

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  ++failures;
  fprintf(stderr, "failed: %s (%s)\n", what, tuttiGetLastError(NULL));
}

static void one_rank(tuttiComm_t comm) {
  float send[3] = {1.0f, 2.0f, 3.0f};
  float recv[3] = {0.0f, 0.0f, 0.0f};
  int rank = -1;
  int count = -1;
  int device = 0;
  expect(tuttiCommUserRank(comm, &rank) == tuttiSuccess && rank == 0, "rank");
  expect(tuttiCommCount(comm, &count) == tuttiSuccess && count == 1, "count");
  expect(tuttiCommCuDevice(comm, &device) == tuttiSuccess && device == -1, "device");
  expect(tuttiAllReduce(send, recv, 3, tuttiFloat, tuttiAvg, comm, NULL) == tuttiSuccess, "all-reduce");
  expect(memcmp(send, recv, sizeof send) == 0, "all-reduce result");
  memset(recv, 0, sizeof recv);
  expect(tuttiAllGather(send, recv, 3, tuttiFloat32, comm, NULL) == tuttiSuccess, "all-gather");
  expect(memcmp(send, recv, sizeof send) == 0, "all-gather result");
  expect(tuttiReduceScatter(recv, recv, 3, tuttiFloat32, tuttiMax, comm, NULL) == tuttiSuccess, "reduce-scatter");
  expect(tuttiBroadcast(send, send, 3, tuttiFloat32, 0, comm, NULL) == tuttiSuccess, "broadcast");
  expect(tuttiReduce(send, send, 3, tuttiFloat32, tuttiProd, 0, comm, NULL) == tuttiSuccess, "reduce");
  expect(tuttiBarrier(comm, NULL) == tuttiSuccess, "barrier");
  expect(memcmp(send, recv, sizeof send) == 0, "in-place results");
}

static void with_config(void) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  tuttiUniqueId id;
  tuttiComm_t comm = NULL;
  config.timeout_ms = 5000;
  config.transports = "shm,tcp";
  config.CTAPolicy = TUTTI_CTA_POLICY_EFFICIENCY;
  expect(tuttiGetUniqueId(&id) == tuttiSuccess, "unique id");
  expect(tuttiCommInitRankConfig(&comm, 1, id, 0, &config) == tuttiSuccess, "init with settings");
  if (comm != NULL) one_rank(comm);
  expect(tuttiCommAbort(comm) == tuttiSuccess, "abort");
}

static void count(void* calls) {
  ++*(int*)calls;
}

/* Registered memory has a handle, which changes nothing and can be deregistered once. */
static void registration(tuttiComm_t comm, void* memory) {
  tuttiWindow_t window = NULL;
  tuttiWindow_t second = NULL;
  void* handle = NULL;
  expect(tuttiCommWindowRegister(comm, memory, 4096, &window, TUTTI_WIN_COLL_SYMMETRIC) == tuttiSuccess, "window");
  expect(tuttiCommWindowRegister(comm, memory, 16, &second, TUTTI_WIN_DEFAULT) == tuttiSuccess, "the same once more");
  expect(window != NULL && second != NULL && window != second, "windows have names of their own");
  expect(tuttiCommRegister(comm, memory, 4096, &handle) == tuttiSuccess && handle != NULL, "registration");
  expect(tuttiAllReduce(memory, memory, 4096, tuttiChar, tuttiSum, comm, NULL) == tuttiSuccess, "registered memory");
  expect(tuttiCommWindowDeregister(comm, window) == tuttiSuccess, "window's end");
  expect(tuttiCommWindowDeregister(comm, window) == tuttiInvalidArgument, "a window that has ended");
  expect(tuttiCommWindowDeregister(comm, (tuttiWindow_t)memory) == tuttiInvalidArgument, "no window");
  expect(tuttiCommWindowDeregister(comm, NULL) == tuttiSuccess, "NULL");
  expect(tuttiCommDeregister(comm, handle) == tuttiSuccess, "registration's end");
  expect(tuttiCommDeregister(comm, handle) == tuttiInvalidArgument, "a registration that has ended");
  expect(tuttiCommWindowRegister(comm, NULL, 16, &window, 0) == tuttiInvalidArgument, "no memory");
  expect(tuttiCommWindowRegister(comm, memory, 0, &window, 0) == tuttiInvalidArgument, "no bytes");
  expect(tuttiCommWindowRegister(comm, memory, SIZE_MAX, &window, 0) == tuttiInvalidArgument, "too many bytes");
  expect(tuttiCommWindowRegister(comm, memory, 16, NULL, 0) == tuttiInvalidArgument, "no result");
  expect(tuttiCommWindowRegister(comm, memory, 16, &window, 8) == tuttiInvalidArgument, "unknown flags");
  expect(tuttiCommWindowRegister(NULL, memory, 16, &window, 0) == tuttiInvalidArgument, "no communicator");
  expect(tuttiCommRegister(comm, memory, 16, NULL) == tuttiInvalidArgument, "no handle");
}

static void memory_and_streams(tuttiComm_t comm) {
  void* memory = NULL;
  tuttiStream_t stream = NULL;
  tuttiEvent_t event = NULL;
  int calls = 0;
  expect(tuttiMemAlloc(&memory, 4096) == tuttiSuccess && memory != NULL, "memory");
  expect(tuttiStreamCreate(&stream) == tuttiSuccess, "stream");
  memset(memory, 1, 4096);
  expect(tuttiAllReduce(memory, memory, 4096, tuttiChar, tuttiSum, comm, stream) == tuttiSuccess, "queued");
  expect(tuttiEventCreate(&event) == tuttiSuccess && tuttiEventQuery(event) == tuttiSuccess, "event");
  expect(tuttiEventRecord(event, stream) == tuttiSuccess, "event record");
  expect(tuttiEventSynchronize(event) == tuttiSuccess, "event synchronize");
  expect(((const char*)memory)[4095] == 1, "queued result");
  expect(tuttiEventDestroy(event) == tuttiSuccess, "event destroy");
  expect(tuttiLaunchHostFunc(stream, count, &calls) == tuttiSuccess, "host function");
  expect(tuttiStreamDestroy(stream) == tuttiSuccess, "stream destroy");
  expect(calls == 1, "host function called");
  registration(comm, memory);
  expect(tuttiMemFree(memory) == tuttiSuccess, "memory free");
}

int main(void) {
  int version = 0;
  int host = -1;
  tuttiComm_t comm = NULL;
#if TUTTI_VERSION_CODE < TUTTI_VERSION(0, 1, 0) || TUTTI_VERSION_CODE >= TUTTI_VERSION(9, 0, 0)
#error "versions compare as numbers"
#endif
  expect(TUTTI_VERSION(2, 27, 3) == 22703 && TUTTI_VERSION(0, 1, 0) == 100, "a version as one number");
  expect(tuttiGetVersion(&version) == tuttiSuccess && version == TUTTI_VERSION_CODE, "version");
  expect(tuttiCommInitAll(&comm, 1, &host) == tuttiSuccess, "init");
  if (comm == NULL) return 1;
  one_rank(comm);
  memory_and_streams(comm);
  expect(tuttiCommDestroy(comm) == tuttiSuccess, "destroy");
  with_config();
  return failures == 0 ? 0 : 1;
}
