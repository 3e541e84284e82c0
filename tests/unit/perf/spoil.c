/* Preloaded into a perf program: the library's collectives, each of which spoils its own work afterwards, on every
 * rank, as TUTTI_TEST_SPOIL says:
 *   result   the last element of what the rank has received
 *   beside   the byte before its receive buffer
 *   ignored  the first byte of a receive buffer in which the rank receives nothing
 * Only calls on float32 do: the program exchanges times and counts of errors with other datatypes. */
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

static void spoil(tuttiDataType_t type, void* recvbuff, size_t received) {
  const char* const what = getenv("TUTTI_TEST_SPOIL");
  unsigned char* const bytes = (unsigned char*)recvbuff;
  if (type != tuttiFloat32 || what == NULL) return;
  if (strcmp(what, "result") == 0 && received > 0) bytes[received * sizeof(float) - 1] ^= 0x40;
  if (strcmp(what, "beside") == 0) bytes[-1] ^= 1;
  if (strcmp(what, "ignored") == 0 && received == 0) bytes[0] ^= 1;
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
