/* tutti: collective communication between the ranks of a job. C99; no C++ or CUDA header is needed.
 *
 * Names, argument order and numeric values follow NCCL's where NCCL has the function. This header includes all other
 * headers of the C API, which can also be included alone. It states the rules that they have in common.
 *
 * Ranks. A communicator has nranks ranks, numbered from 0; each belongs to one process, or to one thread of a process.
 * All ranks call the same collectives in the same order with matching arguments.
 *
 * Threads. Any thread may make any call at any time. Collectives and tuttiCommFinalize serve one thread at a time per
 * communicator; while one is inside, another gets tuttiInvalidUsage. All other calls may be made beside them. Destroy
 * and abort wait until no other thread uses what they free. A thread must not be cancelled (pthread_cancel) inside a
 * call; tuttiCommAbort ends one.
 *
 * Handles are not pointers. Using an invalid, destroyed or aborted handle returns tuttiInvalidArgument; handle values
 * are never reused.
 *
 * Buffers and streams. If `stream` is NULL, the call returns when the operation is complete. With a stream from
 * tuttiStreamCreate, the call queues the operation and returns. Operations of one communicator run in the order in
 * which they were queued, beside the caller's computation. Buffers must stay valid and untouched until the stream (or
 * an event recorded after the operation) has completed.
 *
 * CUDA devices. If a communicator's buffers are in the memory of a CUDA device (config.device, devlist), `stream` is a
 * cudaStream_t of that device; NULL is its default stream. The call returns once the operation is queued. The operation
 * starts when the stream reaches it, however late; later work in the stream waits for it. Operations of one
 * communicator run in the order of the calls, whatever their streams. Calls of one group may name several streams: the
 * group starts when all of them have reached it. tuttiCommSplit, tuttiCommFinalize and tuttiCommDestroy wait until the
 * streams have reached all calls. If an operation fails, its stream continues and its receive buffers are undefined.
 * Ask tuttiCommGetAsyncError for the error. Such communicators do not use tuttiStream_t and tuttiEvent_t.
 *   A stream that captures a graph captures the operation. It then runs whenever the graph does, in the order of the
 * calls in the capture. In a capture the calls of a group must name one stream. Graphs of one communicator, and calls
 * beside them, run in the order in which streams reach them. This order must be the same on all ranks; if a kernel
 * serves graphs of several ranks together, different calls in them are tuttiMismatch. A graph must not run twice at the
 * same time. A graph that runs after its communicator has been destroyed has no useful results.
 *   If a communicator has up to 8 ranks, all in one process and on one device, a kernel does all-reduce,
 * reduce-scatter, all-gather, broadcast, reduce, gather, scatter and all-to-all on their buffers. If up to 8 ranks are
 * in several processes of one machine and their devices reach each other, kernels do longer operations by way of 1 to
 * 64 MiB of memory on each device. Neither kernel serves a call if an algorithm is forced (config.algorithm) or the
 * operator is user-defined. Both combine in the order of ranks, other paths in other orders. So a sum of floats may
 * differ in its last bits from call to call, but not from rank to rank. All other operations pass through page-locked
 * memory of the host. The process keeps this memory for later operations: some 24 MiB for each communicator with long
 * messages. Calls with blocks of varying counts, and the sends and receives of one call or group, take as much as they
 * have bytes.
 *   If ranks of one process share a device, a collective call waits at most 0.2 s until the other ranks have called. It
 * does not wait for ranks that the same thread serves. If one thread calls for several ranks, use a group. A kernel
 * starts when the streams of all ranks have reached it. This wait has no timeout, except in tuttiCommFinalize and
 * tuttiCommDestroy. After an abort the streams continue once they have reached it. CUDA serialises work in one stream,
 * in streams that share a hardware queue (CUDA_DEVICE_MAX_CONNECTIONS), and behind CUDA calls that synchronise the
 * device: allocation, creating or destroying a graph, and the first launch of a graph in a new stream without
 * cudaGraphUpload. As with NCCL, separate calls, sends and receives, and graphs must not wait for each other if CUDA
 * serialises them. Make a call that synchronises the device only after all ranks have made their calls or launched
 * their graphs. Do not reset the device.
 *   If a kernel serves an operation, either all ranks capture it in a graph or none does. A captured call matches only
 * captured calls of the other ranks. Buffers must be in memory of the communicator's device or page-locked, and those
 * of reductions aligned to the size of an element. In a graph, other buffers are tuttiInvalidUsage; calls outside of
 * graphs pass through the host. Two graphs of one communicator must not run at the same time, nor a graph beside its
 * calls in other streams. If another rank has left, a graph ends at once with tuttiMismatch. If another rank does not
 * launch its graph, it ends with tuttiTimeout.
 *
 * Fork. A process may fork at any time, also while its threads and queued operations run. In the child the parent's
 * communicators, streams and events are tuttiInvalidUsage. The child writes nothing to their connections and memory,
 * and may make its own. The child may end in any way, including exit(), whose handlers and destructors may make any
 * call. A child forked in a tuttiLaunchHostFunc function exits with status 0 when that function returns. A child forked
 * in an operator function must not return from it. Memory from tuttiMemAlloc is shared between both: each sees what the
 * other writes, and tuttiMemFree frees it for its caller alone. Until the child ends or calls exec, it holds copies of
 * the parent's connections. If the parent dies before that, its peers detect the death only by the timeout.
 *
 * In place. all-reduce, broadcast, reduce, all-to-all, scan and exscan: sendbuff == recvbuff. reduce-scatter, and
 * scatter on the root: recvbuff == sendbuff + rank * recvcount elements. all-gather, and gather on the root: sendbuff
 * == recvbuff + rank * sendcount elements. For collectives, any other overlap is tuttiInvalidArgument. Overlapping
 * buffers of sends and receives are not detected.
 *
 * Errors. Every function returns a tuttiResult_t. tuttiGetLastError(NULL) returns the text of the calling thread's last
 * error. tuttiGetLastError(comm) returns the error that failed the communicator, even if calls were refused later. A
 * call that is refused for its arguments (tuttiInvalidArgument, tuttiInvalidUsage) changes nothing ("Refused calls"
 * below). After any other error the communicator has failed: every later operation returns the same error, and it can
 * only be destroyed or aborted. Every call ends. If a peer dies, waits for it end with tuttiRemoteError within a second
 * (if no rank has destroyed its communicator before). All other waits end with tuttiTimeout after the communicator's
 * timeout. There is one exception: a tuttiLaunchHostFunc function may run without limit, and delays everything behind
 * it in its stream.
 *
 * Refused calls. The rank may call again with other arguments; then all ranks go on as if nothing had happened. Until
 * then the other ranks may wait in the operation. They receive the refused call and the reason; rank 0 logs both within
 * a second if a rank waits. If that rank calls nothing of the communicator for the time of the wait notices
 * (TUTTI_WAIT_NOTICE_MS, 10 seconds), operations that have waited for it as long fail with tuttiRemoteError and the
 * reason. They fail so at once if the rank leaves or dies. If it calls something else, that is tuttiMismatch. If
 * notices are off, they wait for the timeout.
 *
 * Buffers after an error. When the call (or the stream) has returned the error, the buffers are the caller's again:
 * peers have stopped reading and writing them, and they may be freed. If a peer is another thread of this process, the
 * call waits until it has finished the piece, of at most 256 KiB, that it is copying or combining. A peer process reads
 * and writes memory of tuttiMemAlloc through its own mapping. If the peer is stopped in the middle of a piece, the call
 * returns after a second. When the peer continues, it may still write the rest of that piece to a receive buffer there,
 * until its own operation fails. A peer reads other memory by a system call. After such a stop it may read that memory
 * once more, and discards what it read. An operation never succeeds with bytes that it has read from memory of a peer
 * whose operation had failed before.
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
