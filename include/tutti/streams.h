/* Part of tutti/tutti.h: streams and events for operations on host memory. */
#ifndef TUTTI_STREAMS_H_
#define TUTTI_STREAMS_H_

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Streams and events for host buffers ------------------------------------------------------
 * As CUDA's streams and events, for operations on host memory. Any thread may make these calls, also on the same stream
 * or event as others: one that has found its stream or event goes on with it while another thread destroys it.
 * tuttiInvalidArgument for what is no stream or event, tuttiInvalidUsage for those of the process that this one was
 * forked from; other errors are those of the operations that are waited for. */

/* Makes a stream: a queue of operations that run in order, each when the one before it has ended. It may carry
 * operations of several communicators. One that fails is an error of its communicator and of the stream, and what other
 * communicators have behind it runs. The caller's until tuttiStreamDestroy. */
TUTTI_EXPORT tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream);
/* Waits for all that was queued before the call; returns the first error of what was queued since the last call that
 * found all complete, this one or tuttiStreamQuery: also if later operations have succeeded, and no error twice. How
 * long is bounded by the timeouts of the operations' communicators. */
TUTTI_EXPORT tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
/* tuttiInProgress if what was queued is not complete, else as tuttiStreamSynchronize. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
/* Waits for what was queued, and returns what tuttiStreamSynchronize would; frees the stream in any case. NULL is
 * allowed. Events that were recorded on the stream stay. */
TUTTI_EXPORT tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);
/* A function of the program's in a stream, with the `data` of its launch. */
typedef void (*tuttiHostFn_t)(void *data);
/* As cudaLaunchHostFunc: function(data) is called once, when all that was queued on the stream has ended, and what is
 * queued there afterwards waits for its return. (CUDA does not call it after an error. Here it is called after errors,
 * too, so that what it frees or signals is not lost: it may ask tuttiCommGetAsyncError.) Any number of streams share
 * one thread of the library, made for the first function, with a stack of 2 MiB: functions run one at a time, each when
 * its turn in its stream has come. So one must not wait, by means of its own, for another that has not run yet.
 *
 * A function may ask (tuttiStreamQuery, tuttiEventQuery, tuttiCommGetAsyncError, ...), queue, record and abort. Calls
 * that would wait for what is queued are tuttiInvalidUsage in it, tuttiCommFinalize and tuttiCommDestroy always, which
 * then change nothing. A C++ exception that it throws is an error of the stream, tuttiInternalError or
 * tuttiSystemError. It must not end its thread, nor jump out of the call. It runs in the floating-point mode of the
 * thread that has launched it.
 *
 * Between tuttiGroupStart and tuttiGroupEnd it is queued at once, before what the group has for the stream. Functions
 * that wait when the process exits are not called, and tuttiSystemError to who still waits for them; exit waits for the
 * one that is running, a second at most. A forked child calls none of its parent's. `stream` and `function` must not be
 * NULL. If the call fails the function is not called. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiLaunchHostFunc(tuttiStream_t stream, tuttiHostFn_t function, void *data);
/* Makes an event, a mark in a stream. One that was never recorded is complete. The caller's until tuttiEventDestroy. */
TUTTI_EXPORT tuttiResult_t tuttiEventCreate(tuttiEvent_t *event);
/* The event stands for all that is queued on the stream now, with the errors that the stream has not been asked for,
 * and no longer for what it was recorded for before: an event may be recorded any number of times, on any stream. A thread
 * that waits for what it stood for before goes on waiting for that. `stream` must not be NULL. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream);
/* What is queued on the stream after this call waits for all that the event stands for now, and so does the stream as a
 * whole (tuttiStreamSynchronize, tuttiStreamQuery, events recorded on it). An error of the event is one of the stream,
 * too. No effect if the event was never recorded, or on this stream. `stream` must not be NULL. Does not block. */
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

#endif /* TUTTI_STREAMS_H_ */
