/* tutti: collective communication between the ranks of a job. C99; no C++ or CUDA header is needed.
 *
 * Names, argument order and numeric values follow NCCL's where NCCL has the function. This header includes all other
 * headers of the C API, which can also be included alone. It states the rules that they have in common.
 *
 * Ranks. A communicator has nranks ranks, numbered from 0. Each rank belongs to one process, or to one thread of a
 * process. All ranks call the same collectives in the same order with matching arguments.
 *
 * Threads. Any thread may make any call at any time. Collectives and tuttiCommFinalize allow one thread at a time per
 * communicator; a second thread gets tuttiInvalidUsage. All other calls may run concurrently with them. Destroy and
 * abort wait until no other thread uses what they free. Do not cancel a thread (pthread_cancel) inside a call;
 * tuttiCommAbort ends a call.
 *
 * Handles are not pointers. Using an invalid, destroyed or aborted handle returns tuttiInvalidArgument; handle values
 * are never reused.
 *
 * Buffers and streams. If `stream` is NULL, the call returns when the operation is complete. With a stream from
 * tuttiStreamCreate, the call queues the operation and returns. Operations of one communicator run in the order in
 * which they were queued, while the caller computes. Buffers must stay valid and untouched until the stream (or an
 * event recorded after the operation) has completed.
 *
 * CUDA devices. If a communicator's buffers are in the memory of a CUDA device (config.device, devlist), `stream` is a
 * cudaStream_t of that device; NULL is its default stream. The call returns once the operation is queued. The operation
 * starts when the stream reaches it. There is no timeout for that. Later work in the stream waits for the operation.
 * Operations of one communicator run in the order of the calls, whatever their streams. Calls of one group may name
 * several streams: the group starts when all of them have reached it. tuttiCommSplit, tuttiCommFinalize and
 * tuttiCommDestroy wait until the streams have reached all calls. If an operation fails, its stream continues and its
 * receive buffers are undefined. Ask tuttiCommGetAsyncError for the error. Such communicators do not use tuttiStream_t
 * and tuttiEvent_t.
 *   If the stream captures a graph, the graph captures the operation. The operation then runs each time the graph runs,
 * in the order of the captured calls. In a capture the calls of a group must name one stream. Graphs and other calls of
 * one communicator run in the order in which streams reach them. This order must be the same on all ranks. If a kernel
 * serves graphs of several ranks together and their calls differ, the operation fails with tuttiMismatch. A graph must
 * not run twice at the same time. If a graph runs after its communicator has been destroyed, its results are undefined.
 *   If a communicator has up to 8 ranks, all in one process and on one device, a kernel does all-reduce,
 * reduce-scatter, all-gather, broadcast, reduce, gather, scatter and all-to-all on their buffers. If up to 8 ranks are
 * in several processes of one machine and their devices reach each other, kernels do longer operations through 1 to 64
 * MiB of memory on each device. Neither kernel serves a call if an algorithm is forced (config.algorithm) or the
 * operator is user-defined. Both combine in the order of ranks, other paths in other orders. So a sum of floats may
 * differ in its last bits from call to call, but not from rank to rank. All other operations pass through page-locked
 * memory of the host. The process keeps this memory for later operations: about 24 MiB for each communicator with long
 * messages. Calls with blocks of varying counts, and the sends and receives of one call or group, need as much as their
 * buffers.
 *   If ranks of one process share a device, a collective call waits at most 0.2 s until the other ranks have called. It
 * does not wait for ranks that the same thread calls for. If one thread calls for several ranks, use a group. A kernel
 * starts when the streams of all ranks have reached it. This wait has no timeout, except in tuttiCommFinalize and
 * tuttiCommDestroy. After an abort the streams continue once they have reached it. CUDA serialises work in one stream,
 * in streams that share a hardware queue (CUDA_DEVICE_MAX_CONNECTIONS), and behind CUDA calls that synchronise the
 * device: allocation, creating or destroying a graph, and the first launch of a graph in a new stream without
 * cudaGraphUpload. As with NCCL, separate calls, sends and receives, and graphs must not wait for each other if CUDA
 * serialises them. Make a call that synchronises the device only after all ranks have made their calls or launched
 * their graphs. Do not reset the device.
 *   If a kernel serves an operation, either all ranks capture it in a graph or none does. A captured call matches only
 * captured calls of the other ranks. Buffers must be in memory of the communicator's device or page-locked. Buffers of
 * reductions must be aligned to the size of an element. In a graph, other buffers are tuttiInvalidUsage; calls outside
 * graphs pass through the host. Two graphs of one communicator must not run at the same time. A graph must not run at
 * the same time as calls of its communicator in other streams. If another rank has left, a graph ends at once with
 * tuttiMismatch. If another rank does not launch its graph, it ends with tuttiTimeout.
 *
 * Fork. A process may fork at any time, also while its threads and queued operations run. In the child, calls on the
 * parent's communicators, streams and events return tuttiInvalidUsage. The child writes nothing to their connections
 * and memory. It may create its own. The child may end in any way, including exit(), whose handlers and destructors may
 * make any call. A child forked in a tuttiLaunchHostFunc function exits with status 0 when that function returns. A
 * child forked in an operator function must not return from it. Parent and child share memory from tuttiMemAlloc: each
 * sees what the other writes. tuttiMemFree frees it only in the calling process. Until the child ends or calls exec, it
 * holds copies of the parent's connections. If the parent dies before that, its peers detect the death only by the
 * timeout.
 *
 * In place. all-reduce, broadcast, reduce, all-to-all, scan and exscan: sendbuff == recvbuff. reduce-scatter, and
 * scatter on the root: recvbuff == sendbuff + rank * recvcount elements. all-gather, and gather on the root: sendbuff
 * == recvbuff + rank * sendcount elements. For collectives, any other overlap is tuttiInvalidArgument. Overlapping
 * buffers of sends and receives are not detected.
 *
 * Errors. Every function returns a tuttiResult_t. tuttiGetLastError(NULL) returns the text of the calling thread's last
 * error. tuttiGetLastError(comm) returns the error that failed the communicator, even if calls were refused later. A
 * call that is refused for its arguments (tuttiInvalidArgument, tuttiInvalidUsage) changes nothing ("Refused calls"
 * below). After any other error the communicator has failed: every later operation returns the same error, and only
 * tuttiCommAgree, tuttiCommShrink, tuttiCommGrow and the calls that end it are useful. Every call ends. If a peer dies,
 * operations that wait for it fail with tuttiRemoteError within a second (if no rank has destroyed its communicator
 * before). All other waits end with tuttiTimeout after the communicator's timeout. There is one exception: a
 * tuttiLaunchHostFunc function has no time limit. Everything behind it in its stream waits for it.
 *
 * Refused calls. The refused rank may call again with correct arguments; then all ranks continue normally. Until then
 * the other ranks may wait in the operation. They receive the refused call and the reason; if a rank waits, rank 0 logs
 * both within a second. If the refused rank makes no further call on the communicator for TUTTI_WAIT_NOTICE_MS (10
 * seconds), operations that have waited that long for it fail with tuttiRemoteError and the reason. They fail at once
 * if the rank leaves or dies. If it calls a different operation, they fail with tuttiMismatch. If wait notices are off,
 * they wait for the timeout.
 *
 * Buffers after an error. When the call (or the stream) has returned the error, the buffers are the caller's again:
 * peers have stopped reading and writing them, and they may be freed. If a peer is another thread of this process, the
 * call waits until that thread has finished the piece, of at most 256 KiB, that it is copying or combining. A peer
 * process reads and writes memory of tuttiMemAlloc through its own mapping. If the peer is stopped in the middle of a
 * piece, the call returns after a second. When the peer continues, it may still write the rest of that piece to a
 * receive buffer there, until its own operation fails. A peer reads other memory by a system call. After such a stop it
 * may read that memory once more; it discards what it has read. An operation never succeeds with bytes read from a peer
 * whose operation had already failed. */
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
