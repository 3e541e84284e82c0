// Calls made by the function of an operator: each of them is refused and changes nothing.
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "suites.h"

namespace tutti::internal::test {
namespace {

// The objects of these calls.
struct Things {
  tuttiComm_t outer = nullptr;  // runs the operation
  tuttiComm_t inner = nullptr;  // idle
  tuttiComm_t own = nullptr;    // of this rank alone
  tuttiStream_t stream = nullptr;
  tuttiEvent_t event = nullptr;
  tuttiRedOp_t op = tuttiSum;  // of inner
  tuttiDataType_t type = tuttiUint8;
  tuttiUniqueId id{};
  void* memory = nullptr;
};

constexpr std::size_t kMost = 4;
using Numbers = std::array<float, kMost>;

using Calls = std::map<std::string, std::function<tuttiResult_t()>>;

// What moves data.
void add_operations(Calls& calls, tuttiComm_t comm) {
  static Numbers in{};
  static Numbers out{};
  static const std::array<std::size_t, kMost> sizes{1, 1, 1, 1};
  const std::size_t* const n = sizes.data();
  const tuttiDataType_t f = tuttiFloat32;
  calls["tuttiAllGather"] = [=] { return tuttiAllGather(in.data(), out.data(), 1, f, comm, nullptr); };
  calls["tuttiAllGatherV"] = [=] { return tuttiAllGatherV(in.data(), 1, out.data(), n, n, f, comm, nullptr); };
  calls["tuttiAllReduce"] = [=] { return tuttiAllReduce(in.data(), out.data(), 1, f, tuttiSum, comm, nullptr); };
  calls["tuttiAlltoAll"] = [=] { return tuttiAlltoAll(in.data(), out.data(), 1, f, comm, nullptr); };
  calls["tuttiAlltoAllV"] = [=] { return tuttiAlltoAllV(in.data(), n, n, out.data(), n, n, f, comm, nullptr); };
  calls["tuttiBarrier"] = [=] { return tuttiBarrier(comm, nullptr); };
  calls["tuttiBcast"] = [=] { return tuttiBcast(in.data(), 1, f, 0, comm, nullptr); };
  calls["tuttiBroadcast"] = [=] { return tuttiBroadcast(in.data(), out.data(), 1, f, 0, comm, nullptr); };
  calls["tuttiExscan"] = [=] { return tuttiExscan(in.data(), out.data(), 1, f, tuttiSum, comm, nullptr); };
  calls["tuttiGather"] = [=] { return tuttiGather(in.data(), out.data(), 1, f, 0, comm, nullptr); };
  calls["tuttiGatherV"] = [=] { return tuttiGatherV(in.data(), 1, out.data(), n, n, f, 0, comm, nullptr); };
  calls["tuttiReduce"] = [=] { return tuttiReduce(in.data(), out.data(), 1, f, tuttiSum, 0, comm, nullptr); };
  calls["tuttiReduceScatter"] = [=] {
    return tuttiReduceScatter(in.data(), out.data(), 1, f, tuttiSum, comm, nullptr);
  };
  calls["tuttiReduceScatterV"] = [=] {
    return tuttiReduceScatterV(in.data(), out.data(), n, f, tuttiSum, comm, nullptr);
  };
  calls["tuttiScan"] = [=] { return tuttiScan(in.data(), out.data(), 1, f, tuttiSum, comm, nullptr); };
  calls["tuttiScatter"] = [=] { return tuttiScatter(in.data(), out.data(), 1, f, 0, comm, nullptr); };
  calls["tuttiScatterV"] = [=] { return tuttiScatterV(in.data(), n, n, out.data(), 1, f, 0, comm, nullptr); };
  calls["tuttiSend"] = [=] { return tuttiSend(in.data(), 1, f, 0, comm, nullptr); };
  calls["tuttiRecv"] = [=] { return tuttiRecv(out.data(), 1, f, 0, comm, nullptr); };
  calls["tuttiGroupStart"] = [] { return tuttiGroupStart(); };
  calls["tuttiGroupEnd"] = [] { return tuttiGroupEnd(); };
}

// What makes, asks and ends communicators.
void add_communicators(Calls& calls, Things& t, tuttiComm_t comm) {
  static tuttiComm_t made = nullptr;
  static std::array<tuttiComm_t, 2> several{};
  static int number = 0;
  static std::array<char, 256> text{};
  calls["tuttiCommAbort"] = [=] { return tuttiCommAbort(comm); };
  calls["tuttiCommAgree"] = [=] {
    std::uint64_t flag = 1;
    return tuttiCommAgree(comm, &flag);
  };
  calls["tuttiCommCount"] = [=] { return tuttiCommCount(comm, &number); };
  calls["tuttiCommCreateGroup"] = [=] {
    static const int alone = 0;
    return tuttiCommCreateGroup(comm, 1, 1, &alone, &made, nullptr);
  };
  calls["tuttiCommDeregister"] = [=] { return tuttiCommDeregister(comm, nullptr); };
  calls["tuttiCommGetContributors"] = [=] { return tuttiCommGetContributors(comm, nullptr, 0, &number); };
  calls["tuttiCommGetFailed"] = [=] { return tuttiCommGetFailed(comm, nullptr, 0, &number); };
  calls["tuttiCommGetGroupId"] = [=] {
    std::uint64_t id = 0;
    return tuttiCommGetGroupId(comm, &id);
  };
  calls["tuttiCommRegister"] = [=] {
    void* handle = nullptr;
    return tuttiCommRegister(comm, text.data(), text.size(), &handle);
  };
  calls["tuttiCommWindowDeregister"] = [=] { return tuttiCommWindowDeregister(comm, nullptr); };
  calls["tuttiCommWindowRegister"] = [=] {
    tuttiWindow_t window = nullptr;
    return tuttiCommWindowRegister(comm, text.data(), text.size(), &window, TUTTI_WIN_DEFAULT);
  };
  calls["tuttiCommCuDevice"] = [=] { return tuttiCommCuDevice(comm, &number); };
  calls["tuttiCommDestroy"] = [=] { return tuttiCommDestroy(comm); };
  calls["tuttiCommExplain"] = [=] {
    return tuttiCommExplain(comm, tuttiCollectiveAllReduce, 8, text.data(), text.size());
  };
  calls["tuttiCommFinalize"] = [=] { return tuttiCommFinalize(comm); };
  calls["tuttiCommGetAsyncError"] = [=] {
    tuttiResult_t error = tuttiSuccess;
    return tuttiCommGetAsyncError(comm, &error);
  };
  calls["tuttiCommGrow"] = [=, &t] { return tuttiCommGrow(comm, 1, &t.id, -1, &made, nullptr); };
  calls["tuttiCommGetUniqueId"] = [=, &t] { return tuttiCommGetUniqueId(comm, &t.id); };
  calls["tuttiCommInitAll"] = [] { return tuttiCommInitAll(several.data(), 2, nullptr); };
  calls["tuttiCommInitAllConfig"] = [] { return tuttiCommInitAllConfig(several.data(), 2, nullptr, nullptr); };
  calls["tuttiCommInitEnv"] = [] { return tuttiCommInitEnv(&made, nullptr); };
  calls["tuttiCommInitRank"] = [&t] { return tuttiCommInitRank(&made, 1, t.id, 0); };
  calls["tuttiCommInitRankConfig"] = [&t] { return tuttiCommInitRankConfig(&made, 1, t.id, 0, nullptr); };
  calls["tuttiCommRevoke"] = [=] { return tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT); };
  calls["tuttiCommShrink"] = [=] { return tuttiCommShrink(comm, nullptr, 0, &made, nullptr, TUTTI_SHRINK_DEFAULT); };
  calls["tuttiCommSplit"] = [=] { return tuttiCommSplit(comm, 0, 0, &made, nullptr); };
  calls["tuttiCommUserRank"] = [=] { return tuttiCommUserRank(comm, &number); };
  calls["tuttiGetUniqueId"] = [&t] { return tuttiGetUniqueId(&t.id); };
}

// Every function that can be refused, by name; on `comm`, which is outer, inner or own.
Calls calls_of(Things& t, tuttiComm_t comm) {
  static const float scalar = 2;
  Calls calls;
  add_operations(calls, comm);
  add_communicators(calls, t, comm);
  calls["tuttiEventCreate"] = [] {
    tuttiEvent_t event = nullptr;
    return tuttiEventCreate(&event);
  };
  calls["tuttiEventDestroy"] = [&t] { return tuttiEventDestroy(t.event); };
  calls["tuttiEventQuery"] = [&t] { return tuttiEventQuery(t.event); };
  calls["tuttiEventRecord"] = [&t] { return tuttiEventRecord(t.event, t.stream); };
  calls["tuttiEventSynchronize"] = [&t] { return tuttiEventSynchronize(t.event); };
  calls["tuttiLaunchHostFunc"] = [&t] {
    return tuttiLaunchHostFunc(
        t.stream, [](void*) { std::abort(); }, nullptr);
  };
  calls["tuttiMemAlloc"] = [] {
    void* memory = nullptr;
    return tuttiMemAlloc(&memory, 64);
  };
  calls["tuttiMemFree"] = [&t] { return tuttiMemFree(t.memory); };
  calls["tuttiRedOpCreate"] = [=] {
    tuttiRedOp_t op = tuttiSum;
    return tuttiRedOpCreate(
        &op, [](const void*, void*, size_t, tuttiDataType_t, void*) {}, nullptr, 1, comm);
  };
  calls["tuttiRedOpCreatePreMulSum"] = [=] {
    tuttiRedOp_t op = tuttiSum;
    return tuttiRedOpCreatePreMulSum(&op, const_cast<float*>(&scalar), tuttiFloat32, tuttiScalarHostImmediate, comm);
  };
  calls["tuttiRedOpDestroy"] = [&t] { return tuttiRedOpDestroy(t.op, t.inner); };
  calls["tuttiStreamCreate"] = [] {
    tuttiStream_t stream = nullptr;
    return tuttiStreamCreate(&stream);
  };
  calls["tuttiStreamDestroy"] = [&t] { return tuttiStreamDestroy(t.stream); };
  calls["tuttiStreamQuery"] = [&t] { return tuttiStreamQuery(t.stream); };
  calls["tuttiStreamSynchronize"] = [&t] { return tuttiStreamSynchronize(t.stream); };
  calls["tuttiStreamWaitEvent"] = [&t] { return tuttiStreamWaitEvent(t.stream, t.event); };
  calls["tuttiTypeCreate"] = [=] {
    tuttiDataType_t type = tuttiUint8;
    return tuttiTypeCreate(&type, 3, comm);
  };
  calls["tuttiTypeDestroy"] = [&t] { return tuttiTypeDestroy(t.type, t.inner); };
  return calls;
}

// Defects found by the function of an operator, one a line.
struct Attempts {
  Things things;
  std::mutex mutex;
  std::set<std::string> faults;
  int made = 0;
};

extern "C" void call_everything(const void* in, void* inout, size_t count, tuttiDataType_t, void* context) {
  auto& attempts = *static_cast<Attempts*>(context);
  Things& things = attempts.things;
  const std::lock_guard lock(attempts.mutex);
  for (tuttiComm_t comm : {things.outer, things.inner, things.own}) {
    for (const auto& [name, call] : calls_of(things, comm)) {
      const tuttiResult_t result = call();
      const std::string text = tuttiGetLastError(nullptr);
      if (result != tuttiInvalidUsage) attempts.faults.insert(name + " returned " + std::to_string(result));
      if (text.find("runs a user-defined operator function") == std::string::npos)
        attempts.faults.insert(name + " says: " + text);
    }
    int version = 0;
    if (tuttiGetVersion(&version) != tuttiSuccess || version == 0) attempts.faults.insert("tuttiGetVersion");
    if (std::string(tuttiGetErrorString(tuttiTimeout)) != "timeout") attempts.faults.insert("tuttiGetErrorString");
    if (tuttiGetLastError(comm) == nullptr) attempts.faults.insert("tuttiGetLastError");
  }
  ++attempts.made;
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<std::int32_t*>(inout)[i] += static_cast<const std::int32_t*>(in)[i];
  }
}

extern "C" void sum_alone(const void* in, void* inout, size_t count, tuttiDataType_t, void*) {
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<std::int32_t*>(inout)[i] += static_cast<const std::int32_t*>(in)[i];
  }
}

std::string error_of(tuttiComm_t comm) {
  return std::string("an error: ") + tuttiGetLastError(comm);
}

std::string make_things(Things* t, tuttiComm_t comm, int rank) {
  t->outer = comm;
  const bool made = tuttiCommSplit(comm, 0, rank, &t->inner, nullptr) == tuttiSuccess &&
                    tuttiCommInitAll(&t->own, 1, nullptr) == tuttiSuccess &&
                    tuttiStreamCreate(&t->stream) == tuttiSuccess && tuttiEventCreate(&t->event) == tuttiSuccess &&
                    tuttiRedOpCreate(&t->op, sum_alone, nullptr, 1, t->inner) == tuttiSuccess &&
                    tuttiTypeCreate(&t->type, 3, t->inner) == tuttiSuccess &&
                    tuttiMemAlloc(&t->memory, 64) == tuttiSuccess;
  return made ? "" : error_of(nullptr);
}

// Checks that everything still works, and the end.
std::string use_things(const Things& t, int ranks) {
  for (tuttiComm_t comm : {t.outer, t.inner}) {
    std::int32_t one = 1;
    if (tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, comm, nullptr) != tuttiSuccess) return error_of(comm);
    if (one != ranks) return "a wrong sum";
  }
  std::int32_t one = 1;
  if (tuttiAllReduce(&one, &one, 1, tuttiInt32, t.op, t.inner, t.stream) != tuttiSuccess) return error_of(t.inner);
  if (tuttiStreamSynchronize(t.stream) != tuttiSuccess || one != ranks) return "a wrong sum in the stream";
  if (tuttiGroupEnd() != tuttiInvalidUsage) return "a group is left";
  const bool ended = tuttiRedOpDestroy(t.op, t.inner) == tuttiSuccess &&
                     tuttiTypeDestroy(t.type, t.inner) == tuttiSuccess && tuttiMemFree(t.memory) == tuttiSuccess &&
                     tuttiEventDestroy(t.event) == tuttiSuccess && tuttiStreamDestroy(t.stream) == tuttiSuccess &&
                     tuttiCommDestroy(t.own) == tuttiSuccess && tuttiCommDestroy(t.inner) == tuttiSuccess;
  return ended ? "" : error_of(nullptr);
}

std::string call_from_function(Attempts* attempts, int ranks) {
  tuttiRedOp_t op = tuttiSum;
  tuttiComm_t comm = attempts->things.outer;
  if (tuttiRedOpCreate(&op, call_everything, attempts, 1, comm) != tuttiSuccess) return error_of(comm);
  tuttiStream_t stream = nullptr;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return error_of(nullptr);
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{40'000}}) {
    for (const int way : {0, 1, 2}) {
      std::vector<std::int32_t> values(count, 1);
      if (way == 2 && tuttiGroupStart() != tuttiSuccess) return error_of(nullptr);
      const tuttiResult_t called =
          tuttiAllReduce(values.data(), values.data(), count, tuttiInt32, op, comm, way == 1 ? stream : nullptr);
      if (called != tuttiSuccess) return error_of(comm);
      if (way == 2 && tuttiGroupEnd() != tuttiSuccess) return error_of(nullptr);
      if (tuttiStreamSynchronize(stream) != tuttiSuccess) return error_of(nullptr);
      if (values.front() != ranks || values.back() != ranks) return "a wrong sum of the operator";
    }
  }
  if (attempts->made == 0) return "the function was not called";
  return tuttiStreamDestroy(stream) == tuttiSuccess && tuttiRedOpDestroy(op, comm) == tuttiSuccess ? ""
                                                                                                   : error_of(comm);
}

void require_refused(RunJob run, const std::string& transports, int ranks) {
  const auto outcomes = run(ranks, transports, [](tuttiComm_t comm, int rank, int n) {
    Attempts attempts;
    Outcome outcome{make_things(&attempts.things, comm, rank)};
    if (outcome.wrong.empty()) outcome.wrong = call_from_function(&attempts, n);
    for (const std::string& fault : attempts.faults) outcome.wrong += fault + "; ";
    if (outcome.wrong.empty()) outcome.wrong = use_things(attempts.things, n);
    return outcome;
  });
  INFO(transports);
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("operators: every function but three is refused in an operator's function (threads)", "[threads]") {
  for (const char* transports : {"shm", "tcp"}) require_refused(run_threads, transports, 3);
}

TEST_CASE("operators: every function but three is refused in an operator's function (processes)", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) require_refused(run_processes, transports, 2);
}

TEST_CASE("operators: the table of refused functions has every function of the library", "[threads]") {
  Things things;
  std::set<std::string> known{"tuttiGetVersion", "tuttiGetErrorString", "tuttiGetLastError"};
  for (const auto& [name, call] : calls_of(things, nullptr)) known.insert(name);
  std::ifstream symbols(TUTTI_SYMBOLS);
  std::set<std::string> exported;
  for (std::string line; std::getline(symbols, line);) exported.insert(line.substr(0, line.find('@')));
  exported.erase("");
  for (const std::string& name : exported) {
    INFO(name);
    CHECK(known.contains(name));
  }
  CHECK(exported.size() >= 59);
}

// Waits for the other thread to begin, and calls another communicator while that ends this function's.
struct Outlived {
  tuttiComm_t inner = nullptr;
  std::atomic<bool> inside{false};
  std::atomic<bool> refused{true};
};

extern "C" void call_and_linger(const void* in, void* inout, size_t count, tuttiDataType_t type, void* context) {
  auto& o = *static_cast<Outlived*>(context);
  o.inside = true;
  for (int i = 0; i < 50; ++i) {
    std::int32_t one = 1;
    if (tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, o.inner, nullptr) != tuttiInvalidUsage) o.refused = false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  sum_alone(in, inout, count, type, nullptr);
}

TEST_CASE("operators: a communicator is destroyed or aborted while its operator's function makes calls", "[threads]") {
  for (const bool aborts : {false, true}) {
    for (const char* transports : {"shm", "tcp"}) {
      ::setenv("TUTTI_TRANSPORTS", transports, 1);
      std::array<tuttiComm_t, 2> comms{};
      std::array<tuttiComm_t, 2> inner{};
      REQUIRE(tuttiCommInitAll(comms.data(), 2, nullptr) == tuttiSuccess);
      REQUIRE(tuttiCommInitAll(inner.data(), 2, nullptr) == tuttiSuccess);
      std::array<Outlived, 2> states;
      std::vector<std::thread> threads;
      for (std::size_t r = 0; r < 2; ++r) {
        states[r].inner = inner[r];
        threads.emplace_back([&, r] {
          tuttiRedOp_t op = tuttiSum;
          std::vector<std::int32_t> values(1000, 1);
          (void)tuttiRedOpCreate(&op, call_and_linger, &states[r], 1, comms[r]);
          (void)tuttiAllReduce(values.data(), values.data(), 1000, tuttiInt32, op, comms[r], nullptr);
          states[r].inside = true;
        });
        threads.emplace_back([&, r] {
          while (!states[r].inside) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          (void)(aborts ? tuttiCommAbort(comms[r]) : tuttiCommDestroy(comms[r]));
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (std::size_t r = 0; r < 2; ++r) {
        CHECK(states[r].refused);
        CHECK(tuttiCommDestroy(inner[r]) == tuttiSuccess);
      }
      ::unsetenv("TUTTI_TRANSPORTS");
    }
  }
}

}  // namespace
}  // namespace tutti::internal::test
