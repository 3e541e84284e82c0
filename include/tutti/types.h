/* Part of tutti/tutti.h: version, handles, results, datatypes, operators, collectives, the unique id. */
#ifndef TUTTI_TYPES_H_
#define TUTTI_TYPES_H_

#include <stddef.h>
#include <stdint.h>

/* The version of this header. tuttiGetVersion returns the library's. */
#define TUTTI_MAJOR 0
/* The second number of the version. */
#define TUTTI_MINOR 1
/* The third number of the version. */
#define TUTTI_PATCH 0
/* A version as one number: TUTTI_VERSION_CODE >= TUTTI_VERSION(0, 1, 0). Numbers of tutti, not of NCCL. */
#define TUTTI_VERSION(x, y, z) ((x) * 10000 + (y) * 100 + (z))
/* The version of this header as one number, as of tuttiGetVersion. */
#define TUTTI_VERSION_CODE TUTTI_VERSION(TUTTI_MAJOR, TUTTI_MINOR, TUTTI_PATCH)

/* What the library offers to programs. */
#if defined(__GNUC__)
#define TUTTI_EXPORT __attribute__((visibility("default")))
#else
#define TUTTI_EXPORT
#endif

/* A communicator: see communicator.h. */
typedef struct tuttiComm *tuttiComm_t;
/* A stream: see streams.h. */
typedef struct tuttiStream *tuttiStream_t;
/* An event: see streams.h. */
typedef struct tuttiEvent *tuttiEvent_t;
/* A registered range of memory: see memory.h. */
typedef struct tuttiWindow *tuttiWindow_t;

/* Every enumeration is 32 bits wide, whatever names later versions add. The last name only fixes the width; do not pass
 * it. The library refuses unknown values. Results: NCCL's, and tutti's own from 1000. */
typedef enum {
  tuttiSuccess = 0,
  tuttiUnhandledCudaError = 1,
  tuttiSystemError = 2,     /* a system call failed (the text includes errno's), or memory ran out */
  tuttiInternalError = 3,   /* a defect in tutti, or a user-defined operator or host function threw an exception
                               (tuttiSystemError for bad_alloc and system_error) */
  tuttiInvalidArgument = 4, /* an argument is outside its domain */
  tuttiInvalidUsage = 5,    /* the arguments are valid, but the call is not allowed now (wrong state or environment) */
  tuttiRemoteError = 6,     /* a peer died, left, or failed; the text names the rank */
  tuttiInProgress = 7,      /* not complete yet */
  tuttiTimeout = 8,         /* the communicator's timeout passed; the text names the ranks that were waited for */
  tuttiAborted = 1000,      /* tuttiCommAbort or tuttiCommRevoke was called, here or on a peer */
  tuttiMismatch = 1001,     /* ranks called different operations; the text names both sides */
  tuttiResultMax = 0x7fffffff
} tuttiResult_t;

/* The type of elements. Values from 1000 on are user-defined datatypes: see operators.h. */
typedef enum {
  tuttiInt8 = 0,
  tuttiChar = 0,
  tuttiUint8 = 1,
  tuttiInt32 = 2,
  tuttiInt = 2,
  tuttiUint32 = 3,
  tuttiInt64 = 4,
  tuttiUint64 = 5,
  tuttiFloat16 = 6,
  tuttiHalf = 6,
  tuttiFloat32 = 7,
  tuttiFloat = 7,
  tuttiFloat64 = 8,
  tuttiDouble = 8,
  tuttiBfloat16 = 9,
  tuttiFloat8e4m3 = 10, /* OCP FP8 E4M3: no infinity, saturates at 448 */
  tuttiFloat8e5m2 = 11, /* OCP FP8 E5M2; overflow saturates at 57344 */
  tuttiNumTypes = 12,   /* the number of the types above, as ncclNumTypes */
  tuttiInt16 = 100,
  tuttiUint16 = 101,
  tuttiComplex64 = 102,  /* two float32: real part, imaginary part (C's float _Complex) */
  tuttiComplex128 = 103, /* two float64 */
  tuttiBool = 104,       /* one byte: any value except 0 is true; results are 0 or 1 */
  tuttiDataTypeMax = 0x7fffffff /* from 1000 on: of tuttiTypeCreate */
} tuttiDataType_t;

/* 16- and 8-bit floats are combined in float32 and rounded once per combination. Integer sums and products wrap.
 * tuttiAvg is the sum divided by the number of ranks, once, after the last addition. For integers the (wrapped) sum is
 * divided with truncation towards zero, as in NCCL. If a rank contributes NaN, the result is NaN, also for max and min.
 * +0 is above -0. Every NaN that a reduction of two or more ranks returns is the same quiet NaN with all bits set;
 * payloads are lost. Built-in operators and pre-multiplied sums round to nearest and keep denormal numbers, in any
 * floating-point mode of the thread. So all ranks of an all-reduce get the same bits, whatever the data. Complex
 * numbers have sum, prod and avg (prod by the plain formula, without C's Annex G for infinities). For booleans, sum and
 * max are lor, prod and min are land, and there is no avg. An operator that the datatype does not support is
 * tuttiInvalidArgument. */
typedef enum {
  tuttiSum = 0,
  tuttiProd = 1,
  tuttiMax = 2,
  tuttiMin = 3,
  tuttiAvg = 4,
  tuttiNumOps = 5, /* the number of the operators above, as ncclNumOps */
  tuttiBand = 100, /* bitwise and, or, exclusive or; for integers and booleans */
  tuttiBor = 101,
  tuttiBxor = 102,
  tuttiLand = 103, /* logical and, or, exclusive or (true: not 0); gives 0 or 1; integers and booleans */
  tuttiLor = 104,
  tuttiLxor = 105,
  tuttiRedOpMax = 0x7fffffff
} tuttiRedOp_t; /* values from 1000 on are user-defined operators: see operators.h */

/* Where the scalar of a pre-multiplied sum is. */
typedef enum {
  tuttiScalarDevice = 0,        /* the caller's memory, read when an operation runs */
  tuttiScalarHostImmediate = 1, /* host memory that is read when the operator is made */
  tuttiScalarResidenceMax = 0x7fffffff
} tuttiScalarResidence_t;

/* The collectives, as an argument of queries. Numbers up to 30 are reserved for later ones. */
typedef enum {
  tuttiCollectiveAllReduce = 0,
  tuttiCollectiveReduceScatter = 1,
  tuttiCollectiveAllGather = 2,
  tuttiCollectiveBroadcast = 3,
  tuttiCollectiveReduce = 4,
  tuttiCollectiveBarrier = 5,
  tuttiCollectiveGather = 6,
  tuttiCollectiveScatter = 7,
  tuttiCollectiveAlltoAll = 8,
  tuttiCollectiveScan = 9,
  tuttiCollectiveExscan = 10,
  tuttiCollectiveAllGatherV = 11,
  tuttiCollectiveReduceScatterV = 12,
  tuttiCollectiveAlltoAllV = 13,
  tuttiCollectiveGatherV = 14,
  tuttiCollectiveScatterV = 15,
  tuttiCollectiveMax = 0x7fffffff
} tuttiCollective_t;

/* The size of a unique id. */
#define TUTTI_UNIQUE_ID_BYTES 128
/* Opaque bytes; copy them to the other ranks by any means. They hold the job's secret: any process that has them can
 * join. */
typedef struct {
  char internal[TUTTI_UNIQUE_ID_BYTES]; /* opaque */
} tuttiUniqueId;

#endif /* TUTTI_TYPES_H_ */
