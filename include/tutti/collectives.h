/* Part of tutti/tutti.h: collectives, sends, receives and groups. */
#ifndef TUTTI_COLLECTIVES_H_
#define TUTTI_COLLECTIVES_H_

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Collectives ------------------------------------------------------------------------------
 * Counts are in elements of `datatype` and may be 0. Buffers are host memory, aligned in any way, or memory of the CUDA
 * device that the communicator is bound to ("CUDA devices" in tutti.h). They belong to the caller. The library reads
 * send buffers and writes receive buffers until the operation is complete, and not afterwards ("Buffers after an error"
 * in tutti.h). A buffer may be NULL only if the count is 0 or the rank's buffer is documented as ignored. `stream` is
 * NULL or a tuttiStream_t. One thread at a time may call for each communicator. Errors: see tutti.h.
 * tuttiInvalidArgument and tuttiInvalidUsage refuse the call. tuttiRemoteError, tuttiTimeout, tuttiAborted,
 * tuttiMismatch, tuttiSystemError and tuttiInternalError mean that the communicator has failed. The stream and events
 * return the errors of a queued operation. */

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
 * Collectives with blocks of different counts, as MPI's "v" functions. An array of counts or displacements has an entry
 * for each rank, in elements; if displacements are NULL, the blocks are contiguous. The call reads the arrays before it
 * returns. Counts may be 0, on any rank. If two ranks pass a count for the same block, it must be equal, else
 * tuttiMismatch. If one of the two counts is 0, the ranks exchange nothing and cannot compare. The mismatch is then
 * reported by their next operation at the earliest. Until then a waiting rank gets tuttiTimeout, or tuttiRemoteError if
 * the peer leaves. Received blocks must not overlap each other, or sent blocks except in place: tuttiInvalidArgument.
 * In place, this rank's own block is already at its displacement. tuttiAlltoAllV in place has sendbuff == recvbuff and
 * equal counts and displacements, and copies the data once more. */

/* recvbuff[rdispls[r] + i] = rank r's sendbuff[i], i < recvcounts[r]. sendcount == recvcounts[rank]; recvcounts is the
 * same on all ranks, rdispls need not be. */
TUTTI_EXPORT tuttiResult_t tuttiAllGatherV(const void *sendbuff, size_t sendcount, void *recvbuff,
                                           const size_t *recvcounts, const size_t *rdispls, tuttiDataType_t datatype,
                                           tuttiComm_t comm, void *stream);
/* recvbuff[i] = op over ranks of sendbuff[s + i], i < recvcounts[rank], where s is the sum of the counts of all lower
 * ranks. recvcounts is the same on all ranks. */
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
 * As NCCL's. The k-th send from rank A to rank B matches the k-th receive of B from A. Count and datatype must be
 * equal, else tuttiMismatch (for 0, see above). A send completes when its buffer may be reused. That can be before the
 * receive starts, or only after. If ranks send to each other, use a group. The first transfer between two ranks
 * connects them, if no collective has; both ranks must call it. No data of a group moves before all of its ranks are
 * connected. */

/* sendbuff[i], i < count, to rank `peer` of the communicator. */
TUTTI_EXPORT tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t datatype, int peer,
                                     tuttiComm_t comm, void *stream);
/* recvbuff[i], i < count, from rank `peer` of the communicator. */
TUTTI_EXPORT tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t datatype, int peer,
                                     tuttiComm_t comm, void *stream);
/* Opens a group. Collectives, sends and receives that the thread calls from now on, on any communicators, are checked
 * but not started; tuttiGroupEnd starts all of them. Groups may be nested: only the outermost tuttiGroupEnd starts the
 * calls. Sends and receives of a group do not wait for each other, whatever the order of the calls. A rank may send to
 * itself if the same group has the matching receive. Calls of one group must not write memory that another call of the
 * group uses. If collectives of one communicator do so, tuttiGroupEnd returns tuttiInvalidArgument and nothing starts.
 * Sends, receives and collectives with blocks of different counts are not checked. The collectives of one communicator
 * run before its sends and receives, in the order of the calls. Exception: small collectives of one kind run together,
 * with the same results. All ranks must form the same groups (else tuttiMismatch). Communicators do not wait for each
 * other. */
TUTTI_EXPORT tuttiResult_t tuttiGroupStart(void);
/* Closes the group and returns when all calls without a stream are complete. Calls with a stream are queued. Each
 * stream that the group uses for a communicator waits for all calls of that communicator in the group. If a call was
 * refused, nothing of the group starts, and tuttiGroupEnd returns that error. Otherwise it returns the first error of
 * an operation, or of a communicator that another thread uses or has finalized; calls on other communicators go on.
 * tuttiInvalidUsage without tuttiGroupStart. */
TUTTI_EXPORT tuttiResult_t tuttiGroupEnd(void);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_COLLECTIVES_H_ */
