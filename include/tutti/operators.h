/* Part of tutti/tutti.h: user-defined datatypes and operators. */
#ifndef TUTTI_OPERATORS_H_
#define TUTTI_OPERATORS_H_

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Datatypes --------------------------------------------------------------------------------
 * User-defined datatypes, such as structures, for every call that takes a datatype. Calls move them as bytes; an
 * operator of tuttiRedOpCreate combines them. A handle is valid for one communicator. Using it with another one, or
 * after it is destroyed, returns tuttiInvalidArgument. In each operation the ranks must agree about the bytes of an
 * element; the numbers of the handles may differ. Any thread may create and destroy datatypes, also while operations
 * run. */

/* *datatype = a datatype whose elements have `element_bytes` bytes, 1 to 4096. Elements are never cut: an operator's
 * function gets whole elements, aligned in any way, and *datatype. */
TUTTI_EXPORT tuttiResult_t tuttiTypeCreate(tuttiDataType_t *datatype, size_t element_bytes, tuttiComm_t comm);
/* Frees the datatype; queued and running operations keep it. The end of the communicator frees all remaining datatypes.
 * A built-in datatype is tuttiInvalidArgument. */
TUTTI_EXPORT tuttiResult_t tuttiTypeDestroy(tuttiDataType_t datatype, tuttiComm_t comm);

/* ---- Operators --------------------------------------------------------------------------------
 * User-defined operators, for tuttiAllReduce, tuttiReduce, tuttiReduceScatter, tuttiReduceScatterV, tuttiScan and
 * tuttiExscan. A handle is valid for one communicator. Using it with another one, or after it is destroyed, returns
 * tuttiInvalidArgument. Every rank makes its own operator. In each operation the ranks must agree about the kind of
 * operator (pre-multiplied sum, a function that commutes, one that does not); the numbers of the handles may differ. A
 * process can create 2 * 10^9 operators and datatypes. Any thread may create and destroy them, also while operations
 * run. */

/* in and inout have `count` elements of `datatype` each: inout[i] = in[i] op inout[i], for i < count. `in` holds the
 * operand of the lower ranks. The function gets pieces of the vectors, cut between any two elements. The pieces may
 * have any alignment, whatever the alignment of the caller's buffers. It runs in the thread of a blocking call, or for
 * a stream in a thread of the library with a stack of 2 MiB. It runs in the floating-point mode (rounding, denormals)
 * of the thread that made the call. It must be associative, and must not access other elements of these vectors. It
 * must not call this library: every function except tuttiGetVersion, tuttiGetErrorString and tuttiGetLastError returns
 * tuttiInvalidUsage there and changes nothing. If it throws a C++ exception, the communicator fails. It must not call
 * longjmp out of the function or end its thread. */
typedef void (*tuttiRedOpFunction_t)(const void *in, void *inout, size_t count, tuttiDataType_t datatype,
                                     void *context);

/* *op = an operator that calls `function` with `context`, for all datatypes, also user-defined ones. If commutative is
 * 0, the values are combined in the order of ranks, a0 op a1 op ..., grouped in any way; otherwise in any order. Order
 * and grouping depend on the size and the number of ranks, and are the same in every run. With one rank, the result is
 * its value. `context` must stay valid until the operations with it are complete; the caller owns it. */
TUTTI_EXPORT tuttiResult_t tuttiRedOpCreate(tuttiRedOp_t *op, tuttiRedOpFunction_t function, void *context,
                                            int commutative, tuttiComm_t comm);
/* *op = the sum over ranks of this rank's *scalar times its elements. *scalar is one element of `datatype`: any except
 * tuttiBool. Calls with this operator must use the same datatype. The product is rounded to the datatype, as tuttiProd
 * rounds it, before it is added. With tuttiScalarDevice, the scalar is in memory of the host or of the communicator's
 * CUDA device, and must stay valid until the operations are complete. */
TUTTI_EXPORT tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar, tuttiDataType_t datatype,
                                                     tuttiScalarResidence_t residence, tuttiComm_t comm);
/* Frees the operator; queued operations keep it. The end of the communicator frees all remaining operators. A built-in
 * operator is tuttiInvalidArgument. */
TUTTI_EXPORT tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_OPERATORS_H_ */
