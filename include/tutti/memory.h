/* Part of tutti/tutti.h: memory that peers can map. */
#ifndef TUTTI_MEMORY_H_
#define TUTTI_MEMORY_H_

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Memory -----------------------------------------------------------------------------------
 * Host memory that peers on the same machine can map, so that large transfers need no staging copy. Any thread. */

/* *ptr = `size` bytes, filled with zeros and aligned to 4096 bytes. The caller owns them until tuttiMemFree. *ptr is
 * written only on success. tuttiInvalidArgument if ptr is NULL, or size is 0 or more than SIZE_MAX / 2;
 * tuttiSystemError if there is not enough memory. */
TUTTI_EXPORT tuttiResult_t tuttiMemAlloc(void **ptr, size_t size);
/* Frees memory of tuttiMemAlloc. Call it after the last operation that uses the memory has completed on this rank. NULL
 * is allowed. tuttiInvalidArgument for any other address that is not from tuttiMemAlloc, or is already freed. */
TUTTI_EXPORT tuttiResult_t tuttiMemFree(void *ptr);

/* ---- Registration -----------------------------------------------------------------------------
 * Programs written for NCCL register buffers. tutti registers memory itself when an operation uses it. So these calls
 * only create a handle for the range: they move nothing, wait for no rank, and change no result. Any thread; they are
 * not collective, although NCCL's window calls are. */

/* No flags. */
#define TUTTI_WIN_DEFAULT 0x00
/* NCCL: the ranks' windows are of one size and at one offset. tutti accepts the flag and does not need it. */
#define TUTTI_WIN_COLL_SYMMETRIC 0x01

/* *win = a handle for the `size` bytes at `buff` in this communicator, valid until tuttiCommWindowDeregister or the end
 * of the communicator. tuttiInvalidArgument if buff or win is NULL, size is 0, the range does not fit into the address
 * space, or winFlags is neither TUTTI_WIN_DEFAULT nor TUTTI_WIN_COLL_SYMMETRIC. */
TUTTI_EXPORT tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void *buff, size_t size, tuttiWindow_t *win,
                                                   int winFlags);
/* Frees the handle; the memory stays the caller's. NULL is allowed; tuttiInvalidArgument for any other value that is
 * not a window of this communicator. */
TUTTI_EXPORT tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t win);
/* tuttiCommWindowRegister without flags; *handle is a window. */
TUTTI_EXPORT tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void *buff, size_t size, void **handle);
/* tuttiCommWindowDeregister. */
TUTTI_EXPORT tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void *handle);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_MEMORY_H_ */
