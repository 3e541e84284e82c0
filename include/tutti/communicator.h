/* Part of tutti/tutti.h: version and errors; creating, querying and ending communicators. */
#ifndef TUTTI_COMMUNICATOR_H_
#define TUTTI_COMMUNICATOR_H_

#include "tutti/config.h"
#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Library ---------------------------------------------------------------------------------- */

/* *version = major * 10000 + minor * 100 + patch of the library that is loaded, which may be newer than this header
 * (TUTTI_VERSION_CODE). tuttiInvalidArgument if version is NULL. */
TUTTI_EXPORT tuttiResult_t tuttiGetVersion(int *version);
/* A short constant text for a result; "unknown result code" for any other value; never NULL. The library owns it. */
TUTTI_EXPORT const char *tuttiGetErrorString(tuttiResult_t result);
/* The full text of the last error of `comm`, from any thread. If the communicator has failed, that is the error that
 * failed it; else the error of the last refused call. If comm is NULL or not a valid communicator, it is the last error
 * returned to the calling thread. tuttiInProgress is not an error. A successful call keeps the text. Never NULL; empty
 * if there was no error. The library owns the text. It is valid until the calling thread calls this function again or
 * ends. Any thread, also during an operation; does not block. */
TUTTI_EXPORT const char *tuttiGetLastError(tuttiComm_t comm);

/* ---- Communicators ---------------------------------------------------------------------------- */

/* Makes the id of a new communicator and starts listening for its ranks in this process, usually rank 0's. The process
 * must live until all ranks have joined. One id makes one communicator. The call takes no configuration: interface,
 * port range, init timeout and wait notice come from the environment. tuttiInvalidUsage if a variable is invalid,
 * tuttiSystemError if no port is available. Does not wait for other ranks. */
TUTTI_EXPORT tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *id);

/* Joins the communicator of `id` as `rank` of `nranks`. Collective: returns when all ranks have joined, or fails after
 * the init timeout. 0 <= rank < nranks. *comm is written only on success. The caller owns it until tuttiCommDestroy or
 * tuttiCommAbort. Errors of all calls that make communicators: tuttiInvalidArgument; tuttiInvalidUsage (invalid
 * variable, no launcher, too many communicators); tuttiTimeout, whose text names the ranks that have not joined;
 * tuttiRemoteError if a rank died or failed meanwhile; tuttiSystemError. Ranks that do not agree about the job (its
 * size, which process has which rank) get tuttiInvalidUsage, which names them. If a rank is refused for its settings
 * (config, TUTTI_ variables except those that describe the job), it tells the other ranks, which then fail too. The
 * refused rank tries for up to 5 s to reach the root service. The id is then used up. */
TUTTI_EXPORT tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank);
/* tuttiCommInitRank with settings. config may be NULL; the caller may change or free it when the call returns. */
TUTTI_EXPORT tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank,
                                                   const tuttiConfig_t *config);
/* Joins the job that the launcher describes in the environment: torchrun, Open MPI's mpirun, MPICH's mpiexec (Hydra),
 * srun, or TUTTI_RANK, TUTTI_WORLD_SIZE and TUTTI_ROOT=host:port. tuttiInvalidUsage if there is no job. Collective.
 * config as above. */
TUTTI_EXPORT tuttiResult_t tuttiCommInitEnv(tuttiComm_t *comm, const tuttiConfig_t *config);
/* Makes all ndev >= 1 communicators of a job whose ranks are threads of this process. comms[i] is rank i; use each from
 * a thread of its own. devlist[i] is the CUDA device of rank i. If all entries are -1, buffers are in host memory. If
 * devlist is NULL, config.device says where buffers are (default: in host memory). Several ranks may share a device.
 * The call makes all communicators or none; comms is written only on success. */
TUTTI_EXPORT tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int ndev, const int *devlist);
/* tuttiCommInitAll with settings, which apply to all ranks; config as above. */
TUTTI_EXPORT tuttiResult_t tuttiCommInitAllConfig(tuttiComm_t *comms, int ndev, const int *devlist,
                                                  const tuttiConfig_t *config);

/* A color of tuttiCommSplit: no communicator. */
#define TUTTI_SPLIT_NOCOLOR (-1)

/* Makes communicators of the ranks of `comm`, as ncclCommSplit. The ranks with the same color >= 0 form one
 * communicator. They are ordered by key, and for equal keys by their ranks in `comm`. With TUTTI_SPLIT_NOCOLOR a rank
 * takes part and gets *newcomm = NULL. Collective: an operation of `comm`, behind its queued operations. No rank joins
 * again: a new communicator shares the listening sockets and the failure-detection connections of `comm`, and starts no
 * thread. It makes its own links when operations first need them. `comm` and the communicators split from it are
 * independent: each can be split, and they may be finalized, destroyed and aborted in any order. If one fails, the
 * others do not, but a rank that dies fails all communicators it belongs to.
 *
 * If config is NULL, the new communicator has the settings of `comm`, including those that rank 0 of `comm` decides.
 * Otherwise config changes the fields that it sets. For the settings that rank 0 decides, the value of the new
 * communicator's rank 0 applies. A new communicator cannot add a transport, or change interface, port range or RDMA
 * settings (tuttiInvalidArgument). The memory of its buffers (config.device) may change if all of its ranks set it.
 *
 * *newcomm is written only on success; the caller owns it. All ranks make their communicator or none does. If a rank is
 * refused for its arguments, or because its thread has an open group, it gets tuttiInvalidArgument or
 * tuttiInvalidUsage; all others get tuttiInvalidUsage with that rank and the reason. If a rank cannot make its
 * communicator, it gets the cause (tuttiSystemError) and the others get tuttiRemoteError. `comm` stays usable in either
 * case. Exception: if a rank dies or aborts `comm` during the call, some of the others may have their new communicator,
 * and the rest get tuttiRemoteError. The new communicators then fail: within a second their operations return
 * tuttiRemoteError. An operation that needs only ranks that have the communicator may succeed before that.
 *
 * `comm` itself fails as in other operations: with tuttiMismatch if a rank calls something else. */
TUTTI_EXPORT tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm,
                                          const tuttiConfig_t *config);

/* Makes a communicator of some ranks of `comm`, as MPI_Comm_create_group: collective over these ranks only. ranks[i] is
 * the rank in `comm` of rank i of the new communicator; the caller must be among them. All of them pass the same list
 * and the same id. One of them gets the id from tuttiCommGetGroupId and passes it to the others. The new communicator
 * shares the same resources as a communicator from tuttiCommSplit, and config has the same meaning.
 *
 * This call is not an operation of `comm`: any thread may call it, during operations and in any order with them. `comm`
 * may have failed. Returns when all members have their communicator, or fails after the init timeout: tuttiTimeout
 * names the ranks that have not called it. Errors use the rank numbers of the group. tuttiCommAbort of `comm` ends the
 * call. tuttiCommRevoke of `comm` on any rank during the call ends it with tuttiAborted on all members. If a member has
 * destroyed its `comm` without calling this, the others get tuttiRemoteError. If it has aborted its `comm`, they get
 * tuttiRemoteError or tuttiAborted. tuttiCommDestroy of `comm` waits for this call. An id serves one group:
 * tuttiInvalidUsage if another communicator of this rank uses it or used it recently. If a rank is refused for its
 * config, it tells the others, which get tuttiRemoteError or tuttiInvalidUsage with its reason. A rank that is refused
 * for `ranks` or `id` (tuttiInvalidArgument) cannot tell them. *newcomm is written only on success. */
TUTTI_EXPORT tuttiResult_t tuttiCommCreateGroup(tuttiComm_t comm, uint64_t id, int nranks, const int *ranks,
                                                tuttiComm_t *newcomm, const tuttiConfig_t *config);
/* Writes an id for one group of ranks of `comm`, or of communicators that share its connections. No other rank gets the
 * same one. Any thread; does not wait for other ranks. */
TUTTI_EXPORT tuttiResult_t tuttiCommGetGroupId(tuttiComm_t comm, uint64_t *id);

/* Waits for queued operations. Tells the peers that this rank leaves, and which operations it has called. Waits at most
 * two seconds for unsent data, then at most one second for the other ranks to finalize. It does not wait for them if
 * the communicator has failed, or if one thread calls for several of its ranks. If some ranks have not finalized in
 * that time, the next communicator of this process waits half as long, down to 1 ms. If all have, the next one waits
 * twice as long, up to a second.
 *
 * tuttiMismatch if ranks have called different collectives, or one more than another, also if those exchanged no data.
 * A rank whose wait has run out may return tuttiSuccess; the ranks that leave after it get the error. If an operation
 * needs data of a rank that has left without calling it, or has called something else, the operation itself fails with
 * tuttiMismatch; a receive fails with tuttiRemoteError. Later operations return tuttiInvalidUsage. Queries,
 * tuttiCommAbort and tuttiCommDestroy remain allowed. A second tuttiCommFinalize does nothing and returns
 * tuttiSuccess. */
TUTTI_EXPORT tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);
/* Waits for an operation of another thread, finalizes if the caller has not, and frees the communicator. Exception: if
 * the thread has calls of the communicator in an open group, the call returns tuttiInvalidUsage and frees nothing.
 * tuttiCommAbort ends the wait. Returns tuttiMismatch in the cases of tuttiCommFinalize, unless a collective,
 * tuttiCommFinalize, or a stream or event with an operation of the communicator has returned it before. Other failures
 * of the communicator are not errors of this call. NULL is allowed. */
TUTTI_EXPORT tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);
/* Ends all operations at once, here and on the peers (they get tuttiAborted), and frees the communicator. Another
 * thread may be inside an operation, finalize or destroy. That call returns soon; an operation or finalize returns
 * tuttiAborted. Later calls of that thread on the communicator are refused. */
TUTTI_EXPORT tuttiResult_t tuttiCommAbort(tuttiComm_t comm);
/* As ncclCommGetUniqueId: *id = a new unique id, as of tuttiGetUniqueId, for a communicator that includes other ranks,
 * such as ranks that start later. Interface, port range, init timeout and wait notice are those of `comm`. The ranks
 * must join within the init timeout; until then, the id keeps a port and a thread of this process. The call
 * does not change `comm`, which may have failed. One rank makes the call and passes the id to the others. Its process
 * must live until all ranks of the new communicator have joined. *id is written only on success. Any thread; waits for
 * no rank. */
TUTTI_EXPORT tuttiResult_t tuttiCommGetUniqueId(tuttiComm_t comm, tuttiUniqueId *id);
/* The only value of the flags of tuttiCommRevoke. */
#define TUTTI_REVOKE_DEFAULT 0
/* As ncclCommRevoke: ends all running and queued operations of the communicator, here and on the peers. They and all
 * later operations return tuttiAborted; the text names the rank that revoked it. Frees nothing: queries,
 * tuttiCommDestroy and tuttiCommAbort may follow. A communicator that has already failed keeps its error. Any thread,
 * any number of times, also while other threads are inside an operation, finalize or destroy. Does not wait for peers.
 * flags must be TUTTI_REVOKE_DEFAULT. */
TUTTI_EXPORT tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int flags);

/* ---- Going on after a failure
 *
 * tuttiCommAgree and tuttiCommShrink are collective over the ranks of `comm` that live (and, for tuttiCommShrink, are
 * not excluded). They work in any state of `comm` before tuttiCommFinalize: while it works, after it has failed, and
 * after tuttiCommRevoke. All ranks make the same of these calls in the same order. They are not operations of `comm`:
 * another thread may be inside an operation, but not inside another of these calls (tuttiInvalidUsage). If ranks die
 * before or during a call, all others get the same result. An agreement takes two messages on each connection of the
 * ranks' control tree, plus the time in which a death is noticed. tuttiCommShrink takes two agreements and the steps of
 * tuttiCommCreateGroup.
 *
 * tuttiMismatch: two ranks have made different calls. tuttiRemoteError: a rank has left `comm` (tuttiCommFinalize,
 * tuttiCommDestroy, tuttiCommAbort) and did not call; or the other ranks wait for this rank no longer. tuttiTimeout: a
 * rank that lives did not call before the first of the others' timeouts was over, or was stopped for that time; the
 * text says what it has called instead, if known. If ranks exclude different ranks, they wait for each other:
 * tuttiTimeout. All ranks get these errors. tuttiAborted: another thread of this rank has called tuttiCommAbort.
 *
 * These errors do not fail `comm`. Exception: if this rank's time was over, but the others have a result, `comm` fails
 * with tuttiTimeout. tuttiGetLastError(NULL) has the text of an error; after a failure, tuttiGetLastError(comm) has
 * that of the failure. */

/* *flag = the bitwise AND of the values of all ranks, as MPIX_Comm_agree: the same on all ranks that live. It contains
 * the value of each rank that tuttiCommGetFailed does not list afterwards. Ends within TUTTI_TIMEOUT_MS. After an error
 * *flag is unchanged. */
TUTTI_EXPORT tuttiResult_t tuttiCommAgree(tuttiComm_t comm, uint64_t *flag);
/* *count = the number of ranks of `comm` that have died, as found by the calls of tuttiCommAgree, Shrink and Grow so
 * far: the same on all ranks that have made the same calls. ranks[0..min(capacity, *count)) = these ranks, ascending;
 * `ranks` may be NULL if capacity is 0. Any thread; waits for no rank. */
TUTTI_EXPORT tuttiResult_t tuttiCommGetFailed(tuttiComm_t comm, int *ranks, int capacity, int *count);

/* Survivor mode (config.survivors, TUTTI_SURVIVORS=on): a collective in which ranks die succeeds on all that live, with
 * the data of the same ranks, or fails on all. Sums are those of these ranks; tuttiAvg divides by their number. Blocks
 * of absent ranks in receive buffers are untouched, and so is the whole buffer after an error. Without
 * config.straggler_ms, a rank is left out only after all others have agreed that it has died. The ranks keep their
 * numbers, and arguments are as before: blocks and counts also of absent ranks. If the root has died, the call returns
 * tuttiRemoteError on all ranks; later calls work. After any error other than this, refused arguments and a late rank or
 * root, all later collectives return it.
 *   If config.straggler_ms is set and a collective waits longer for a rank, the others leave that rank out: 1 to 2 s
 * after the limit, at the latest after four times the limit and a second. Its call returns tuttiTimeout ("this rank was
 * late"), writes nothing, and fails nothing. With its next call it waits, at most for the timeout. The others take it
 * back after their current collective, or up to one limit later if another rank is late. That call and the next ones
 * return tuttiTimeout until the rank is at the others' next collective: so the n-th call of each rank is the same
 * collective. If the root is late, the others get tuttiRemoteError. The limit also applies to sends and receives, which
 * fail with tuttiTimeout. Splits are refused.
 *   Each collective also takes an agreement and a copy of its result, and memory for that copy. Buffers are in host
 * memory (tuttiInvalidUsage). Sends and receives are not agreed on: they return tuttiRemoteError if their peer is dead,
 * or if any rank has died since the last collective. tuttiCommSplit returns tuttiRemoteError if a rank dies meanwhile,
 * and is refused once a rank is absent; tuttiCommShrink makes a communicator that it accepts.
 *
 * *count = the number of ranks whose data is in the last collective of `comm` that succeeded on this rank: the same on
 * all ranks on which it did. After a group it is that of its last collective; a call with count 0 does not change it.
 * Before the first collective these are all ranks. ranks[0..min(capacity, *count)) = these ranks, ascending; `ranks` may
 * be NULL if capacity is 0. Without survivor mode these are all ranks. Any thread; waits for no rank. */
TUTTI_EXPORT tuttiResult_t tuttiCommGetContributors(tuttiComm_t comm, int *ranks, int capacity, int *count);

/* The flags of tuttiCommShrink. */
#define TUTTI_SHRINK_DEFAULT 0 /* leaves the operations of `comm` alone */
#define TUTTI_SHRINK_ABORT 1   /* first ends them, as tuttiCommRevoke */
/* As ncclCommShrink: *newcomm = a communicator of the ranks of `comm` that live and are not in excludeRanksList, in the
 * order of their ranks. Excluded ranks do not call; they may live or be dead. Kill a stopped process first: it forwards
 * nothing, so ranks below it in the control tree could not take part. All other ranks pass the same list, in any order.
 * It may be empty (excludeRanksCount 0, excludeRanksList NULL): then the ranks find out which of them live. Ranks that
 * die during the call are left out as well. tuttiCommGetFailed lists all that have died, except excluded ones.
 *
 * The new communicator shares the same resources as a communicator from tuttiCommSplit, and config has the same
 * meaning. `comm` is unchanged; the caller still owns it. All ranks get their communicator, or all get an error: if one
 * cannot make its own, it gets the cause, and the others get tuttiRemoteError or the reason. Arguments that are not
 * valid (a list with the caller or a rank outside `comm`, NULL for newcomm, other flags) are tuttiInvalidArgument, and
 * the other ranks wait for this one. The call has three steps (an agreement, the connection, an agreement). Each ends
 * within the init timeout; if ranks die, they begin again. *newcomm is written only on success; the caller owns it. */
TUTTI_EXPORT tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int *excludeRanksList, int excludeRanksCount,
                                           tuttiComm_t *newcomm, const tuttiConfig_t *config, int shrinkFlags);

/* As ncclCommGrow: *newcomm = a communicator of nRanks ranks: those of `comm` that live, and new ones. One rank of
 * `comm` calls tuttiCommGetUniqueId(comm, &id) and sends the id to the new ranks, in any way. Then all call:
 *
 *   ranks of `comm`   comm, nRanks, &id or NULL, -1, &newcomm: each keeps its rank. At least one passes the id.
 *   new ranks         NULL, nRanks, &id, rank, &newcomm: each of the other numbers from 0 to nRanks - 1 once. So a new
 *                     rank can replace one that has died. It makes the same call as tuttiCommInitRankConfig.
 *
 * Collective over the ranks of `comm` that live and the new ranks, which may call earlier. `comm` may work, may have
 * failed, or be revoked. It is unchanged, and the caller still owns it; tuttiCommGetFailed lists its dead ranks. For
 * the ranks of `comm`, config has the meaning of tuttiCommSplit: they begin with their settings in `comm`. The new
 * communicator shares no resources with it: its connections are made when first used.
 *
 * The ranks of `comm` all get their communicator, or all get an error. In the second case, a new rank gets an error, or
 * a communicator that then fails with the reason. The call has three steps on ranks of `comm`: an agreement, the
 * joining, an agreement. Each ends within the init timeout. Errors:
 *
 *   tuttiRemoteError    a rank has died that was alive when the call began, or has refused its arguments or the id
 *   tuttiTimeout        ranks did not come; the text names them. A rank that has died before counts as one that a new
 *                       rank replaces
 *   tuttiMismatch       two ranks of `comm` have made different calls, or passed different numbers or ids
 *   tuttiInvalidUsage   two ranks have the same number, a new rank has passed another nRanks, or no rank an id
 *   tuttiInvalidArgument  only on the rank itself, and on all ranks of `comm` if nRanks has no place for one of them
 *   tuttiAborted        a rank has called tuttiCommAbort for `comm` meanwhile
 *
 * After an error, make another id. *newcomm is written only on success; the caller owns it. On ranks of `comm`, threads
 * as for tuttiCommShrink. */
TUTTI_EXPORT tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int nRanks, const tuttiUniqueId *id, int rank,
                                         tuttiComm_t *newcomm, const tuttiConfig_t *config);

/* *error = tuttiSuccess, or the error that failed the communicator. Does not block. A CUDA device that no longer works
 * is detected only when the communicator is finalized or destroyed. */
TUTTI_EXPORT tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *error);
/* *count = the number of ranks, also of a communicator that has failed. Does not block. */
TUTTI_EXPORT tuttiResult_t tuttiCommCount(tuttiComm_t comm, int *count);
/* *rank = this rank's number, from 0 to count - 1. As tuttiCommCount. */
TUTTI_EXPORT tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int *rank);
/* *device = the CUDA device the communicator is bound to, or -1 for host memory. As tuttiCommCount. */
TUTTI_EXPORT tuttiResult_t tuttiCommCuDevice(tuttiComm_t comm, int *device);

/* Which algorithm and transports serve a collective on a vector of `bytes` bytes (of all blocks together, if the vector
 * has a block for each rank), as "ALGORITHM over TRANSPORTS": for example "ring over shm+tcp". For buffers on a CUDA
 * device: "direct" (a kernel, when the ranks' calls arrive together), "direct by windows", or "... through the host".
 * Writes at most `size` bytes to `text`, including the terminating zero; 128 are enough. tuttiInvalidArgument if the
 * text does not fit (nothing is written), or if `collective` is not a tuttiCollective_t; tuttiInvalidUsage if a forced
 * algorithm does not serve these ranks. Connects and runs nothing. The algorithm is the same on every rank. So are the
 * transports, unless RDMA connects only some of the hosts; then each rank names the transports that it uses. If an
 * operator does not commute, another algorithm that keeps the rank order may serve. Any thread.
 *
 * With a `size` below 1024, the text is this one line. From 1024 on, further lines follow if an algorithm is selected.
 * The second line has the reason ("forced: ...", "measured to be fastest: ...", "predicted to be fastest"). If
 * predictions use the fitted costs of a measured job (TUTTI_TUNING), it also names that job. Then follows a line for
 * each usable algorithm, the fastest first, as many as fit: "ring: predicted 12.3 us", or "ring: not predicted".
 * Newlines separate the lines; no line is cut off, and the last one ends without a newline. Do not parse the lines
 * after the first: their format may change. */
TUTTI_EXPORT tuttiResult_t tuttiCommExplain(tuttiComm_t comm, tuttiCollective_t collective, size_t bytes, char *text,
                                            size_t size);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_COMMUNICATOR_H_ */
