/* tutti: collective communication between the ranks of a job. C99; no C++ or CUDA header is needed.
 *
 * Names, argument order and numeric values follow NCCL's where NCCL has the function. This header includes all others
 * of the C API, which can be included alone, too; what holds for all of them is said here.
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
 * CUDA devices. Of a communicator whose buffers are in the memory of a device (config.device, devlist) `stream` is a
 * cudaStream_t of that device, NULL its default stream, and the call returns when the operation is queued there: it
 * begins when the stream has come to it, however late that is, and what follows in the stream waits for its end.
 * Operations of one communicator run in the order of the calls, whatever their streams. Calls of one group may name
 * several streams: the group begins when all have come to it. tuttiCommSplit, tuttiCommFinalize and tuttiCommDestroy
 * wait until streams have come to all that was called. An operation that fails lets its stream go on, with nothing of
 * use in the receive buffers: tuttiCommGetAsyncError tells of it. tuttiStream_t and tuttiEvent_t are not for such
 * communicators.
 *   A stream that captures a graph captures the operation, to run whenever the graph does, in the order in which one
 * capture has called them; the calls of a group must name one stream then. Graphs of one communicator, and calls beside
 * them, run in the order in which streams come to them, which must be the same on all ranks (where graphs of ranks
 * meet on the device, different calls that meet are tuttiMismatch). A graph must not run twice
 * at the same time, and one that runs after its communicator has been destroyed does nothing of use.
 *   Where up to 8 ranks, all of a communicator's, are in one process and on one device, a kernel does all-reduce,
 * reduce-scatter, all-gather, broadcast, reduce, gather, scatter and all-to-all on their buffers, unless an algorithm
 * is asked for (config.algorithm) or an operator of the program's. Where up to 8 ranks are in several processes of one
 * machine, whose devices reach each other, kernels do longer ones by way of 1 to 64 MiB of memory on each device. Both
 * combine in the order of ranks, other ways in orders of theirs, so that a sum of floats may differ in its last bits
 * from call to call, but not from rank to rank. What is left passes through page-locked memory of the host, which
 * stays the process's and serves later operations: some 24 MiB for each communicator with long messages; calls with
 * blocks of varying counts, and the sends and receives of one call or group, take as much as they have bytes.
 *   Ranks of one process that share a device: a call of a collective waits until the others have made theirs, at most
 * 0.2 s and not for one that the same thread serves, so that all of them come into their streams together; who calls
 * for several ranks in one thread does so in a group. What a kernel does begins when the streams of all ranks have
 * come to it, however late: that is no timeout, and an abort lets the streams go on when they have; only
 * tuttiCommFinalize and tuttiCommDestroy wait no longer than the timeout. What comes apart, sends and receives, and
 * graphs must, as with NCCL, not wait for each other where CUDA makes streams wait: in one stream, in streams that
 * share a queue of the device (CUDA_DEVICE_MAX_CONNECTIONS), or in a call of CUDA that waits for the device before
 * the others have made their calls or launched their graphs: for memory, to make or destroy a graph, or the first
 * launch of a graph that has not been uploaded (cudaGraphUpload) in a new stream. Nor may the device be reset.
 *   Of what a kernel does graphs have it at all ranks or at none: what one has captured meets what another has
 * captured, and not calls beside graphs. Buffers must be the communicator's device's, or page-locked, and those of
 * reductions lie at multiples of their element's size: in a graph others are tuttiInvalidUsage, and calls go by the
 * host. Two graphs of one communicator must not run at the same time, nor a graph beside its calls in other streams.
 * A graph that runs when another rank has left ends at once, as tuttiMismatch; one that another rank does not launch
 * is tuttiTimeout.
 *
 * Fork. A process may fork at any time, whatever its threads and its queued operations are at. The child has none of
 * its parent's communicators, streams and events: they are tuttiInvalidUsage there, it writes nothing to their
 * connections and memory, and it makes its own. It may end as it likes, by exit too, whose handlers and destructors
 * may make any call. One that is forked in a function of tuttiLaunchHostFunc ends as by exit(0) when it returns from
 * that; one that is forked in the function of an operator must not return from it. Memory from tuttiMemAlloc is shared
 * between both: each sees what the other writes, and tuttiMemFree frees it for its caller alone. Until the child ends
 * or calls exec, its copies of the parent's connections keep the parent's peers from noticing the parent's death by
 * them.
 *
 * In place. all-reduce, broadcast, reduce, all-to-all, scan and exscan: sendbuff == recvbuff. reduce-scatter, and
 * scatter on the root: recvbuff == sendbuff + rank * recvcount elements. all-gather, and gather on the root: sendbuff
 * == recvbuff + rank * sendcount elements. Any other overlap is tuttiInvalidArgument.
 *
 * Errors. Every function returns a tuttiResult_t. tuttiGetLastError(NULL), in the thread whose call has returned an
 * error, has the text of that one; with a communicator it has what has failed that, whatever was refused since. A call
 * that is refused for its arguments (tuttiInvalidArgument, tuttiInvalidUsage) has changed nothing ("Refused calls"
 * below). After any other error the communicator is failed: every later operation returns the same error, and it can
 * only be destroyed or aborted. Every call ends: a peer that dies ends every wait with tuttiRemoteError within a
 * second (where no rank has destroyed its communicator before), and the communicator's timeout ends the rest with
 * tuttiTimeout. Only a function of tuttiLaunchHostFunc takes as long as it likes, and what is behind it in its stream
 * with it.
 *
 * Refused calls. The rank may call again with other arguments, and all go on as if nothing had happened. Until then the
 * other ranks may wait in the operation. They are told what the rank has refused, and why: rank 0 logs it within a
 * second if a rank waits. If that rank calls nothing of the communicator for the time of the wait notices
 * (TUTTI_WAIT_NOTICE_MS, 10 seconds), operations that have waited for it as long fail with tuttiRemoteError, which has
 * the reason. So do they at once if the
 * rank leaves or dies; if it calls something else, that is tuttiMismatch. With notices off they wait for the timeout.
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
#ifndef TUTTI_TUTTI_H_
#define TUTTI_TUTTI_H_

#include "tutti/collectives.h"
#include "tutti/communicator.h"
#include "tutti/config.h"
#include "tutti/memory.h"
#include "tutti/operators.h"
#include "tutti/streams.h"
#include "tutti/types.h"

#endif /* TUTTI_TUTTI_H_ */
