// A library that runs out of memory or threads, at every request: an immediate error on every rank, and no crash.
#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "faults.h"
#include "sanitizers.h"

namespace tutti::internal::test {
namespace {

// Refuses the request with a given number, or that one and all later ones.
class Quota {
 public:
  void refuse(std::int64_t which, bool all_later) {
    asked_ = 0;
    refused_ = false;
    all_later_ = all_later;
    which_ = which;
  }
  void lift() { which_ = kNone; }
  bool refuses() {
    if (which_ == kNone) return false;
    const std::int64_t number = asked_.fetch_add(1);
    const bool refused = number == which_ || (all_later_ && number > which_);
    if (refused) refused_ = true;
    return refused;
  }
  [[nodiscard]] bool refused() const { return refused_; }

 private:
  static constexpr std::int64_t kNone = -1;
  std::atomic<std::int64_t> which_{kNone};
  std::atomic<std::int64_t> asked_{0};
  std::atomic<bool> all_later_{false};
  std::atomic<bool> refused_{false};
};

Quota memory;
Quota thread_starts;

// The test's own threads, outside of calls.
thread_local bool exempt = false;

template <class Call>
tuttiResult_t in_library(Call&& call) {
  exempt = false;
  const tuttiResult_t result = call();
  exempt = true;
  return result;
}

}  // namespace
}  // namespace tutti::internal::test

// Also for the library: a program's operators replace those of all its libraries.
void* operator new(std::size_t bytes) {
  using namespace tutti::internal::test;  // NOLINT: of this file
  void* memory_found = !exempt && memory.refuses() ? nullptr : std::malloc(bytes != 0 ? bytes : 1);
  if (memory_found == nullptr) throw std::bad_alloc();
  return memory_found;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  using namespace tutti::internal::test;  // NOLINT: of this file
  const auto unit = static_cast<std::size_t>(alignment);
  return !exempt && memory.refuses() ? nullptr : std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  void* const found = operator new(bytes, alignment, std::nothrow);
  if (found == nullptr) throw std::bad_alloc();
  return found;
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

extern "C" TUTTI_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                                           void* argument) {
  using namespace tutti::internal::test;  // NOLINT: of this file
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (!exempt && thread_starts.refuses()) return EAGAIN;
  return real(thread, attributes, body, argument);
}

namespace tutti::internal::test {
namespace {

constexpr std::size_t kCount = 60'000;
constexpr std::int64_t kInitMs = 30'000;  // for ranks that are made together; no wait may last this long

// The first error of one rank, and what is wrong with it.
struct Met {
  tuttiResult_t error = tuttiSuccess;
  std::string text;
  std::string wrong;
};

class Rank {
 public:
  Rank(tuttiComm_t comm, int rank, int ranks)
      : comm_(comm), rank_(rank), ranks_(static_cast<float>(ranks)), values_(kCount, 1) {}

  Met run() {
    all_reduce(4, nullptr);
    all_reduce(kCount, nullptr);
    tuttiStream_t stream = nullptr;
    take(in_library([&] { return tuttiStreamCreate(&stream); }));
    if (stream != nullptr) {
      go_on(stream);
      if (in_library([&] { return tuttiStreamDestroy(stream); }) != tuttiSuccess) met_.wrong = "an error was left";
    }
    const tuttiResult_t destroyed = in_library([&] { return tuttiCommDestroy(comm_); });
    // A rank that calls less than the others, because it has no stream or group, may get this error.
    const bool told = (stream == nullptr || left_out_) && destroyed == tuttiMismatch;
    if (destroyed != tuttiSuccess && !told) met_.wrong = "destroy failed";
    return met_;
  }

 private:
  void go_on(tuttiStream_t stream) {
    for (int i = 0; i < 3; ++i) all_reduce(100, stream);
    reduce_scatter_v(stream);
    reduce_scatter_v(nullptr);
    group(stream);
    if (!left_out_) group(nullptr);
    if (left_out_) return static_cast<void>(in_library([&] { return tuttiStreamSynchronize(stream); }));
    pass_on(stream);
    tuttiEvent_t event = nullptr;
    if (in_library([&] { return tuttiEventCreate(&event); }) == tuttiSuccess) {
      (void)in_library([&] { return tuttiEventRecord(event, stream); });
      (void)in_library([&] { return tuttiEventSynchronize(event); });
      (void)in_library([&] { return tuttiEventDestroy(event); });
    }
    take(in_library([&] { return tuttiStreamSynchronize(stream); }));
    take(in_library(
        [&] { return tuttiBroadcast(values_.data(), values_.data(), 10, tuttiFloat32, 1, comm_, nullptr); }));
    take(in_library([&] { return tuttiBarrier(comm_, nullptr); }));
  }

  // Small collectives, and a ring of messages. A rank that cannot begin the group has sent nothing, and leaves.
  void group(tuttiStream_t stream) {
    const tuttiResult_t begun = in_library([] { return tuttiGroupStart(); });
    if (begun != tuttiSuccess) {
      left_out_ = true;
      // This is not an operation of a communicator, and has no other error to repeat.
      if (met_.error == tuttiSuccess) take(begun);
      return;
    }
    float* const v = values_.data();
    for (std::size_t i = 0; i < 3; ++i) {
      (void)in_library([&] { return tuttiAllReduce(v + i, v + i, 1, tuttiFloat32, tuttiSum, comm_, stream); });
    }
    const int next = (rank_ + 1) % ranks();
    const int before = (rank_ + ranks() - 1) % ranks();
    (void)in_library([&] { return tuttiSend(v + 10, 5, tuttiFloat32, next, comm_, stream); });
    (void)in_library([&] { return tuttiRecv(v + 20, 5, tuttiFloat32, before, comm_, stream); });
    take(in_library([] { return tuttiGroupEnd(); }));
  }
  // The collective whose name does not fit into a string without memory.
  void reduce_scatter_v(tuttiStream_t stream) {
    exempt = true;
    static const std::vector<std::size_t> counts(8, 3);
    take(in_library([&] {
      return tuttiReduceScatterV(values_.data(), values_.data() + 100, counts.data(), tuttiFloat32, tuttiSum, comm_,
                                 stream);
    }));
  }
  // One message of rank 0 to rank 1, queued alone.
  void pass_on(tuttiStream_t stream) {
    float* const v = values_.data();
    if (rank_ == 0) take(in_library([&] { return tuttiSend(v, 4, tuttiFloat32, 1, comm_, stream); }));
    if (rank_ == 1) take(in_library([&] { return tuttiRecv(v, 4, tuttiFloat32, 0, comm_, stream); }));
  }

  void all_reduce(std::size_t count, tuttiStream_t stream) {
    std::fill(values_.begin(), values_.end(), 1.0F);
    const tuttiResult_t result = in_library(
        [&] { return tuttiAllReduce(values_.data(), values_.data(), count, tuttiFloat32, tuttiSum, comm_, stream); });
    take(result);
    if (result != tuttiSuccess || stream != nullptr) return;
    for (std::size_t i = 0; i < count; ++i) {
      if (values_[i] != ranks_) met_.wrong = "a wrong sum without an error";
    }
  }

  // Once a communicator has failed, all its operations return the same error.
  void take(tuttiResult_t result) {
    if (met_.error == tuttiSuccess) {
      met_.error = result;
      met_.text = tuttiGetLastError(nullptr);
      return;
    }
    if (result != met_.error && result != tuttiSuccess) {
      met_.wrong = "after an error of code " + std::to_string(met_.error) + " one of " + std::to_string(result);
    }
  }

  [[nodiscard]] int ranks() const { return static_cast<int>(ranks_); }

  tuttiComm_t comm_;
  int rank_;
  float ranks_;
  bool left_out_ = false;
  std::vector<float> values_;
  Met met_;
};

std::string judge(const std::vector<Met>& ranks, const char* cause) {
  bool found = false;
  bool failed = false;
  for (const Met& met : ranks) {
    if (!met.wrong.empty()) return met.wrong + " (" + met.text + ")";
    failed = failed || met.error != tuttiSuccess;
    found = found || (met.error == tuttiSystemError && contains(met.text, cause));
    const bool left_alone = met.error == tuttiMismatch && contains(met.text, "has left after");
    if (met.error != tuttiSuccess && met.error != tuttiSystemError && met.error != tuttiRemoteError && !left_alone) {
      return "code " + std::to_string(met.error) + ": " + met.text;
    }
  }
  if (failed && !found) return "no rank names the cause: " + ranks[0].text + " / " + ranks[1].text;
  return {};
}

// Runs body(rank) on the test's own threads.
template <class Body>
void on_own_threads(std::size_t ranks, const Body& body) {
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&body, r] {
      exempt = true;
      body(r);
    });
  }
  for (std::thread& t : threads) t.join();
}

// A whole job of threads of one process; returns what is wrong with it.
std::string job_by_init_all(std::size_t ranks, const char* cause) {
  std::vector<tuttiComm_t> comms(ranks, nullptr);
  std::vector<Met> met(ranks);
  const auto n = static_cast<int>(ranks);
  const Deadline far_off = Deadline::after_ms(kInitMs / 2);
  met[0].error = in_library([&] { return tuttiCommInitAll(comms.data(), n, nullptr); });
  met[0].text = tuttiGetLastError(nullptr);
  if (far_off.passed()) return "a rank was waited for that could not come";
  if (met[0].error != tuttiSuccess) return judge(met, cause);
  on_own_threads(ranks, [&](std::size_t r) { met[r] = Rank(comms[r], static_cast<int>(r), n).run(); });
  return judge(met, cause);
}

// The same through a unique id: sockets, a root service and a control tree with its threads.
std::string job_by_init_rank(std::size_t ranks, const char* cause) {
  std::vector<Met> met(ranks);
  tuttiUniqueId id;
  met[0].error = in_library([&] { return tuttiGetUniqueId(&id); });
  met[0].text = tuttiGetLastError(nullptr);
  if (met[0].error != tuttiSuccess) return judge(met, cause);
  const auto n = static_cast<int>(ranks);
  std::atomic<bool> joined{true};
  on_own_threads(ranks, [&](std::size_t r) {
    tuttiComm_t comm = nullptr;
    const tuttiResult_t result = in_library([&] { return tuttiCommInitRank(&comm, n, id, static_cast<int>(r)); });
    if (result == tuttiSuccess) {
      met[r] = Rank(comm, static_cast<int>(r), n).run();
    } else {
      joined = false;
    }
  });
  // Joining ranks notice a missing root or parent by a refusal, or by silence.
  if (!joined) return {};
  return judge(met, cause);
}

using Job = std::string (*)(std::size_t ranks, const char* cause);

// The release build refuses every request. A sanitizer checks how errors unwind, which is the same for neighbouring
// requests.
constexpr std::int64_t kStep = kAnySanitizer ? 11 : 1;

// Refuses the first request, then the one `step` later and so on, until a job needs fewer. Returns how many it needs.
std::int64_t refuse_each(Quota& quota, const char* cause, Job job, const char* transports, std::int64_t step) {
  ::setenv("TUTTI_TRANSPORTS", transports, 1);
  for (std::int64_t which = 0;; which += step) {
    bool reached = false;
    for (const bool all_later : {false, true}) {
      // If all later requests are refused, neighbours end at the same request more often: every third is enough.
      if (all_later && which % (3 * step) != 0) continue;
      INFO(transports << ", request " << which << (all_later ? " and all later ones" : ""));
      quota.refuse(which, all_later);
      const std::string wrong = job(2, cause);
      quota.lift();
      reached = reached || quota.refused();
      REQUIRE(wrong == "");
    }
    if (!reached) return which;
  }
}

// No wait may last until these deadlines: that would be a timeout, which judge() refuses.
class Shortage {
 public:
  explicit Shortage(const std::string& init_timeout_ms) : timeout_(30'000) {
    exempt = true;
    ::setenv("TUTTI_INIT_TIMEOUT_MS", init_timeout_ms.c_str(), 1);
  }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;
  ~Shortage() { ::unsetenv("TUTTI_INIT_TIMEOUT_MS"); }

 private:
  Timeout timeout_;
};

}  // namespace

TEST_CASE("no memory is an error of every rank, wherever it runs out", "[memory_shm]") {
  const Shortage shortage(std::to_string(kInitMs));
  CHECK(refuse_each(memory, "out of memory", job_by_init_all, "shm", kStep) > 50);
}

TEST_CASE("no memory is an error of every rank, wherever it runs out, over TCP", "[memory_tcp]") {
  const Shortage shortage(std::to_string(kInitMs));
  CHECK(refuse_each(memory, "out of memory", job_by_init_all, "tcp", kStep) > 50);
}

TEST_CASE("no memory is an error of every rank that joins by sockets", "[sockets]") {
  const Shortage shortage("2000");
  CHECK(refuse_each(memory, "out of memory", job_by_init_rank, "shm,tcp", 17) > 50);
}

TEST_CASE("no thread is an error of every rank", "[threads]") {
  for (const char* transports : {"shm", "tcp"}) {
    const Shortage shortage(std::to_string(kInitMs));
    // Two ranks that join, and one progress thread.
    CHECK(refuse_each(thread_starts, "unavailable", job_by_init_all, transports, 1) >= 3);
  }
  const Shortage shortage("2000");
  // A root service, two control trees, and one progress thread.
  CHECK(refuse_each(thread_starts, "unavailable", job_by_init_rank, "shm,tcp", 1) >= 4);
}

}  // namespace tutti::internal::test
