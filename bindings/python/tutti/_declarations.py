"""tutti's C interface as cffi reads it: what include/tutti/*.h declare, without comments. A test compares both."""

DECLARATIONS = """
typedef struct tuttiComm *tuttiComm_t;
typedef struct tuttiStream *tuttiStream_t;
typedef struct tuttiEvent *tuttiEvent_t;
typedef struct tuttiWindow *tuttiWindow_t;
typedef int tuttiResult_t;
typedef int tuttiDataType_t;
typedef int tuttiRedOp_t;
typedef int tuttiScalarResidence_t;
typedef int tuttiCollective_t;
typedef struct {
  char internal[128];
} tuttiUniqueId;
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int timeout_ms;
  int init_timeout_ms;
  int wait_notice_ms;
  int tcp_streams;
  int progress_threads;
  int straggler_ms;
  int CTAPolicy;
  const char *transports;
  const char *interface;
  const char *port_range;
  const char *algorithm;
  const char *affinity;
  const char *check;
  const char *verbs;
  const char *cross_memory;
  const char *device;
  const char *survivors;
  const char *encrypt;
} tuttiConfig_t;


tuttiResult_t tuttiGetVersion(int *version);
const char *tuttiGetErrorString(tuttiResult_t result);
const char *tuttiGetLastError(tuttiComm_t comm);
tuttiResult_t tuttiGetUniqueId(tuttiUniqueId *id);
tuttiResult_t tuttiCommInitRank(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank);
tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t *comm, int nranks, tuttiUniqueId id, int rank, const tuttiConfig_t
    *config);
tuttiResult_t tuttiCommInitEnv(tuttiComm_t *comm, const tuttiConfig_t *config);
tuttiResult_t tuttiCommInitAll(tuttiComm_t *comms, int ndev, const int *devlist);
tuttiResult_t tuttiCommInitAllConfig(tuttiComm_t *comms, int ndev, const int *devlist, const tuttiConfig_t *config);
tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t *newcomm, const tuttiConfig_t *config);
tuttiResult_t tuttiCommCreateGroup(tuttiComm_t comm, uint64_t id, int nranks, const int *ranks, tuttiComm_t *newcomm,
    const tuttiConfig_t *config);
tuttiResult_t tuttiCommGetGroupId(tuttiComm_t comm, uint64_t *id);
tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);
tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);
tuttiResult_t tuttiCommAbort(tuttiComm_t comm);
tuttiResult_t tuttiCommGetUniqueId(tuttiComm_t comm, tuttiUniqueId *id);
tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int flags);
tuttiResult_t tuttiCommAgree(tuttiComm_t comm, uint64_t *flag);
tuttiResult_t tuttiCommGetFailed(tuttiComm_t comm, int *ranks, int capacity, int *count);
tuttiResult_t tuttiCommGetContributors(tuttiComm_t comm, int *ranks, int capacity, int *count);
tuttiResult_t tuttiCommShrink(tuttiComm_t comm, int *excludeRanksList, int excludeRanksCount, tuttiComm_t *newcomm,
    const tuttiConfig_t *config, int shrinkFlags);
tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int nRanks, const tuttiUniqueId *id, int rank, tuttiComm_t *newcomm,
    const tuttiConfig_t *config);
tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t *error);
tuttiResult_t tuttiCommCount(tuttiComm_t comm, int *count);
tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int *rank);
tuttiResult_t tuttiCommCuDevice(tuttiComm_t comm, int *device);
tuttiResult_t tuttiCommExplain(tuttiComm_t comm, tuttiCollective_t collective, size_t bytes, char *text, size_t size);

tuttiResult_t tuttiAllReduce(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype,
    tuttiRedOp_t op, tuttiComm_t comm, void *stream);
tuttiResult_t tuttiBroadcast(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype, int root,
    tuttiComm_t comm, void *stream);
tuttiResult_t tuttiReduce(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t
    op, int root, tuttiComm_t comm, void *stream);
tuttiResult_t tuttiAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, tuttiDataType_t datatype,
    tuttiComm_t comm, void *stream);
tuttiResult_t tuttiReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount, tuttiDataType_t datatype,
    tuttiRedOp_t op, tuttiComm_t comm, void *stream);
tuttiResult_t tuttiBcast(void *buff, size_t count, tuttiDataType_t datatype, int root, tuttiComm_t comm, void
    *stream);
tuttiResult_t tuttiGather(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype, int root,
    tuttiComm_t comm, void *stream);
tuttiResult_t tuttiScatter(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype, int root,
    tuttiComm_t comm, void *stream);
tuttiResult_t tuttiAlltoAll(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype, tuttiComm_t
    comm, void *stream);
tuttiResult_t tuttiScan(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t op,
    tuttiComm_t comm, void *stream);
tuttiResult_t tuttiExscan(const void *sendbuff, void *recvbuff, size_t count, tuttiDataType_t datatype, tuttiRedOp_t
    op, tuttiComm_t comm, void *stream);
tuttiResult_t tuttiBarrier(tuttiComm_t comm, void *stream);
tuttiResult_t tuttiAllGatherV(const void *sendbuff, size_t sendcount, void *recvbuff, const size_t *recvcounts, const
    size_t *rdispls, tuttiDataType_t datatype, tuttiComm_t comm, void *stream);
tuttiResult_t tuttiReduceScatterV(const void *sendbuff, void *recvbuff, const size_t *recvcounts, tuttiDataType_t
    datatype, tuttiRedOp_t op, tuttiComm_t comm, void *stream);
tuttiResult_t tuttiAlltoAllV(const void *sendbuff, const size_t *sendcounts, const size_t *sdispls, void *recvbuff,
    const size_t *recvcounts, const size_t *rdispls, tuttiDataType_t datatype, tuttiComm_t comm, void *stream);
tuttiResult_t tuttiGatherV(const void *sendbuff, size_t sendcount, void *recvbuff, const size_t *recvcounts, const
    size_t *rdispls, tuttiDataType_t datatype, int root, tuttiComm_t comm, void *stream);
tuttiResult_t tuttiScatterV(const void *sendbuff, const size_t *sendcounts, const size_t *sdispls, void *recvbuff,
    size_t recvcount, tuttiDataType_t datatype, int root, tuttiComm_t comm, void *stream);
tuttiResult_t tuttiSend(const void *sendbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm, void
    *stream);
tuttiResult_t tuttiRecv(void *recvbuff, size_t count, tuttiDataType_t datatype, int peer, tuttiComm_t comm, void
    *stream);
tuttiResult_t tuttiGroupStart(void);
tuttiResult_t tuttiGroupEnd(void);

tuttiResult_t tuttiStreamCreate(tuttiStream_t *stream);
tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);
typedef void (*tuttiHostFn_t)(void *data);
tuttiResult_t tuttiLaunchHostFunc(tuttiStream_t stream, tuttiHostFn_t function, void *data);
tuttiResult_t tuttiEventCreate(tuttiEvent_t *event);
tuttiResult_t tuttiEventRecord(tuttiEvent_t event, tuttiStream_t stream);
tuttiResult_t tuttiStreamWaitEvent(tuttiStream_t stream, tuttiEvent_t event);
tuttiResult_t tuttiEventQuery(tuttiEvent_t event);
tuttiResult_t tuttiEventSynchronize(tuttiEvent_t event);
tuttiResult_t tuttiEventDestroy(tuttiEvent_t event);

tuttiResult_t tuttiTypeCreate(tuttiDataType_t *datatype, size_t element_bytes, tuttiComm_t comm);
tuttiResult_t tuttiTypeDestroy(tuttiDataType_t datatype, tuttiComm_t comm);
typedef void (*tuttiRedOpFunction_t)(const void *in, void *inout, size_t count, tuttiDataType_t datatype, void
    *context);
tuttiResult_t tuttiRedOpCreate(tuttiRedOp_t *op, tuttiRedOpFunction_t function, void *context, int commutative,
    tuttiComm_t comm);
tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t *op, void *scalar, tuttiDataType_t datatype,
    tuttiScalarResidence_t residence, tuttiComm_t comm);
tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

tuttiResult_t tuttiMemAlloc(void **ptr, size_t size);
tuttiResult_t tuttiMemFree(void *ptr);
tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void *buff, size_t size, tuttiWindow_t *win, int winFlags);
tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t win);
tuttiResult_t tuttiCommRegister(const tuttiComm_t comm, void *buff, size_t size, void **handle);
tuttiResult_t tuttiCommDeregister(const tuttiComm_t comm, void *handle);
"""
