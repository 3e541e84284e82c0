// A process that forks beside its communicators: the child does not have the threads that they need. Calls on inherited
// communicators are refused, the child makes its own, and it does not harm its parent, neither while it lives nor when
// it exits.
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <functional>

#include "forked.h"

namespace tutti::internal::test {
namespace {

struct Inherited {
  std::array<tuttiComm_t, 2> comms{};
  tuttiStream_t stream = nullptr;
  tuttiEvent_t event = nullptr;

  Inherited() {
    REQUIRE(tuttiCommInitAll(comms.data(), 2, nullptr) == tuttiSuccess);
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    REQUIRE(try_out(comms, nullptr) == "");
    REQUIRE(try_out(comms, stream) == "");
    REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
    REQUIRE(tuttiEventRecord(event, stream) == tuttiSuccess);
  }
  Inherited(const Inherited&) = delete;
  Inherited& operator=(const Inherited&) = delete;
  ~Inherited() {
    CHECK(try_out(comms, nullptr) == "");
    CHECK(try_out(comms, stream) == "");
    CHECK(tuttiEventDestroy(event) == tuttiSuccess);
    CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
    for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  }
};

std::string use(const Inherited& from_parent) {
  const std::string parent = "process " + std::to_string(::getppid());
  const tuttiComm_t comm = from_parent.comms[0];
  const tuttiStream_t stream = from_parent.stream;
  const tuttiEvent_t event = from_parent.event;
  std::int32_t value = 1;
  int number = 0;
  char text[64];
  tuttiResult_t error = tuttiSuccess;
  tuttiStream_t own = nullptr;
  tuttiEvent_t made = nullptr;
  if (tuttiStreamCreate(&own) != tuttiSuccess) return "no stream";
  if (tuttiEventCreate(&made) != tuttiSuccess) return "no event";
  const std::function<tuttiResult_t()> calls[] = {
      [&] { return all_reduce(comm, &value); },
      [&] { return all_reduce(comm, &value, stream); },
      [&] { return all_reduce(comm, &value, own); },
      [&] { return tuttiBarrier(comm, nullptr); },
      [&] { return tuttiCommCount(comm, &number); },
      [&] { return tuttiCommUserRank(comm, &number); },
      [&] { return tuttiCommCuDevice(comm, &number); },
      [&] { return tuttiCommGetAsyncError(comm, &error); },
      [&] { return tuttiCommExplain(comm, tuttiCollectiveBroadcast, 8, text, sizeof text); },
      [&] { return tuttiCommFinalize(comm); },
      [&] { return tuttiCommAbort(comm); },
      [&] { return tuttiCommDestroy(comm); },
      [&] { return tuttiCommDestroy(from_parent.comms[1]); },
      [&] { return tuttiStreamSynchronize(stream); },
      [&] { return tuttiStreamQuery(stream); },
      [&] { return tuttiEventRecord(made, stream); },
      [&] { return tuttiEventRecord(event, own); },
      [&] { return tuttiStreamWaitEvent(own, event); },
      [&] { return tuttiStreamWaitEvent(stream, made); },
      [&] { return tuttiStreamDestroy(stream); },
      [&] { return tuttiEventQuery(event); },
      [&] { return tuttiEventSynchronize(event); },
      [&] { return tuttiEventDestroy(event); },
  };
  for (std::size_t i = 0; i < std::size(calls); ++i) {
    const tuttiResult_t result = calls[i]();
    const std::string why = tuttiGetLastError(comm);
    if (result != tuttiInvalidUsage || !contains(why, parent)) {
      return "call " + std::to_string(i) + ": " + tuttiGetErrorString(result) + " (" + why + ")";
    }
  }
  if (tuttiEventDestroy(made) != tuttiSuccess) return "cannot destroy its own event";
  return tuttiStreamDestroy(own) == tuttiSuccess ? "" : "cannot destroy its own stream";
}

}  // namespace

TEST_CASE("a child is refused what it has inherited, and makes its own") {
  const Inherited inherited;
  CHECK(in_child([&] { return use(inherited); }) == "");
  CHECK(in_child(make_own) == "");
  CHECK(in_child(join_own) == "");
  CHECK(in_child([&] {
          const std::string wrong = make_own();
          // The same in a child of the child.
          return wrong.empty() ? in_child([&] { return make_own() + join_own(); }) : wrong;
        }) == "");
}

namespace {

// The state at exit(): a function that is running, others that wait, and a handler that waits for them.
std::string exit_with_functions() {
  static tuttiStream_t stream = nullptr;
  static std::atomic<bool> running{false};
  static int calls = 0;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return "no stream";
  (void)std::atexit([] {
    // The waiting functions are not called; the one that was running has ended.
    const bool dropped = tuttiStreamDestroy(stream) == tuttiSystemError && calls == 1;
    ::_exit(dropped ? 0 : 3);
  });
  const auto function = [](void*) {
    running = true;
    sleep_ms(100);
    ++calls;
  };
  for (int i = 0; i < 1000; ++i) {
    if (tuttiLaunchHostFunc(stream, function, nullptr) != tuttiSuccess) return "not launched";
  }
  while (!running) sleep_ms(1);
  std::exit(4);
}

}  // namespace

// Before this process launches any function: handlers are called in the reverse order of their registration.
TEST_CASE("a process exits with functions that wait in streams") {
  CHECK(in_child(exit_with_functions) == "");
}

TEST_CASE("a child calls its own functions in streams, and none of its parent's") {
  static std::atomic<bool> open{false};
  static std::atomic<int> calls{0};
  tuttiStream_t stream = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  const auto waits = [](void*) {
    while (!open) sleep_ms(1);
    ++calls;
  };
  for (int i = 0; i < 10; ++i) REQUIRE(tuttiLaunchHostFunc(stream, waits, nullptr) == tuttiSuccess);
  CHECK(in_child([&] {
          open = true;
          tuttiStream_t own = nullptr;
          if (tuttiLaunchHostFunc(stream, waits, nullptr) != tuttiInvalidUsage) return std::string("a stream is kept");
          if (tuttiStreamCreate(&own) != tuttiSuccess) return std::string("no stream");
          if (tuttiLaunchHostFunc(own, waits, nullptr) != tuttiSuccess) return std::string("not launched");
          if (tuttiStreamDestroy(own) != tuttiSuccess || calls != 1) return std::string("not called");
          return std::string();
        }) == "");
  CHECK(calls == 0);
  open = true;
  CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
  CHECK(calls == 10);
}

TEST_CASE("a child can start while other threads of its parent are in every part of the library") {
  std::array<tuttiComm_t, 2> comms{};
  REQUIRE(tuttiCommInitAll(comms.data(), 2, nullptr) == tuttiSuccess);
  std::atomic<bool> stop{false};
  const std::function<void()> parts[] = {
      [] {
        void* memory = nullptr;
        if (tuttiMemAlloc(&memory, 8192) == tuttiSuccess) (void)tuttiMemFree(memory);
      },
      [] {
        tuttiStream_t stream = nullptr;
        tuttiEvent_t event = nullptr;
        (void)tuttiStreamCreate(&stream);
        (void)tuttiEventCreate(&event);
        (void)tuttiLaunchHostFunc(
            stream, [](void*) {}, nullptr);
        (void)tuttiEventRecord(event, stream);
        (void)tuttiEventDestroy(event);
        (void)tuttiStreamDestroy(stream);
      },
      [] {
        tuttiComm_t comm = nullptr;
        if (tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess) (void)tuttiCommDestroy(comm);
      },
      [&] {
        int number = 0;
        (void)tuttiCommCount(comms[0], &number);
        (void)tuttiGetLastError(comms[1]);
      },
  };
  std::vector<std::thread> threads;
  for (const auto& part : parts) {
    threads.emplace_back([&part, &stop] {
      while (!stop) part();
    });
  }
  std::string wrong;
  for (int i = 0; i < 20 && wrong.empty(); ++i) wrong = in_child(i % 2 == 0 ? make_own : join_own);
  stop = true;
  for (std::thread& t : threads) t.join();
  CHECK(wrong == "");
  for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

namespace {

std::array<tuttiComm_t, 2> left_to_exit{};

void destroy_at_exit() {
  for (const tuttiComm_t comm : left_to_exit) (void)tuttiCommDestroy(comm);
}

}  // namespace

TEST_CASE("a child that exits destroys nothing of its parent") {
  for (const char* transports : {"shm", "tcp"}) {
    const auto outcomes = run_processes(2, transports, [](tuttiComm_t comm, int rank, int) {
      std::int32_t value = 1;
      if (all_reduce(comm, &value) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
      if (rank == 0) {
        left_to_exit = {comm, nullptr};
        const std::string wrong = in_child([] {
          ::close(STDOUT_FILENO);  // without the test's output
          std::atexit(destroy_at_exit);
          std::exit(0);
          return std::string();
        });
        if (!wrong.empty()) return Outcome{wrong};
      }
      for (int i = 0; i < 100; ++i) {
        if (all_reduce(comm, &value) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
      }
      return Outcome{};
    });
    INFO(transports);
    CHECK(wrong_of(outcomes) == "");
  }
}

TEST_CASE("memory of tuttiMemAlloc is shared with a child, and each frees it for itself") {
  constexpr std::size_t kCount = 4096;
  void* memory = nullptr;
  REQUIRE(tuttiMemAlloc(&memory, kCount * sizeof(std::int32_t)) == tuttiSuccess);
  auto* const values = static_cast<volatile std::int32_t*>(memory);
  values[0] = 1;
  const std::string wrong = in_child([&]() -> std::string {
    if (values[0] != 1) return "the child does not see its parent's write";
    values[0] = 42;
    if (tuttiMemFree(memory) != tuttiSuccess) return "the child cannot free";
    return tuttiMemFree(memory) == tuttiInvalidArgument ? "" : "freed twice";
  });
  CHECK(wrong == "");
  CHECK(values[0] == 42);
  values[1] = 7;
  CHECK(tuttiMemFree(memory) == tuttiSuccess);
  CHECK(tuttiMemFree(memory) == tuttiInvalidArgument);
}

TEST_CASE("a child uses inherited memory after its parent has freed it") {
  constexpr std::size_t kCount = 32768;
  void* memory = nullptr;
  REQUIRE(tuttiMemAlloc(&memory, 2 * kCount * sizeof(float)) == tuttiSuccess);
  std::array<int, 2> freed{};
  REQUIRE(::pipe(freed.data()) == 0);
  std::string wrong;
  std::thread frees([&] {
    sleep_ms(100);
    if (tuttiMemFree(memory) != tuttiSuccess) std::abort();
    if (::write(freed[1], "f", 1) != 1) std::abort();
  });
  wrong = in_child([&]() -> std::string {
    char byte = 0;
    if (::read(freed[0], &byte, 1) != 1) return "no word from the parent";
    std::array<tuttiComm_t, 2> comms{};
    if (tuttiCommInitAll(comms.data(), 2, nullptr) != tuttiSuccess) return tuttiGetLastError(nullptr);
    auto* const values = static_cast<float*>(memory);
    for (std::size_t i = 0; i < 2 * kCount; ++i) values[i] = i < kCount ? 1 : 2;
    const auto run = [&](std::size_t rank) {
      float* const own = values + rank * kCount;
      return tuttiAllReduce(own, own, kCount, tuttiFloat32, tuttiSum, comms[rank], nullptr);
    };
    tuttiResult_t other = tuttiInternalError;
    std::thread rank_1([&] { other = run(1); });
    const tuttiResult_t mine = run(0);
    rank_1.join();
    if (mine != tuttiSuccess || other != tuttiSuccess) return "an operation failed";
    return values[0] == 3 && values[2 * kCount - 1] == 3 ? "" : "a wrong sum";
  });
  frees.join();
  ::close(freed[0]);
  ::close(freed[1]);
  CHECK(wrong == "");
}

}  // namespace tutti::internal::test
