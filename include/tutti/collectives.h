/* Part of tutti/tutti.h: collectives, sends, receives and groups. */
#ifndef TUTTI_COLLECTIVES_H_
#define TUTTI_COLLECTIVES_H_

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Collectives ------------------------------------------------------------------------------
 * Counts are in elements of `datatype` and may be 0. Buffers are host memory, aligned in any way, or memory of the CUDA
 * device that the communicator is bound to ("CUDA devices" in tutti.h), and the caller's: the
 * library reads send buffers and writes receive buffers, both until the operation is complete and not after ("Buffers
 * after an error" in tutti.h). They may be NULL only where the count is 0 or where the rank's buffer is said to be
 * ignored. `stream` is NULL or a tuttiStream_t; one thread at a time for each communicator. Errors: see tutti.h.
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

/* ---- Blocks of different counts ---------------------------------------------------------------
 * The same with blocks of different counts, as MPI's "v" functions. An array of counts or displacements has an entry
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

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_COLLECTIVES_H_ */
