/* Preloaded into a perf program: the library's collectives, each of which spoils its own work afterwards, on every
 * rank, as TUTTI_TEST_SPOIL says, and as much after any number of calls on the same buffers:
 *   result   the last element of what the rank has received
 *   beside   the byte before its receive buffer
 *   ignored  the first byte of a receive buffer in which the rank receives nothing
 * What is received in a group is spoiled when the group ends. Only calls on float32 do: the program exchanges times and
 * counts of errors with other datatypes. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

static size_t ranks_of(tuttiComm_t comm) {
  int count = 0;
  return tuttiCommCount(comm, &count) == tuttiSuccess ? (size_t)count : 0;
}

static int rank_of(tuttiComm_t comm) {
  int rank = 0;
  return tuttiCommUserRank(comm, &rank) == tuttiSuccess ? rank : -1;
}

static size_t sum_of(const size_t* counts, tuttiComm_t comm) {
  size_t sum = 0;
  for (size_t rank = 0; rank < ranks_of(comm); ++rank) sum += counts[rank];
  return sum;
}

static void spoil(tuttiDataType_t type, void* recvbuff, size_t received) {
  const char* const what = getenv("TUTTI_TEST_SPOIL");
  unsigned char* const bytes = (unsigned char*)recvbuff;
  if (type != tuttiFloat32 || what == NULL) return;
  if (strcmp(what, "result") == 0 && received > 0) bytes[received * sizeof(float) - 1] = 0xFF;
  if (strcmp(what, "beside") == 0) bytes[-1] = 0x3C;
  if (strcmp(what, "ignored") == 0 && received == 0) bytes[0] = 0x3C;
}

#define SPOILED(name, parameters, arguments, received)               \
  tuttiResult_t name parameters {                                    \
    tuttiResult_t(*real) parameters;                                 \
    void* const found = dlsym(RTLD_NEXT, #name);                     \
    tuttiResult_t result = tuttiInternalError;                       \
    if (found == NULL) return result;                                \
    memcpy(&real, &found, sizeof real);                              \
    result = real arguments;                                         \
    if (result == tuttiSuccess) spoil(datatype, recvbuff, received); \
    return result;                                                   \
  }

SPOILED(tuttiAllReduce,
        (const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op,
         tuttiComm_t comm, void* stream),
        (sendbuff, recvbuff, count, datatype, op, comm, stream), count)
SPOILED(tuttiReduceScatter,
        (const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op,
         tuttiComm_t comm, void* stream),
        (sendbuff, recvbuff, count, datatype, op, comm, stream), count)
SPOILED(tuttiAllGather,
        (const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiComm_t comm, void* stream),
        (sendbuff, recvbuff, count, datatype, comm, stream), count* ranks_of(comm))
SPOILED(tuttiBroadcast,
        (const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, int root, tuttiComm_t comm,
         void* stream),
        (sendbuff, recvbuff, count, datatype, root, comm, stream), count)
SPOILED(tuttiReduce,
        (const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op, int root,
         tuttiComm_t comm, void* stream),
        (sendbuff, recvbuff, count, datatype, op, root, comm, stream), rank_of(comm) == root ? count : 0)
SPOILED(tuttiGather,
        (const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, int root, tuttiComm_t comm,
         void* stream),
        (sendbuff, recvbuff, count, datatype, root, comm, stream), rank_of(comm) == root ? count * ranks_of(comm) : 0)
SPOILED(tuttiScatter,
        (const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, int root, tuttiComm_t comm,
         void* stream),
        (sendbuff, recvbuff, count, datatype, root, comm, stream), count)
SPOILED(tuttiAlltoAll,
        (const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiComm_t comm, void* stream),
        (sendbuff, recvbuff, count, datatype, comm, stream), count* ranks_of(comm))
SPOILED(tuttiScan,
        (const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op,
         tuttiComm_t comm, void* stream),
        (sendbuff, recvbuff, count, datatype, op, comm, stream), count)
SPOILED(tuttiExscan,
        (const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op,
         tuttiComm_t comm, void* stream),
        (sendbuff, recvbuff, count, datatype, op, comm, stream), rank_of(comm) != 0 ? count : 0)
SPOILED(tuttiAllGatherV,
        (const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
         tuttiDataType_t datatype, tuttiComm_t comm, void* stream),
        (sendbuff, sendcount, recvbuff, recvcounts, rdispls, datatype, comm, stream), sum_of(recvcounts, comm))
SPOILED(tuttiReduceScatterV,
        (const void* sendbuff, void* recvbuff, const size_t* recvcounts, tuttiDataType_t datatype, tuttiRedOp_t op,
         tuttiComm_t comm, void* stream),
        (sendbuff, recvbuff, recvcounts, datatype, op, comm, stream), recvcounts[rank_of(comm)])
SPOILED(tuttiAlltoAllV,
        (const void* sendbuff, const size_t* sendcounts, const size_t* sdispls, void* recvbuff,
         const size_t* recvcounts, const size_t* rdispls, tuttiDataType_t datatype, tuttiComm_t comm, void* stream),
        (sendbuff, sendcounts, sdispls, recvbuff, recvcounts, rdispls, datatype, comm, stream),
        sum_of(recvcounts, comm))
SPOILED(tuttiGatherV,
        (const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
         tuttiDataType_t datatype, int root, tuttiComm_t comm, void* stream),
        (sendbuff, sendcount, recvbuff, recvcounts, rdispls, datatype, root, comm, stream),
        rank_of(comm) == root ? sum_of(recvcounts, comm) : 0)
SPOILED(tuttiScatterV,
        (const void* sendbuff, const size_t* sendcounts, const size_t* sdispls, void* recvbuff, size_t recvcount,
         tuttiDataType_t datatype, int root, tuttiComm_t comm, void* stream),
        (sendbuff, sendcounts, sdispls, recvbuff, recvcount, datatype, root, comm, stream), recvcount)

/* The last receive, and whether the process is in a group, at whose end alone it is complete. One thread makes calls.
 */
static struct {
  tuttiDataType_t type;
  void* recvbuff;
  size_t count;
  int grouped;
} last;

static void spoil_later(tuttiDataType_t type, void* recvbuff, size_t count) {
  last.type = type;
  last.recvbuff = recvbuff;
  last.count = count;
  if (!last.grouped) spoil(type, recvbuff, count);
}

static tuttiResult_t call_real(const char* name) {
  tuttiResult_t (*real)(void);
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == NULL) return tuttiInternalError;
  memcpy(&real, &found, sizeof real);
  return real();
}

tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm,
                        void* stream) {
  tuttiResult_t (*real)(void*, size_t, tuttiDataType_t, int, tuttiComm_t, void*);
  void* const found = dlsym(RTLD_NEXT, "tuttiRecv");
  tuttiResult_t result = tuttiInternalError;
  if (found == NULL) return result;
  memcpy(&real, &found, sizeof real);
  result = real(recvbuff, count, datatype, peer, comm, stream);
  if (result == tuttiSuccess) spoil_later(datatype, recvbuff, count);
  return result;
}

tuttiResult_t tuttiGroupStart(void) {
  last.grouped = 1;
  last.recvbuff = NULL;
  return call_real("tuttiGroupStart");
}

tuttiResult_t tuttiGroupEnd(void) {
  const tuttiResult_t result = call_real("tuttiGroupEnd");
  last.grouped = 0;
  if (result == tuttiSuccess && last.recvbuff != NULL) spoil(last.type, last.recvbuff, last.count);
  return result;
}
