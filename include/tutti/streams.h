/* Part of tutti/tutti.h: streams and events for operations on host memory. */
#ifndef TUTTI_STREAMS_H_
#define TUTTI_STREAMS_H_

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Streams and events for host buffers ------------------------------------------------------
 * As CUDA's streams and events, for operations on host memory. Any thread may make these calls, also on the same stream
 * or event as other threads. If another thread destroys a stream or event during a call, the call still completes.
 * tuttiInvalidArgument for an invalid stream or event; tuttiInvalidUsage for one of the parent process after a fork.
 * Other errors are those of the operations that the call waits for. */

/* Makes a stream: a queue whose operations run one after another. It may hold operations of several communicators. If
 * an operation fails, its communicator fails and the stream reports the error; later operations of other communicators
 * still run. The caller owns the stream until tuttiStreamDestroy. */
TUTTI_EXPORT tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream);
/* Waits for everything queued before the call. Returns the first error since the last tuttiStreamSynchronize or
 * tuttiStreamQuery that found the stream complete, also if later operations have succeeded. Each error is returned
 * once. The timeouts of the operations' communicators limit the wait. */
TUTTI_EXPORT tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
/* tuttiInProgress if what was queued is not complete, else as tuttiStreamSynchronize. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
/* Waits for everything queued, returns the result of tuttiStreamSynchronize, and frees the stream in any case. NULL is
 * allowed. Events that were recorded on the stream remain. */
TUTTI_EXPORT tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);
/* A user-defined function in a stream, with the `data` of its launch. */
typedef void (*tuttiHostFn_t)(void *data);
/* As cudaLaunchHostFunc: calls function(data) once, when everything queued on the stream has ended. Later work of the
 * stream waits until the function returns. (CUDA does not call the function after an error. tutti does, so that the
 * function can free resources or signal other threads; it may call tuttiCommGetAsyncError.) All streams share one
 * thread of the library, which starts with the first function and has a stack of 2 MiB. It runs one function at a time,
 * so a function must not wait for another one that has not run yet.
 *
 * A function may query (tuttiStreamQuery, tuttiEventQuery, tuttiCommGetAsyncError, ...), queue, record and abort. Calls
 * that would wait for queued work return tuttiInvalidUsage in it and change nothing. tuttiCommFinalize and
 * tuttiCommDestroy always do so. If the function throws a C++ exception, the stream returns tuttiInternalError or
 * tuttiSystemError. It must not end its thread or call longjmp out of the function. It runs in the floating-point mode
 * of the thread that launched it.
 *
 * Between tuttiGroupStart and tuttiGroupEnd the function is queued at once, before the group's work for the stream. At
 * process exit, functions that have not started are not called; threads that wait for them get tuttiSystemError. exit
 * waits at most a second for the function that is running. A forked child calls none of its parent's functions.
 * `stream` and `function` must not be NULL. If the call fails, the function is not called. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiLaunchHostFunc(tuttiStream_t stream, tuttiHostFn_t function, void *data);
/* Makes an event, a mark in a stream. An event that was never recorded is complete. The caller owns the event until
 * tuttiEventDestroy. */
TUTTI_EXPORT tuttiResult_t tuttiEventCreate(tuttiEvent_t *event);
/* The event now marks everything queued on the stream, including errors that the stream has not returned yet. It
 * replaces the earlier mark: an event may be recorded any number of times, on any stream. A thread that waits for the
 * earlier mark continues to wait for that. `stream` must not be NULL. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream);
/* Work queued on the stream after this call waits for everything that the event marks now, and so does the stream as a
 * whole (tuttiStreamSynchronize, tuttiStreamQuery, events recorded on it). An error of the event becomes an error of
 * the stream. No effect if the event was never recorded, or was recorded on this stream. `stream` must not be NULL.
 * Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event);
/* tuttiSuccess if everything that the event marks is complete, tuttiInProgress if not, or the first error among it.
 * Unlike a stream, the event returns its error every time until it is recorded again. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiEventQuery(tuttiEvent_t event);
/* Waits until everything that the event marks at the time of the call is complete. Results are those of
 * tuttiEventQuery. The timeouts of the operations' communicators limit the wait. */
TUTTI_EXPORT tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event);
/* Frees the event at once. Operations continue, and so do threads that wait for this event. NULL is allowed. */
TUTTI_EXPORT tuttiResult_t tuttiEventDestroy(tuttiEvent_t event);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_STREAMS_H_ */
