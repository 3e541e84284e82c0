/* tutti: collective communication between the ranks of a job. C99; no C++ or CUDA header is needed.
 *
 * Names, argument order and numeric values follow NCCL's where NCCL has the function.
 *
 * Ranks. A communicator has nranks ranks, numbered from 0; each belongs to one process, or to one thread of a process.
 * All ranks call the same collectives in the same order with matching arguments.
 *
 * Threads. Any thread may make any call at any time. Collectives and tuttiCommFinalize serve one thread at a time per
 * communicator; while one is inside, another gets tuttiInvalidUsage. All other calls may be made beside them. Destroy
 * and abort wait until no other thread uses what they free. A thread must not be cancelled (pthread_cancel) inside a
 * call; tuttiCommAbort ends one.
 *
 * Handles are no pointers. One that was never made, or stands for what has been destroyed or aborted meanwhile, is
 * tuttiInvalidArgument for ever: no handle of a process is given out twice.
 *
 * Buffers and streams. `stream` NULL: the call returns when the operation is complete. A stream from tuttiStreamCreate:
 * the call queues the operation and returns; operations of one communicator run in the order in which they were queued,
 * beside the caller's computation; buffers must stay valid and untouched until the stream (or an event recorded after
 * the operation) has completed.
 *
 * Fork. A forked child has none of its parent's communicators, streams and events: they are tuttiInvalidUsage there,
 * harm nobody at its exit, and it makes its own. Memory from tuttiMemAlloc is shared between both: each sees what the
 * other writes, and tuttiMemFree frees it for its caller alone. Until the child ends or calls exec, its copies of the
 * parent's connections keep the parent's peers from noticing the parent's death by them.
 *
 * In place. all-reduce, broadcast, reduce, all-to-all, scan and exscan: sendbuff == recvbuff. reduce-scatter, and
 * scatter on the root: recvbuff == sendbuff + rank * recvcount elements. all-gather, and gather on the root: sendbuff
 * == recvbuff + rank * sendcount elements. Any other overlap is tuttiInvalidArgument.
 *
 * Errors. Every function returns a tuttiResult_t. tuttiGetLastError has the text of the last error. A call that is
 * refused for its arguments (tuttiInvalidArgument, tuttiInvalidUsage) has changed nothing. After any other error the
 * communicator is failed: every later operation returns the same error, and it can only be destroyed or aborted. No
 * call waits for ever: a peer that dies ends every wait with tuttiRemoteError within a second (where no rank has
 * destroyed its communicator before), and the communicator's timeout ends the rest with tuttiTimeout.
 *
 * Buffers after an error. They are the caller's again when the call (or the stream) has returned it: peers have stopped
 * reading and writing them, and they may be freed. A peer that is another thread of this process is waited for until it
 * has finished the piece, of at most 256 KiB, that it is copying or combining. A peer process reads and writes memory
 * of tuttiMemAlloc through a mapping of its own; if it has been stopped in the middle of a piece the call returns after
 * a second, and when it goes on it may still write the rest of that piece to a receive buffer there, until its own
 * operation fails. Other memory it reads by a system call, and after such a stop may read once more what is there by
 * then, for nobody. An operation never succeeds with bytes that it has read from memory of a peer whose operation had
 * failed before.
 */
#ifndef TUTTI_H_
#define TUTTI_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MAJOR 0
#define TUTTI_MINOR 1
#define TUTTI_PATCH 0
#define TUTTI_VERSION_CODE (TUTTI_MAJOR * 10000 + TUTTI_MINOR * 100 + TUTTI_PATCH)

#if defined(__GNUC__)
#define TUTTI_EXPORT __attribute__((visibility("default")))
#else
#define TUTTI_EXPORT
#endif

typedef struct tuttiComm *tuttiComm_t;
typedef struct tuttiStream *tuttiStream_t;
typedef struct tuttiEvent *tuttiEvent_t;

/* Every enumeration is 32 bits wide, whatever names later versions add; its last name is there for that alone and is no
 * value to pass. A value that the library does not know is refused. Results: NCCL's, and tutti's own from 1000. */
typedef enum {
  tuttiSuccess = 0,
  tuttiUnhandledCudaError = 1,
  tuttiSystemError = 2,     /* a system call failed, and the text has errno's; or memory ran out */
  tuttiInternalError = 3,   /* a defect in tutti */
  tuttiInvalidArgument = 4, /* an argument is outside its domain */
  tuttiInvalidUsage = 5,    /* the arguments are fine, the call is not (wrong state, wrong environment) */
  tuttiRemoteError = 6,     /* a peer died, left, or failed; the text names the rank */
  tuttiInProgress = 7,      /* not complete yet */
  tuttiTimeout = 8,         /* the communicator's timeout passed; the text names the ranks that were waited for */
  tuttiAborted = 1000,      /* tuttiCommAbort was called, here or on a peer */
  tuttiMismatch = 1001,     /* ranks called different operations; the text names both sides */
  tuttiResultMax = 0x7fffffff
} tuttiResult_t;

typedef enum {
  tuttiInt8 = 0,
  tuttiChar = 0,
  tuttiUint8 = 1,
  tuttiInt32 = 2,
  tuttiInt = 2,
  tuttiUint32 = 3,
  tuttiInt64 = 4,
  tuttiUint64 = 5,
  tuttiFloat16 = 6,
  tuttiHalf = 6,
  tuttiFloat32 = 7,
  tuttiFloat = 7,
  tuttiFloat64 = 8,
  tuttiDouble = 8,
  tuttiBfloat16 = 9,
  tuttiFloat8e4m3 = 10, /* OCP FP8 E4M3: no infinity, saturates at 448 */
  tuttiFloat8e5m2 = 11, /* OCP FP8 E5M2; overflow saturates at 57344 */
  tuttiNumTypes = 12,   /* as ncclNumTypes: of those above */
  tuttiInt16 = 100,
  tuttiUint16 = 101,
  tuttiComplex64 = 102,  /* two float32: real part, imaginary part (C's float _Complex) */
  tuttiComplex128 = 103, /* two float64 */
  tuttiBool = 104,       /* one byte: any value but 0 is true; what is combined is 0 or 1 */
  tuttiDataTypeMax = 0x7fffffff /* from 1000 on: of tuttiTypeCreate */
} tuttiDataType_t;

/* 16- and 8-bit floats are combined in float32 and rounded once per combination. Integer sums and products wrap.
 * tuttiAvg is the sum divided by the number of ranks, once, after the last addition; for integers the (wrapped) sum is
 * divided with truncation towards zero, as in NCCL. If a rank contributes NaN the result is NaN, of max and min too; +0
 * is above -0. Every NaN that a reduction of two or more ranks gives is the same: all bits set, which is a quiet one.
 * Payloads are lost. So all ranks of an all-reduce get the same bits, whatever the data. Complex numbers have sum, prod
 * and avg (prod by the plain formula, without C's Annex G for infinities); of booleans sum and max are lor, prod and
 * min are land, and there is no avg. An operator that the datatype does not have is tuttiInvalidArgument. */
typedef enum {
  tuttiSum = 0,
  tuttiProd = 1,
  tuttiMax = 2,
  tuttiMin = 3,
  tuttiAvg = 4,
  tuttiNumOps = 5, /* as ncclNumOps: of those above */
  tuttiBand = 100, /* bit by bit: and, or, exclusive or; of integers and booleans */
  tuttiBor = 101,
  tuttiBxor = 102,
  tuttiLand = 103, /* logical: whether the elements are not 0; gives 0 or 1; of integers and booleans */
  tuttiLor = 104,
  tuttiLxor = 105,
  tuttiRedOpMax = 0x7fffffff
} tuttiRedOp_t; /* values from 1000 on are operators that the program has made: see "Operators" */

/* Where the scalar of a pre-multiplied sum lies. */
typedef enum {
  tuttiScalarDevice = 0,        /* host memory of the caller's, read when an operation runs */
  tuttiScalarHostImmediate = 1, /* host memory that is read when the operator is made */
  tuttiScalarResidenceMax = 0x7fffffff
} tuttiScalarResidence_t;

/* The collectives, where a call asks about one. Numbers up to 30 are kept for those to come. */
typedef enum {
  tuttiCollectiveAllReduce = 0,
  tuttiCollectiveReduceScatter = 1,
  tuttiCollectiveAllGather = 2,
  tuttiCollectiveBroadcast = 3,
  tuttiCollectiveReduce = 4,
  tuttiCollectiveBarrier = 5,
  tuttiCollectiveGather = 6,
  tuttiCollectiveScatter = 7,
  tuttiCollectiveAlltoAll = 8,
  tuttiCollectiveScan = 9,
  tuttiCollectiveExscan = 10,
  tuttiCollectiveAllGatherV = 11,
  tuttiCollectiveReduceScatterV = 12,
  tuttiCollectiveAlltoAllV = 13,
  tuttiCollectiveGatherV = 14,
  tuttiCollectiveScatterV = 15,
  tuttiCollectiveMax = 0x7fffffff
} tuttiCollective_t;

#define TUTTI_UNIQUE_ID_BYTES 128
/* Opaque bytes; copy them to the other ranks by any means. They hold the job's secret: any process that has them can
 * join. */
typedef struct {
  char internal[TUTTI_UNIQUE_ID_BYTES];
} tuttiUniqueId;

/* What an int of tuttiConfig_t holds where the caller leaves it unset (INT_MIN, as NCCL_CONFIG_UNDEF_INT). */
#define TUTTI_CONFIG_UNDEF_INT (-2147483647 - 1)

/* Settings of one communicator. Start from TUTTI_CONFIG_INITIALIZER, which leaves all unset: TUTTI_CONFIG_UNDEF_INT for
 * a number, NULL for a text. What is unset is left to the environment variable that is named beside the field, and to
 * the default where there is none either. What is set wins over the variable; an empty text is the default. Values are
 * those of the variables (README.md); one that cannot be read is tuttiInvalidArgument and named. (A variable that
 * cannot be read is tuttiInvalidUsage, whether it would have been used or not.) Whether there is such an interface is
 * found out when addresses are needed. Texts are copied before the call returns.
 *
 * Later versions add fields at the end, where all bits zero (0, NULL) mean unset. A caller that was compiled with a
 * later version than the library's may leave them so; if it sets one, the call is refused with tuttiInvalidArgument
 * rather than the setting ignored. So is a caller of a later major version. */
typedef struct {
  size_t size;             /* sizeof(tuttiConfig_t) as the caller was compiled */
  unsigned int magic;      /* 0x74757474 */
  unsigned int version;    /* TUTTI_VERSION_CODE as the caller was compiled */
  int timeout_ms;          /* TUTTI_TIMEOUT_MS: longest wait without progress in an operation, 1 or more */
  int init_timeout_ms;     /* TUTTI_INIT_TIMEOUT_MS: of the whole initialisation, 1 or more */
  int wait_notice_ms;      /* TUTTI_WAIT_NOTICE_MS: after so long a wait is logged; 0: never */
  int tcp_streams;         /* TUTTI_TCP_STREAMS: sockets per pair of ranks, 1 to 16 */
  const char *transports;  /* TUTTI_TRANSPORTS: "shm,verbs,tcp"; rank 0's holds */
  const char *interface;   /* TUTTI_INTERFACE: "eth", "=eth0", "^lo" */
  const char *port_range;  /* TUTTI_PORT_RANGE: "4000-4099" */
  const char *algorithm;   /* TUTTI_ALGORITHM: "ring", "all_reduce:ring,reduce:k_nomial:4"; rank 0's holds */
  const char *affinity;    /* TUTTI_AFFINITY: "move" or "keep" */
  const char *check;       /* TUTTI_CHECK: "strict" or "off"; rank 0's holds */
  const char *verbs;       /* TUTTI_VERBS: "device=mlx5_0,mtu=4096" */
  const char *cross_memory; /* TUTTI_CROSS_MEMORY: "auto", "always" or "never" */
} tuttiConfig_t;

#define TUTTI_CONFIG_INITIALIZER                                                                                   \
  {                                                                                                                \
    sizeof(tuttiConfig_t), 0x74757474u, (unsigned)TUTTI_VERSION_CODE, TUTTI_CONFIG_UNDEF_INT,                      \
        TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT, (const char *)0, (const char *)0,  \
        (const char *)0, (const char *)0, (const char *)0, (const char *)0, (const char *)0, (const char *)0       \
  }

/* ---- Library ---------------------------------------------------------------------------------- */

/* *version = major * 10000 + minor * 100 + patch of the library that is loaded, which may be newer than this header
 * (TUTTI_VERSION_CODE). tuttiInvalidArgument if version is NULL. */
TUTTI_EXPORT tuttiResult_t tuttiGetVersion(int *version);
/* A short constant text for a result, "unknown result code" for a value that is none; never NULL. The library's. */
TUTTI_EXPORT const char *tuttiGetErrorString(tuttiResult_t result);
/* The full text of the last error of `comm`, whichever thread met it: what has failed the communicator, once it has
 * failed, else the last call that was refused. With comm NULL or no communicator any more, of the last error that a
 * call of the calling thread has returned; tuttiInProgress is none, and a call that succeeds leaves the text as it is.
 * Never NULL; empty if there was none. The library's, valid until the calling thread's next call of this function or
 * its end. Any thread, also beside an operation; does not block. */
TUTTI_EXPORT const char *tuttiGetLastError(tuttiComm_t comm);

/* ---- Communicators ---------------------------------------------------------------------------- */

/* Makes the id of a new communicator and starts listening for its ranks in this process, which must live until they
 * have all joined (usually it is rank 0's). One id makes one communicator. The call takes no configuration: interface,
 * port range, init timeout and wait notice are the environment's. tuttiInvalidUsage for a variable that cannot be read,
 * tuttiSystemError where no port can be had. Does not wait for other ranks. */
TUTTI_EXPORT tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *id);

/* Joins the communicator of `id` as `rank` of `nranks`. Collective: returns when all have joined, or fails after the
 * init timeout. 0 <= rank < nranks. *comm is written on success alone, and is the caller's until tuttiCommDestroy or
 * tuttiCommAbort. Errors of this and the other ways to make communicators: tuttiInvalidArgument, tuttiInvalidUsage (a
 * variable that cannot be read, no launcher, too many communicators), tuttiTimeout, whose text names the ranks that
 * have not joined, tuttiRemoteError for a rank that died or failed meanwhile, tuttiSystemError. Ranks that do not agree
 * about the job (its size, who is which rank) get tuttiInvalidUsage, which names them. */
TUTTI_EXPORT tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank);
/* The same with settings; config may be NULL, and is the caller's again when the call returns. */
TUTTI_EXPORT tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank,
                                                   const tuttiConfig_t *config);
/* Joins the job that the launcher describes in the environment: torchrun, Open MPI's mpirun, MPICH's mpiexec (Hydra),
 * srun, or TUTTI_RANK, TUTTI_WORLD_SIZE and TUTTI_ROOT=host:port. tuttiInvalidUsage if there is none. Collective.
 * config as above. */
TUTTI_EXPORT tuttiResult_t tuttiCommInitEnv(tuttiComm_t *comm, const tuttiConfig_t *config);
/* Makes all ndev >= 1 communicators of a job whose ranks are threads of this process: comms[i] is rank i, to be used by
 * a thread of its own. devlist must be NULL or hold only -1 (host memory), ndev times. All of them are made or none;
 * comms is written on success alone. */
TUTTI_EXPORT tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int ndev, const int *devlist);
/* The same with settings, for all ranks; config as above. */
TUTTI_EXPORT tuttiResult_t tuttiCommInitAllConfig(tuttiComm_t *comms, int ndev, const int *devlist,
                                                  const tuttiConfig_t *config);

/* Waits for queued operations and tells the peers that this rank leaves, and what it has called. Then waits until all
 * other ranks have done so too, for a second at most and not at all once the communicator has failed, nor where one
 * thread serves several of its ranks. If that wait was in vain, the next communicator of this process waits half as
 * long, down to 31 ms; one for which all ranks come in time waits, after that, a second again. tuttiMismatch if ranks
 * have called different collectives, or one more than another, also where those exchanged no data; a rank that has
 * waited in vain may have returned tuttiSuccess, but the ranks that leave after it get the error. An operation that
 * needs data of a rank which has left without calling it, or after calling something else instead, already fails by
 * itself, with tuttiMismatch; a receive from it with tuttiRemoteError. Operations that follow are tuttiInvalidUsage;
 * queries, tuttiCommAbort and tuttiCommDestroy may follow, and a second tuttiCommFinalize does nothing and is
 * tuttiSuccess. */
TUTTI_EXPORT tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);
/* Waits for an operation that another thread is in, finalizes if that was not done, and frees the communicator,
 * whatever it returns but tuttiInvalidUsage: the calling thread has calls of it in a group that it has not ended.
 * tuttiCommAbort ends the waiting. tuttiMismatch as above, unless a collective, tuttiCommFinalize, or a stream or event
 * with an operation of it has returned it before; another failure is no error of this call. NULL is allowed. */
TUTTI_EXPORT tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);
/* Ends all operations at once, here and on the peers (they get tuttiAborted), and frees the communicator. May be called
 * while another thread is inside an operation, finalize or destroy, which returns soon, the first two with
 * tuttiAborted; what that thread calls afterwards is refused. */
TUTTI_EXPORT tuttiResult_t tuttiCommAbort(tuttiComm_t comm);
/* *error = tuttiSuccess, or the error that has failed the communicator. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *error);
/* *count = the number of ranks. Does not block, also of a communicator that has failed. */
TUTTI_EXPORT tuttiResult_t tuttiCommCount(tuttiComm_t comm, int *count);
/* *rank = this rank's number, from 0 to count - 1. As tuttiCommCount. */
TUTTI_EXPORT tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int *rank);
/* *device = the CUDA device the communicator is bound to, or -1 for host memory. As tuttiCommCount. */
TUTTI_EXPORT tuttiResult_t tuttiCommCuDevice(tuttiComm_t comm, int *device);

/* Which algorithm and transports serve a collective on a vector of `bytes` bytes (where it has a block for each rank:
 * of all blocks together), as "ALGORITHM over TRANSPORTS": for example "ring over shm+tcp". Writes at most `size` bytes
 * to `text`, the caller's, with a zero at the end; 128 are enough. tuttiInvalidArgument if it does not fit, where
 * nothing is written, or if `collective` is none of a tuttiCollective_t; tuttiInvalidUsage if a forced algorithm does
 * not serve these ranks. Connects and runs nothing. The algorithm is the same on every rank; so are the transports,
 * unless RDMA connects only some of the hosts, where each rank names those that it uses itself. With an operator that
 * does not commute another algorithm may serve, one that keeps the order of ranks. Any thread. */
TUTTI_EXPORT tuttiResult_t tuttiCommExplain(tuttiComm_t comm, tuttiCollective_t collective, size_t bytes, char *text,
                                            size_t size);

/* ---- Collectives ------------------------------------------------------------------------------
 * Counts are in elements of `datatype` and may be 0. Buffers are host memory, aligned in any way, and the caller's: the
 * library reads send buffers and writes receive buffers, both until the operation is complete and not after (see
 * "Buffers after an error"). They may be NULL only where the count is 0 or where the rank's buffer is said to be
 * ignored. `stream` is NULL or a tuttiStream_t; one thread at a time for each communicator. Errors: see above.
 * tuttiInvalidArgument and tuttiInvalidUsage refuse the call; tuttiRemoteError, tuttiTimeout, tuttiAborted,
 * tuttiMismatch, tuttiSystemError and tuttiInternalError have failed the communicator. Those of a queued operation are
 * returned by its stream and by events. */

/* recvbuff[i] = op over ranks of sendbuff[i], i < count, bitwise the same on every rank. */
TUTTI_EXPORT tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                          tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm, void *stream);
/* recvbuff[i] = root's sendbuff[i], i < count. sendbuff is ignored on the other ranks. */
TUTTI_EXPORT tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                          tuttiDataType_t datatype, int root, tuttiComm_t comm, void *stream);
/* On root: recvbuff[i] = op over ranks of sendbuff[i], i < count. recvbuff is ignored elsewhere. */
TUTTI_EXPORT tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype,
                                       tuttiRedOp_t op, int root, tuttiComm_t comm, void *stream);
/* recvbuff[r * sendcount + i] = rank r's sendbuff[i], i < sendcount. */
TUTTI_EXPORT tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                                          tuttiDataType_t datatype, tuttiComm_t comm, void *stream);
/* recvbuff[i] = op over ranks of sendbuff[rank * recvcount + i], i < recvcount. */
TUTTI_EXPORT tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                              tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
                                              void *stream);
/* tuttiBroadcast in place: buff[i] = root's buff[i], i < count. */
TUTTI_EXPORT tuttiResult_t tuttiBcast(void *buff, size_t count, tuttiDataType_t datatype, int root, tuttiComm_t comm,
                                      void *stream);
/* On root: recvbuff[r * count + i] = rank r's sendbuff[i], i < count. recvbuff is ignored elsewhere. */
TUTTI_EXPORT tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype,
                                       int root, tuttiComm_t comm, void *stream);
/* recvbuff[i] = root's sendbuff[rank * count + i], i < count. sendbuff is ignored on the other ranks. */
TUTTI_EXPORT tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype,
                                        int root, tuttiComm_t comm, void *stream);
/* recvbuff[r * count + i] = rank r's sendbuff[rank * count + i], i < count. In place, with sendbuff == recvbuff, the
 * library copies the data once more. */
TUTTI_EXPORT tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype,
                                         tuttiComm_t comm, void *stream);
/* recvbuff[i] = op over ranks 0 .. rank of sendbuff[i], i < count. There is no tuttiAvg. */
TUTTI_EXPORT tuttiResult_t tuttiScan(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype,
                                     tuttiRedOp_t op, tuttiComm_t comm, void *stream);
/* recvbuff[i] = op over ranks 0 .. rank - 1 of sendbuff[i], i < count. On rank 0 recvbuff is ignored. There is no
 * tuttiAvg. */
TUTTI_EXPORT tuttiResult_t tuttiExscan(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype,
                                       tuttiRedOp_t op, tuttiComm_t comm, void *stream);
/* Completes on a rank after every rank has called it. */
TUTTI_EXPORT tuttiResult_t tuttiBarrier(tuttiComm_t comm, void *stream);

/* The same with blocks of different counts, as MPI's "v" functions. An array of counts or displacements has an entry
 * for each rank, in elements; where displacements are NULL, blocks lie one behind the other. Arrays are read before the
 * call returns. Counts may be 0, on any rank. A count that two ranks name must be the same: tuttiMismatch if it is not.
 * Where one of two that exchange data says 0, nothing is exchanged that could tell: at the earliest the next operation
 * between them finds out, and a rank that waits gets tuttiTimeout or, of a rank that leaves, tuttiRemoteError. Blocks
 * that are received must not overlap, nor meet what is sent but in place: tuttiInvalidArgument. In place, this rank's
 * own block lies where the blocks have it; tuttiAlltoAllV has sendbuff == recvbuff and equal counts and displacements,
 * and copies the data once more. */

/* recvbuff[rdispls[r] + i] = rank r's sendbuff[i], i < recvcounts[r]. sendcount == recvcounts[rank]; recvcounts is the
 * same on all ranks, rdispls need not be. */
TUTTI_EXPORT tuttiResult_t tuttiAllGatherV(const void *sendbuff, size_t sendcount, void *recvbuff,
                                           const size_t *recvcounts, const size_t *rdispls, tuttiDataType_t datatype,
                                           tuttiComm_t comm, void *stream);
/* recvbuff[i] = op over ranks of sendbuff[s + i], i < recvcounts[rank], where s is the sum of the counts of the ranks
 * before. recvcounts is the same on all ranks. */
TUTTI_EXPORT tuttiResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff, const size_t *recvcounts,
                                               tuttiDataType_t datatype, tuttiRedOp_t op, tuttiComm_t comm,
                                               void *stream);
/* recvbuff[rdispls[r] + i] = rank r's sendbuff[its sdispls[rank] + i], i < recvcounts[r], which is rank r's
 * sendcounts[rank]. */
TUTTI_EXPORT tuttiResult_t tuttiAlltoAllV(const void *sendbuff, const size_t *sendcounts, const size_t *sdispls,
                                          void *recvbuff, const size_t *recvcounts, const size_t *rdispls,
                                          tuttiDataType_t datatype, tuttiComm_t comm, void *stream);
/* On root: recvbuff[rdispls[r] + i] = rank r's sendbuff[i], i < recvcounts[r], which is rank r's sendcount. recvbuff
 * and the arrays are ignored elsewhere. */
TUTTI_EXPORT tuttiResult_t tuttiGatherV(const void *sendbuff, size_t sendcount, void *recvbuff,
                                        const size_t *recvcounts, const size_t *rdispls, tuttiDataType_t datatype,
                                        int root, tuttiComm_t comm, void *stream);
/* recvbuff[i] = root's sendbuff[sdispls[rank] + i], i < recvcount, which is root's sendcounts[rank]. sendbuff and the
 * arrays are ignored on the other ranks. */
TUTTI_EXPORT tuttiResult_t tuttiScatterV(const void *sendbuff, const size_t *sendcounts, const size_t *sdispls,
                                         void *recvbuff, size_t recvcount, tuttiDataType_t datatype, int root,
                                         tuttiComm_t comm, void *stream);

/* ---- Datatypes --------------------------------------------------------------------------------
 * Datatypes of the program's own, such as its structures, for every call that takes one: what is moved is bytes, and
 * what is combined is combined by an operator of tuttiRedOpCreate. Each is one communicator's: another's, or one that
 * is destroyed, is tuttiInvalidArgument. The ranks must agree in each operation about the bytes of an element, while
 * the numbers of the handles may differ. Any thread may make and destroy them, also beside operations. */

/* *datatype = one whose elements have `element_bytes` bytes, 1 to 4096, and are never cut: an operator's function sees
 * them whole, aligned in any way, and is told *datatype. */
TUTTI_EXPORT tuttiResult_t tuttiTypeCreate(tuttiDataType_t *datatype, size_t element_bytes, tuttiComm_t comm);
/* Operations that are queued or under way keep it. The communicator's end frees all that are left. A built-in datatype
 * is tuttiInvalidArgument. */
TUTTI_EXPORT tuttiResult_t tuttiTypeDestroy(tuttiDataType_t datatype, tuttiComm_t comm);

/* ---- Operators --------------------------------------------------------------------------------
 * Operators of the program's own, for tuttiAllReduce, tuttiReduce, tuttiReduceScatter, tuttiReduceScatterV, tuttiScan
 * and tuttiExscan. Each is one communicator's: another's, or one that is destroyed, is tuttiInvalidArgument. Every rank
 * makes its own; the ranks must agree in each operation about the kind of operator (pre-multiplied sum, a function that
 * commutes, one that does not), while the numbers of the handles may differ. A process can make two thousand million of
 * them and of datatypes. Any thread may make and destroy them, also beside operations. */

/* in and inout have `count` elements of `datatype` each: inout[i] = in[i] op inout[i], for i < count. `in` holds the
 * operand of the lower ranks. The function is called with pieces of the vectors, cut between any two elements, which
 * may be aligned in any way whatever the caller's buffers are; in the thread of a blocking call, or for a stream in one
 * of the library's, with a stack of 2 MiB. It must be associative, touch nothing else of these vectors, and make no
 * call of this library. A C++ exception that it throws fails the communicator. */
typedef void (*tuttiRedOpFunction_t)(const void *in, void *inout, size_t count, tuttiDataType_t datatype,
                                     void *context);

/* *op = an operator that calls `function` with `context`, for all datatypes, the program's too. commutative 0: the
 * values of the ranks are combined in their order, a0 op a1 op ..., with brackets anywhere; else in any order. In which
 * order, and with which brackets, depends on the size and the number of ranks, and is the same in every run. One rank's
 * value is returned as it is. What `context` points to is the caller's, and stays until the operations with it are
 * complete. */
TUTTI_EXPORT tuttiResult_t tuttiRedOpCreate(tuttiRedOp_t *op, tuttiRedOpFunction_t function, void *context,
                                            int commutative, tuttiComm_t comm);
/* *op = the sum over ranks of this rank's *scalar times its elements. *scalar is one element of `datatype`, which the
 * calls with it must have too: any but tuttiBool. The product is rounded to the datatype, as tuttiProd rounds it,
 * before it is added. tuttiScalarDevice: the scalar stays until the operations are complete. */
TUTTI_EXPORT tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar, tuttiDataType_t datatype,
                                                     tuttiScalarResidence_t residence, tuttiComm_t comm);
/* Frees the operator; what is queued with it goes on. The communicator's end frees all that are left. A built-in
 * operator is tuttiInvalidArgument. */
TUTTI_EXPORT tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

/* ---- Sends, receives and groups ---------------------------------------------------------------
 * As NCCL's. The k-th send of a rank to another is the k-th receive there from the rank, of the same count and
 * datatype: tuttiMismatch if they differ, but that 0 is found out as above. A send is complete when its buffer may be
 * used again, which may be long before the receive is, or not before it has begun: ranks that send to each other do it
 * in a group. The first transfer between two ranks connects them, if no collective has: both come to it, and no data of
 * a group moves before all of its ranks are connected. */

/* sendbuff[i], i < count, to rank `peer` of the communicator. */
TUTTI_EXPORT tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t datatype, int peer,
                                     tuttiComm_t comm, void *stream);
/* recvbuff[i], i < count, from rank `peer` of the communicator. */
TUTTI_EXPORT tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t datatype, int peer,
                                     tuttiComm_t comm, void *stream);
/* Collectives, sends and receives that the thread calls from here on, on any communicators, are checked but not
 * started: tuttiGroupEnd starts all of them. Groups may be nested: the outermost tuttiGroupEnd counts. Sends and
 * receives of a group need not wait for each other, in whatever order they were called; a rank may send to itself if it
 * receives that in the same group. No call may write what another one of the group reads or writes: of collectives of a
 * communicator that is tuttiInvalidArgument, and nothing is started; blocks of different counts, sends and receives are
 * not looked at. Of one communicator, collectives run before sends and receives, in order but for small ones of one
 * kind, run together with the same results; all ranks group alike (tuttiMismatch). Communicators wait for no other. */
TUTTI_EXPORT tuttiResult_t tuttiGroupStart(void);
/* Returns when all that was called without a stream is complete; what was called with streams is queued, and behind it
 * in each of the streams that the group names for a communicator comes all of what that communicator has in the group.
 * If a call was refused, nothing of the group is started, and its error is returned; else the first error of an
 * operation, or of a communicator that another thread is in or has finalized: what the group has for others goes on.
 * tuttiInvalidUsage without tuttiGroupStart. */
TUTTI_EXPORT tuttiResult_t tuttiGroupEnd(void);

/* ---- Memory -----------------------------------------------------------------------------------
 * Host memory that peers on the same machine can map, so that large transfers need no staging copy. Any thread. */

/* *ptr = `size` bytes, filled with zeros and aligned to 4096 bytes; the caller's until tuttiMemFree. *ptr is written on
 * success alone. tuttiInvalidArgument if ptr is NULL, or size 0 or more than SIZE_MAX / 2, tuttiSystemError if there is
 * not so much memory. */
TUTTI_EXPORT tuttiResult_t tuttiMemAlloc(void **ptr, size_t size);
/* Frees what tuttiMemAlloc gave, after the last operation that uses it has completed on this rank. NULL is allowed;
 * tuttiInvalidArgument for any other address that tuttiMemAlloc did not give, or that is freed already. */
TUTTI_EXPORT tuttiResult_t tuttiMemFree(void *ptr);

/* ---- Streams and events for host buffers ------------------------------------------------------
 * As CUDA's streams and events, for operations on host memory. Any thread may make these calls, also on the same stream
 * or event as others: one that has found its stream or event goes on with it while another thread destroys it.
 * tuttiInvalidArgument for what is no stream or event, tuttiInvalidUsage for those of the process that this one was
 * forked from; other errors are those of the operations that are waited for. */

/* Makes a stream: a queue of operations that run in order. It may carry operations of several communicators. The
 * caller's until tuttiStreamDestroy. */
TUTTI_EXPORT tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream);
/* Waits for all that was queued before the call; returns the first error among it since the last call. How long is
 * bounded by the timeouts of the operations' communicators. */
TUTTI_EXPORT tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
/* tuttiSuccess if all that was queued is complete, tuttiInProgress if not, or the first error. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
/* Waits for what was queued, and returns what tuttiStreamSynchronize would; frees the stream in any case. NULL is
 * allowed. Events that were recorded on the stream stay. */
TUTTI_EXPORT tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);
/* Makes an event, a mark in a stream. One that was never recorded is complete. The caller's until tuttiEventDestroy. */
TUTTI_EXPORT tuttiResult_t tuttiEventCreate(tuttiEvent_t *event);
/* The event stands for all that is queued on the stream now, and no longer for what it was recorded for before: an
 * event may be recorded any number of times, on any stream. A thread that waits for what it stood for before goes on
 * waiting for that. `stream` must not be NULL. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream);
/* What is queued on the stream from now on waits for all that the event stands for now, and so does the stream as a
 * whole (tuttiStreamSynchronize, tuttiStreamQuery, events recorded on it). If that fails, its error is the stream's
 * too, and an operation behind it fails as behind a failed operation of its own stream. No effect if the event was
 * never recorded. `stream` must not be NULL. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event);
/* tuttiSuccess if all that the event stands for is complete, tuttiInProgress if not, or the first error among it: every
 * time until the event is recorded anew, unlike that of a stream. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiEventQuery(tuttiEvent_t event);
/* Waits until all that the event stands for at the time of the call is complete; the result is as tuttiEventQuery's.
 * How long is bounded by the timeouts of the operations' communicators. */
TUTTI_EXPORT tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event);
/* Frees the event, at once: operations, and threads that wait for them by this event, go on. NULL is allowed. */
TUTTI_EXPORT tuttiResult_t tuttiEventDestroy(tuttiEvent_t event);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_H_ */
