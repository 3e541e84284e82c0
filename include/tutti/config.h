/* Part of tutti/tutti.h: the settings of a communicator. */
#ifndef TUTTI_CONFIG_H_
#define TUTTI_CONFIG_H_

#include "tutti/types.h"

/* What an int of tuttiConfig_t holds where the caller leaves it unset (INT_MIN, as NCCL_CONFIG_UNDEF_INT). */
#define TUTTI_CONFIG_UNDEF_INT (-2147483647 - 1)

/* Settings of one communicator. Start from TUTTI_CONFIG_INITIALIZER, which leaves all fields unset:
 * TUTTI_CONFIG_UNDEF_INT for a number, NULL for a text. An unset field takes the value of the environment variable
 * named beside it, else the default. A field that is set wins over the variable; an empty text is the default. Values
 * are those of the variables (docs/settings.md). An invalid value is tuttiInvalidArgument, and the text names the
 * field. (An invalid variable is tuttiInvalidUsage, even if a field overrides it.) tutti checks whether an interface
 * exists when it first needs an address. Texts are copied before the call returns.
 *
 * Later versions add fields at the end, where all bits zero (0, NULL) mean unset. A caller compiled with a later
 * version than the library's may leave them so. If the caller sets such a field, the library refuses the call with
 * tuttiInvalidArgument. The library also refuses a caller of a later major version. */
typedef struct {
  size_t size;             /* sizeof(tuttiConfig_t) as the caller was compiled */
  unsigned int magic;      /* 0x74757474 */
  unsigned int version;    /* TUTTI_VERSION_CODE as the caller was compiled */
  int timeout_ms;          /* TUTTI_TIMEOUT_MS: longest wait without progress in an operation, 1 or more */
  int init_timeout_ms;     /* TUTTI_INIT_TIMEOUT_MS: of the whole initialisation, 1 or more */
  int wait_notice_ms;      /* TUTTI_WAIT_NOTICE_MS: time after which tutti logs a wait, and fails a wait for a refused
                              call; 0: never */
  int tcp_streams;         /* TUTTI_TCP_STREAMS: sockets per pair of ranks, 1 to 16 */
  int progress_threads;    /* TUTTI_PROGRESS_THREADS: number of threads that run queued operations, 1 to 64; the
                              process has as many as the communicator that asks for most */
  int straggler_ms;        /* TUTTI_STRAGGLER_MS: in survivor mode, how long a collective waits for a late rank before
                              the others leave it out; 0: never; rank 0's value counts */
  int CTAPolicy;           /* NCCL's: how many thread blocks its kernels use. TUTTI_CTA_POLICY_DEFAULT, _EFFICIENCY or
                              _ZERO; tutti has no such choice and ignores it */
  const char *transports;  /* TUTTI_TRANSPORTS: "shm,verbs,tcp"; rank 0's value counts */
  const char *interface;   /* TUTTI_INTERFACE: "eth", "=eth0", "^lo" */
  const char *port_range;  /* TUTTI_PORT_RANGE: "4000-4099" */
  const char *algorithm;   /* TUTTI_ALGORITHM: "ring", "all_reduce:ring,reduce:k_nomial:4"; rank 0's value counts */
  const char *affinity;    /* TUTTI_AFFINITY: "own", "start", "move" or "keep" */
  const char *check;       /* TUTTI_CHECK: "strict" or "off"; rank 0's value counts */
  const char *verbs;       /* TUTTI_VERBS: "device=mlx5_0,mtu=4096" */
  const char *cross_memory; /* TUTTI_CROSS_MEMORY: "auto", "always" or "never" */
  const char *device;      /* where all buffers are: "host", the default; "cuda", the calling thread's current CUDA
                              device; "cuda:1". No variable sets it */
  const char *survivors;   /* TUTTI_SURVIVORS: "on" or "off": whether collectives go on without ranks that die (see
                              tuttiCommGetContributors); rank 0's value counts */
  const char *encrypt;     /* TUTTI_ENCRYPT: "off", "on" or "wan": which connections between processes are encrypted;
                              rank 0's value counts */
} tuttiConfig_t;

/* NCCL's values of config.CTAPolicy. */
#define TUTTI_CTA_POLICY_DEFAULT 0x00
/* Fewer thread blocks in NCCL. */
#define TUTTI_CTA_POLICY_EFFICIENCY 0x01
/* No thread blocks in NCCL where copy engines suffice. */
#define TUTTI_CTA_POLICY_ZERO 0x02

/* tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER: nothing is set. */
#define TUTTI_CONFIG_INITIALIZER                                                                                   \
  {                                                                                                                \
    sizeof(tuttiConfig_t), 0x74757474u, (unsigned)TUTTI_VERSION_CODE, TUTTI_CONFIG_UNDEF_INT,                      \
        TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT,            \
        TUTTI_CONFIG_UNDEF_INT, TUTTI_CONFIG_UNDEF_INT,                                                            \
        (const char *)0, (const char *)0, (const char *)0, (const char *)0, (const char *)0, (const char *)0,       \
        (const char *)0, (const char *)0, (const char *)0, (const char *)0, (const char *)0                        \
  }

#endif /* TUTTI_CONFIG_H_ */
