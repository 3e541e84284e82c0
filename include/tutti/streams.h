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
/* Makes an event, a mark in a stream. One that was never recorded is complete. The caller's until tuttiEventDestroy. */
TUTTI_EXPORT tuttiResult_t tuttiEventCreate(tuttiEvent_t *event);
/* The event stands for all that is queued on the stream now, with the errors that the stream has not been asked for, and
 * no longer for what it was recorded for before: an event may be recorded any number of times, on any stream. A thread
 * that waits for what it stood for before goes on waiting for that. `stream` must not be NULL. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream);
/* What is queued on the stream from now on waits for all that the event stands for now, and so does the stream as a
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
