/* Part of tutti/tutti.h: memory that peers can map. */
#ifndef TUTTI_MEMORY_H_
#define TUTTI_MEMORY_H_

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Memory -----------------------------------------------------------------------------------
 * Host memory that peers on the same machine can map, so that large transfers need no staging copy. Any thread. */

/* *ptr = `size` bytes, filled with zeros and aligned to 4096 bytes; the caller's until tuttiMemFree. *ptr is written on
 * success alone. tuttiInvalidArgument if ptr is NULL, or size 0 or more than SIZE_MAX / 2, tuttiSystemError if there is
 * not so much memory. */
TUTTI_EXPORT tuttiResult_t tuttiMemAlloc(void **ptr, size_t size);
/* Frees what tuttiMemAlloc gave, after the last operation that uses it has completed on this rank. NULL is allowed;
 * tuttiInvalidArgument for any other address that tuttiMemAlloc did not give, or that is freed already. */
TUTTI_EXPORT tuttiResult_t tuttiMemFree(void *ptr);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_MEMORY_H_ */
