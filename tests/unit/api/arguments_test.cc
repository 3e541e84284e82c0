// Wrong arguments: the call returns the documented error and a text, and changes nothing.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "tutti/tutti.h"

namespace {

constexpr int kRanks = 2;

// Two ranks in this process. Refused calls never reach a peer, so one thread can make them.
class Pair {
 public:
  Pair() { REQUIRE(tuttiCommInitAll(comms_.data(), kRanks, nullptr) == tuttiSuccess); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    for (const tuttiComm_t comm : comms_) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  }
  [[nodiscard]] tuttiComm_t operator[](std::size_t rank) const { return comms_[rank]; }

  // A correct operation still gives the correct result.
  void require_works() const {
    std::array<tuttiResult_t, kRanks> results{};
    std::array<std::int32_t, kRanks> values{};
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        values[r] = static_cast<std::int32_t>(r) + 20;
        results[r] = tuttiAllReduce(&values[r], &values[r], 1, tuttiInt32, tuttiSum, comms_[r], nullptr);
      });
    }
    for (std::thread& t : threads) t.join();
    for (std::size_t r = 0; r < kRanks; ++r) {
      REQUIRE(results[r] == tuttiSuccess);
      REQUIRE(values[r] == 41);
      tuttiResult_t error = tuttiInternalError;
      REQUIRE(tuttiCommGetAsyncError(comms_[r], &error) == tuttiSuccess);
      REQUIRE(error == tuttiSuccess);
    }
  }

 private:
  std::array<tuttiComm_t, kRanks> comms_{};
};

void require_refused(tuttiResult_t got, const char* expected_in_text, tuttiResult_t wanted = tuttiInvalidArgument) {
  const std::string text = tuttiGetLastError(nullptr);
  INFO(text);
  REQUIRE(got == wanted);
  REQUIRE(text.find(expected_in_text) != std::string::npos);
}

// The compiler may not assume that an enumeration holds only its names: it comes from a C caller.
template <class E>
E outside(int value) {
  E e;
  static_assert(sizeof e == sizeof value);
  std::memcpy(&e, &value, sizeof e);
  return e;
}

}  // namespace

TEST_CASE("settings of RDMA that make no sense are refused on machines without RDMA as well") {
  ::setenv("TUTTI_VERBS", "nonsense", 1);
  tuttiUniqueId id;
  CHECK(tuttiGetUniqueId(&id) == tuttiInvalidUsage);
  std::array<tuttiComm_t, kRanks> comms{};
  CHECK(tuttiCommInitAll(comms.data(), kRanks, nullptr) == tuttiInvalidUsage);
  CHECK(std::string(tuttiGetLastError(nullptr)).find("nonsense") != std::string::npos);
  // The caller may print an error.
  ::setenv("TUTTI_VERBS", "non\nsense", 1);
  CHECK(tuttiGetUniqueId(&id) == tuttiInvalidUsage);
  CHECK(std::string(tuttiGetLastError(nullptr)).find("non\\x0asense") != std::string::npos);
  ::unsetenv("TUTTI_VERBS");
}

TEST_CASE("types, operators and roots outside their domain are refused") {
  const Pair pair;
  float a = 1;
  float b = 2;
  for (const int type : {-1, 12, 13, 99, 105, 255, 256, 258, 1 << 20, INT32_MAX}) {
    require_refused(tuttiAllReduce(&a, &b, 1, outside<tuttiDataType_t>(type), tuttiSum, pair[0], nullptr), "datatype");
    require_refused(tuttiBroadcast(&a, &b, 1, outside<tuttiDataType_t>(type), 0, pair[0], nullptr), "datatype");
    require_refused(tuttiAllGather(&a, &b, 0, outside<tuttiDataType_t>(type), pair[0], nullptr), "datatype");
  }
  for (const int op : {-1, 5, 6, 99, 106, 255, 256, 1 << 20, INT32_MAX}) {
    require_refused(tuttiAllReduce(&a, &b, 1, tuttiFloat32, outside<tuttiRedOp_t>(op), pair[0], nullptr), "operator");
    require_refused(tuttiReduce(&a, &b, 1, tuttiFloat32, outside<tuttiRedOp_t>(op), 0, pair[0], nullptr), "operator");
    require_refused(tuttiReduceScatter(&a, &b, 0, tuttiInt8, outside<tuttiRedOp_t>(op), pair[0], nullptr), "operator");
  }
  for (const int root : {-1, kRanks, 1 << 30, INT32_MIN}) {
    require_refused(tuttiBroadcast(&a, &b, 1, tuttiFloat32, root, pair[0], nullptr), "root");
    require_refused(tuttiReduce(&a, &b, 0, tuttiFloat32, tuttiSum, root, pair[0], nullptr), "root");
  }
  REQUIRE(a == 1);
  REQUIRE(b == 2);
  pair.require_works();
}

TEST_CASE("operators that a datatype does not have are refused") {
  const Pair pair;
  std::array<double, 4> values{};
  const auto require_undefined = [&](tuttiDataType_t type, tuttiRedOp_t op, const char* what) {
    require_refused(tuttiAllReduce(values.data(), values.data(), 1, type, op, pair[0], nullptr), what);
  };
  for (const tuttiRedOp_t op : {tuttiBand, tuttiBor, tuttiBxor, tuttiLand, tuttiLor, tuttiLxor}) {
    for (const tuttiDataType_t type : {tuttiFloat16, tuttiFloat8e5m2, tuttiComplex128}) {
      require_undefined(type, op, "is not defined for datatype");
    }
  }
  require_undefined(tuttiComplex64, tuttiMax, "max is not defined for datatype complex64");
  require_undefined(tuttiBool, tuttiAvg, "avg is not defined for datatype bool");
  pair.require_works();
}

TEST_CASE("an ignored buffer may have any address") {
  tuttiComm_t alone = nullptr;
  REQUIRE(tuttiCommInitAll(&alone, 1, nullptr) == tuttiSuccess);
  std::vector<std::int32_t> memory{1, 2, 3, 4, 5};
  CHECK(tuttiExscan(memory.data(), memory.data() + 1, 4, tuttiInt32, tuttiSum, alone, nullptr) == tuttiSuccess);
  CHECK(memory == std::vector<std::int32_t>{1, 2, 3, 4, 5});
  CHECK(tuttiCommDestroy(alone) == tuttiSuccess);
}

TEST_CASE("buffers that are missing, too large or overlap are refused") {
  const Pair pair;
  std::vector<std::int32_t> v(64, 7);
  std::int32_t* const p = v.data();
  require_refused(tuttiAllReduce(nullptr, p, 1, tuttiInt32, tuttiSum, pair[0], nullptr), "sendbuff");
  require_refused(tuttiAllReduce(p, nullptr, 1, tuttiInt32, tuttiSum, pair[0], nullptr), "recvbuff");
  require_refused(tuttiBroadcast(nullptr, p, 1, tuttiInt32, 0, pair[0], nullptr), "sendbuff");
  require_refused(tuttiBroadcast(p, nullptr, 1, tuttiInt32, 0, pair[1], nullptr), "recvbuff");
  require_refused(tuttiReduce(p, nullptr, 1, tuttiInt32, tuttiSum, 0, pair[0], nullptr), "recvbuff");
  require_refused(tuttiReduce(nullptr, p, 1, tuttiInt32, tuttiSum, 0, pair[1], nullptr), "sendbuff");
  require_refused(tuttiAllGather(p, nullptr, 1, tuttiInt32, pair[0], nullptr), "recvbuff");
  require_refused(tuttiReduceScatter(nullptr, p, 1, tuttiInt32, tuttiSum, pair[0], nullptr), "sendbuff");
  for (const std::size_t count : {SIZE_MAX, SIZE_MAX / 4 + 1, SIZE_MAX / 8}) {
    require_refused(tuttiAllReduce(p, p, count, tuttiFloat64, tuttiSum, pair[0], nullptr), "count");
    require_refused(tuttiAllGather(p, p, count, tuttiFloat64, pair[0], nullptr), "count");
  }
  require_refused(tuttiAllReduce(p, p + 1, 4, tuttiInt32, tuttiSum, pair[0], nullptr), "overlap");
  require_refused(tuttiBroadcast(p + 3, p, 4, tuttiInt32, 0, pair[0], nullptr), "overlap");
  require_refused(tuttiReduce(p, p + 3, 4, tuttiInt32, tuttiSum, 0, pair[0], nullptr), "overlap");
  require_refused(tuttiAllGather(p, p, 4, tuttiInt32, pair[1], nullptr), "overlap");
  require_refused(tuttiAllGather(p + 7, p, 4, tuttiInt32, pair[0], nullptr), "overlap");
  require_refused(tuttiReduceScatter(p, p + 4, 4, tuttiInt32, tuttiSum, pair[0], nullptr), "overlap");
  require_refused(tuttiReduceScatter(p, p + 1, 4, tuttiInt32, tuttiSum, pair[1], nullptr), "overlap");
  REQUIRE(v == std::vector<std::int32_t>(64, 7));
  pair.require_works();
}

TEST_CASE("invalid handles are refused") {
  alignas(64) std::array<std::uint64_t, 64> zeros{};
  auto* const comm = reinterpret_cast<tuttiComm_t>(zeros.data());
  auto* const stream = reinterpret_cast<tuttiStream_t>(zeros.data());
  auto* const event = reinterpret_cast<tuttiEvent_t>(zeros.data());
  float v = 3;
  int out = 0;
  tuttiResult_t error = tuttiSuccess;
  tuttiEvent_t made = nullptr;
  REQUIRE(tuttiEventCreate(&made) == tuttiSuccess);
  for (const tuttiComm_t c : {comm, static_cast<tuttiComm_t>(nullptr)}) {
    require_refused(tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, c, nullptr), "communicator");
    require_refused(tuttiBarrier(c, nullptr), "communicator");
    require_refused(tuttiCommFinalize(c), "communicator");
    require_refused(tuttiCommAbort(c), "communicator");
    require_refused(tuttiCommCount(c, &out), "communicator");
    require_refused(tuttiCommUserRank(c, &out), "communicator");
    require_refused(tuttiCommCuDevice(c, &out), "communicator");
    require_refused(tuttiCommGetAsyncError(c, &error), "communicator");
  }
  require_refused(tuttiCommDestroy(comm), "communicator");
  REQUIRE(tuttiCommDestroy(nullptr) == tuttiSuccess);
  require_refused(tuttiStreamSynchronize(stream), "stream");
  const tuttiHostFn_t function = [](void*) {};
  require_refused(tuttiLaunchHostFunc(stream, function, nullptr), "stream");
  require_refused(tuttiLaunchHostFunc(nullptr, function, nullptr), "stream");
  require_refused(tuttiStreamQuery(nullptr), "stream");
  require_refused(tuttiStreamDestroy(stream), "stream");
  REQUIRE(tuttiStreamDestroy(nullptr) == tuttiSuccess);
  require_refused(tuttiEventRecord(made, stream), "stream");
  require_refused(tuttiEventRecord(made, nullptr), "stream");
  require_refused(tuttiEventRecord(event, stream), "event");
  require_refused(tuttiEventQuery(event), "event");
  require_refused(tuttiEventSynchronize(nullptr), "event");
  require_refused(tuttiStreamWaitEvent(nullptr, made), "stream");
  tuttiStream_t waits = nullptr;
  REQUIRE(tuttiStreamCreate(&waits) == tuttiSuccess);
  require_refused(tuttiStreamWaitEvent(waits, event), "event");
  require_refused(tuttiStreamWaitEvent(waits, nullptr), "event");
  REQUIRE(tuttiStreamWaitEvent(waits, made) == tuttiSuccess);  // never recorded
  require_refused(tuttiLaunchHostFunc(waits, nullptr, nullptr), "function");
  REQUIRE(tuttiStreamQuery(waits) == tuttiSuccess);
  REQUIRE(tuttiStreamDestroy(waits) == tuttiSuccess);
  require_refused(tuttiEventDestroy(event), "event");
  REQUIRE(tuttiEventDestroy(nullptr) == tuttiSuccess);
  REQUIRE(tuttiEventDestroy(made) == tuttiSuccess);
  const Pair pair;
  require_refused(tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, pair[0], zeros.data()), "stream");
  REQUIRE(v == 3);
  pair.require_works();
}

// The library must not look at any of these, nor follow them.
TEST_CASE("pointers and handles of other kinds are refused") {
  const Pair pair;
  tuttiStream_t stream = nullptr;
  tuttiEvent_t event = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
  REQUIRE(tuttiEventRecord(event, stream) == tuttiSuccess);
  std::int32_t v = 3;
  int out = 0;
  const auto as_pointer = [](auto handle) { return reinterpret_cast<std::uintptr_t>(handle); };
  const std::uintptr_t next = as_pointer(pair[0]) + (std::uintptr_t{1} << 24);  // a generation later
  const std::uintptr_t none[] = {1, 2, 7, 4096, UINTPTR_MAX, UINTPTR_MAX - 4095, as_pointer(&v), next};
  for (const std::uintptr_t p : none) {
    require_refused(tuttiBarrier(reinterpret_cast<tuttiComm_t>(p), nullptr), "communicator");
    require_refused(tuttiCommCount(reinterpret_cast<tuttiComm_t>(p), &out), "communicator");
    require_refused(tuttiCommDestroy(reinterpret_cast<tuttiComm_t>(p)), "communicator");
    require_refused(tuttiCommAbort(reinterpret_cast<tuttiComm_t>(p)), "communicator");
    require_refused(tuttiAllReduce(&v, &v, 1, tuttiInt32, tuttiSum, pair[0], reinterpret_cast<void*>(p)), "stream");
    require_refused(tuttiStreamDestroy(reinterpret_cast<tuttiStream_t>(p)), "stream");
    require_refused(tuttiEventSynchronize(reinterpret_cast<tuttiEvent_t>(p)), "event");
    REQUIRE(std::string(tuttiGetLastError(reinterpret_cast<tuttiComm_t>(p))).find("event") != std::string::npos);
  }
  require_refused(tuttiAllReduce(&v, &v, 1, tuttiInt32, tuttiSum, pair[0], event), "stream");
  require_refused(tuttiAllReduce(&v, &v, 1, tuttiInt32, tuttiSum, pair[0], pair[1]), "stream");
  require_refused(tuttiStreamQuery(reinterpret_cast<tuttiStream_t>(event)), "stream");
  require_refused(tuttiEventQuery(reinterpret_cast<tuttiEvent_t>(pair[0])), "event");
  require_refused(tuttiBarrier(reinterpret_cast<tuttiComm_t>(stream), nullptr), "communicator");
  REQUIRE(tuttiEventDestroy(event) == tuttiSuccess);
  require_refused(tuttiEventQuery(event), "event");
  require_refused(tuttiEventRecord(event, stream), "event");
  require_refused(tuttiEventDestroy(event), "event");
  REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
  require_refused(tuttiStreamSynchronize(stream), "stream");
  require_refused(tuttiStreamDestroy(stream), "stream");
  require_refused(tuttiAllReduce(&v, &v, 1, tuttiInt32, tuttiSum, pair[0], stream), "stream");
  REQUIRE(v == 3);
  pair.require_works();
}

TEST_CASE("results have somewhere to go") {
  const Pair pair;
  require_refused(tuttiGetVersion(nullptr), "version");
  require_refused(tuttiGetUniqueId(nullptr), "id");
  require_refused(tuttiCommCount(pair[0], nullptr), "count");
  require_refused(tuttiCommUserRank(pair[0], nullptr), "rank");
  require_refused(tuttiCommCuDevice(pair[0], nullptr), "device");
  require_refused(tuttiCommGetAsyncError(pair[0], nullptr), "error");
  require_refused(tuttiStreamCreate(nullptr), "stream");
  require_refused(tuttiEventCreate(nullptr), "event");
  require_refused(tuttiMemAlloc(nullptr, 64), "ptr");
  void* memory = nullptr;
  require_refused(tuttiMemAlloc(&memory, 0), "size");
  REQUIRE(tuttiMemAlloc(&memory, SIZE_MAX) != tuttiSuccess);
  REQUIRE(memory == nullptr);
  int local = 0;
  REQUIRE(tuttiMemFree(&local) == tuttiInvalidArgument);
  REQUIRE(tuttiMemFree(nullptr) == tuttiSuccess);
  pair.require_works();
}

TEST_CASE("communicators are not made from wrong arguments") {
  tuttiUniqueId id;
  std::memset(&id, 0, sizeof id);
  tuttiComm_t comm = nullptr;
  require_refused(tuttiCommInitRank(nullptr, 1, id, 0), "comm");
  for (const int rank : {-1, 2, 1000}) require_refused(tuttiCommInitRank(&comm, 2, id, rank), "rank");
  for (const int ranks : {0, -1, INT32_MIN}) require_refused(tuttiCommInitRank(&comm, ranks, id, 0), "rank");
  REQUIRE(tuttiCommInitRank(&comm, 2, id, 0) == tuttiInvalidArgument);  // an id that was never made
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.magic = 1;
  require_refused(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), "config");
  require_refused(tuttiCommInitEnv(&comm, &config), "config");
  config = TUTTI_CONFIG_INITIALIZER;
  config.transports = "pigeons";
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  require_refused(tuttiCommInitRankConfig(&comm, 1, id, 0, &config), "pigeons");
  require_refused(tuttiCommInitEnv(&comm, &config), "pigeons");
  require_refused(tuttiCommInitAll(nullptr, 1, nullptr), "comms");
  require_refused(tuttiCommInitAll(&comm, 0, nullptr), "ndev");
  require_refused(tuttiCommInitAll(&comm, -5, nullptr), "ndev");
  const std::array<int, 2> devices = {-1, 0};
  std::array<tuttiComm_t, 2> both{};
  require_refused(tuttiCommInitAll(both.data(), 2, devices.data()), "devlist");
  REQUIRE(both[0] == nullptr);
  REQUIRE(comm == nullptr);
}

TEST_CASE("unreadable settings are named") {
  tuttiComm_t comm = nullptr;
  for (const char* name : {"TUTTI_TRANSPORTS", "TUTTI_TIMEOUT_MS", "TUTTI_INIT_TIMEOUT_MS", "TUTTI_PORT_RANGE",
                           "TUTTI_TCP_STREAMS", "TUTTI_AFFINITY", "TUTTI_CHECK", "TUTTI_ALGORITHM", "TUTTI_SURVIVORS",
                           "TUTTI_STRAGGLER_MS", "TUTTI_CROSS_MEMORY", "TUTTI_PROGRESS_THREADS", "TUTTI_BIND"}) {
    ::setenv(name, "nonsense", 1);
    const tuttiResult_t result = tuttiCommInitAll(&comm, 1, nullptr);
    ::unsetenv(name);
    INFO(name);
    require_refused(result, "nonsense", tuttiInvalidUsage);
  }
  REQUIRE(comm == nullptr);
}

TEST_CASE("a finalized communicator refuses operations") {
  tuttiComm_t comm = nullptr;
  float v = 1;
  REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
  REQUIRE(tuttiCommFinalize(comm) == tuttiSuccess);
  REQUIRE(tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, comm, nullptr) == tuttiInvalidUsage);
  REQUIRE(std::string(tuttiGetLastError(comm)).find("finalized") != std::string::npos);
  REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("a second finalize does nothing, and queries may follow") {
  tuttiComm_t comm = nullptr;
  int count = 0;
  REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
  REQUIRE(tuttiCommFinalize(comm) == tuttiSuccess);
  REQUIRE(tuttiCommFinalize(comm) == tuttiSuccess);
  REQUIRE(tuttiCommCount(comm, &count) == tuttiSuccess);
  REQUIRE(count == 1);
  REQUIRE(tuttiCommAbort(comm) == tuttiSuccess);
}

TEST_CASE("a successful call leaves the thread's last error unchanged") {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.timeout_ms = 2000;
  std::array<tuttiComm_t, kRanks> comms{};
  REQUIRE(tuttiCommInitAllConfig(comms.data(), kRanks, nullptr, &config) == tuttiSuccess);
  tuttiStream_t stream = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  // It stays in flight until its timeout, because the other rank does not call it.
  REQUIRE(tuttiBarrier(comms[0], stream) == tuttiSuccess);
  require_refused(tuttiGetVersion(nullptr), "version is NULL");
  const tuttiResult_t queried = tuttiStreamQuery(stream);
  CHECK((queried == tuttiInProgress || queried == tuttiTimeout));
  if (queried == tuttiInProgress) CHECK(std::string(tuttiGetLastError(nullptr)) == "version is NULL");
  CHECK(tuttiStreamSynchronize(stream) != tuttiSuccess);
  require_refused(tuttiGetVersion(nullptr), "version is NULL");
  for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  CHECK(std::string(tuttiGetLastError(nullptr)) == "version is NULL");
  CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
}

TEST_CASE("a refused call in a stream leaves the stream usable") {
  const Pair pair;
  tuttiStream_t stream = nullptr;
  float v = 1;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  require_refused(tuttiAllReduce(&v, nullptr, 1, tuttiFloat32, tuttiSum, pair[0], stream), "recvbuff");
  REQUIRE(tuttiStreamSynchronize(stream) == tuttiSuccess);
  REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
  pair.require_works();
}

TEST_CASE("every result has its own text") {
  std::vector<std::string> seen;
  for (const int r : {0, 1, 2, 3, 4, 5, 6, 7, 8, 1000, 1001}) {
    const std::string text = tuttiGetErrorString(outside<tuttiResult_t>(r));
    REQUIRE(!text.empty());
    for (const std::string& other : seen) REQUIRE(text != other);
    seen.push_back(text);
  }
  // NCCL's next numbers are not tutti's.
  for (const int r : {-1, 9, 10, 99, 999, 1002, INT32_MAX}) {
    REQUIRE(std::string(tuttiGetErrorString(outside<tuttiResult_t>(r))) == "unknown result code");
  }
}

TEST_CASE("public enumerations are 32 bits wide") {
  CHECK(sizeof(tuttiResult_t) == 4);
  CHECK(sizeof(tuttiDataType_t) == 4);
  CHECK(sizeof(tuttiRedOp_t) == 4);
  CHECK(sizeof(tuttiCollective_t) == 4);
  CHECK(tuttiAborted == 1000);
  CHECK(tuttiMismatch == 1001);
  CHECK(static_cast<unsigned>(tuttiResultMax) == 0x7fffffffU);
  CHECK(static_cast<unsigned>(tuttiDataTypeMax) == 0x7fffffffU);
  CHECK(static_cast<unsigned>(tuttiRedOpMax) == 0x7fffffffU);
  CHECK(static_cast<unsigned>(tuttiCollectiveMax) == 0x7fffffffU);
}
