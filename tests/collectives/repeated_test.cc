// Programs repeat few calls, with other buffers and values and in any order: a prepared call has the results of a new
// one, and allocates no memory.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "sanitizers.h"
#include "suites.h"

namespace {
thread_local std::uint64_t allocations = 0;
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those have their own
// If they were inlined, GCC would see a new and a delete that do not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  void* const found = std::malloc(bytes != 0 ? bytes : 1);
  if (found == nullptr) throw std::bad_alloc();
  return found;
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t /*bytes*/) noexcept {
  std::free(p);
}
#endif

namespace tutti::internal::test {
namespace {

constexpr std::uint32_t kMostCount = 40;  // more than there are slots for calls that differ only in this
constexpr std::uint32_t kMostLongCount = 3000;

// The same on all ranks.
Spec draw(std::mt19937& random, int ranks) {
  Spec spec;
  spec.collective = static_cast<Collective>(random() % kCollectives);
  spec.type = random() % 2 == 0 ? DataType::kInt32 : DataType::kFloat64;
  spec.op = random() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kMax;
  spec.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  const bool is_long = random() % 4 == 0 && ranks <= 4;
  spec.count = random() % 8 == 0 ? 0 : 1 + random() % (is_long ? kMostLongCount : kMostCount);
  spec.in_place = random() % 3 == 0;
  return spec;
}

// The same in a stream, with its own buffers.
std::string queued(tuttiComm_t comm, const Spec& spec, int rank, int ranks) {
  tuttiStream_t stream = nullptr;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return tuttiGetLastError(nullptr);
  Memory send;
  Memory recv;
  Trial trial(spec, rank, ranks);
  trial.prepare(&send, &recv);
  const bool done = trial.issue(comm, stream) == tuttiSuccess && tuttiStreamSynchronize(stream) == tuttiSuccess;
  (void)tuttiStreamDestroy(stream);
  return done ? trial.check() : std::string("queued: ") + tuttiGetLastError(comm);
}

// Calls of few kinds at a time, and now and then one with another root, or in place.
Outcome repeat(tuttiComm_t comm, int rank, int ranks) {
  const int times = (ranks > 4 ? 800 : 6000) / (kThreadSanitizer ? 15 : kAddressSanitizer ? 6 : 1);
  std::mt19937 same(static_cast<unsigned>(ranks));
  std::mt19937 own(static_cast<unsigned>(rank) + 100);
  Runner runner(comm, rank, ranks);
  std::vector<Spec> some(12);
  for (int time = 0; time < times; ++time) {
    if (time % 200 == 0) {
      for (Spec& spec : some) spec = draw(same, ranks);
    }
    Spec spec = some[same() % some.size()];
    if (same() % 5 == 0) spec.root = static_cast<int>(same() % static_cast<unsigned>(ranks));
    if (same() % 20 == 0) spec.in_place = !spec.in_place;
    spec.first = same() % kPeriod;
    spec.misalign = own() % 4 * 8;
    const std::string wrong = same() % 16 == 0 ? queued(comm, spec, rank, ranks) : runner.run(spec);
    if (!wrong.empty()) return {"call " + std::to_string(time) + ", " + wrong};
  }
  return {};
}

// The root rotates. A rank that goes to sleep may need memory.
Outcome repeat_without_memory(tuttiComm_t comm, int rank, int ranks) {
  constexpr int kKept = 100;
  constexpr int kTimes = 200;
  constexpr int kCalls = 3;
  Memory send;
  Memory recv;
  std::uint64_t taken = 0;
  for (int time = 0; time < kKept + kTimes; ++time) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce}) {
      Spec spec;
      spec.collective = collective;
      spec.root = time % ranks;
      if (time % 3 == 0) spec.count = 0;
      Trial trial(spec, rank, ranks);
      trial.prepare(&send, &recv);
      const std::uint64_t before = allocations;
      if (trial.issue(comm, nullptr) != tuttiSuccess) return {tuttiGetLastError(comm)};
      if (time >= kKept) taken += allocations - before;
      if (const std::string wrong = trial.check(); !wrong.empty()) return {wrong};
    }
  }
  if (taken > kTimes * kCalls / 10) return {std::to_string(taken) + " allocations"};
  return {};
}

// One call of a size at which peers read registered memory: from memory that stays registered, from ordinary memory,
// and from memory that is registered again each time, mostly at the address of freed memory.
Outcome repeat_in_other_memory(tuttiComm_t comm, int rank, int ranks) {
  constexpr std::size_t kCount = 100000;
  constexpr std::size_t kBytes = kCount * sizeof(float);
  const auto allocate = [] {
    void* memory = nullptr;
    return tuttiMemAlloc(&memory, kBytes) == tuttiSuccess ? static_cast<float*>(memory) : nullptr;
  };
  float* const kept = allocate();
  std::vector<float> ordinary(kCount);
  std::string wrong;
  for (int time = 0; time < 30 && wrong.empty(); ++time) {
    float* const fresh = time % 3 == 2 ? allocate() : nullptr;
    float* const values = time % 3 == 0 ? kept : time % 3 == 1 ? ordinary.data() : fresh;
    if (values == nullptr) return {tuttiGetLastError(nullptr)};
    std::fill_n(values, kCount, static_cast<float>(rank + time));
    const tuttiResult_t result = tuttiAllReduce(values, values, kCount, tuttiFloat32, tuttiSum, comm, nullptr);
    const auto sum = static_cast<float>(ranks * time + ranks * (ranks - 1) / 2);
    const bool right = std::all_of(values, values + kCount, [&](float value) { return value == sum; });
    if (!right) wrong = "time " + std::to_string(time) + ": a wrong sum";
    if (result != tuttiSuccess) wrong = tuttiGetLastError(comm);
    (void)tuttiMemFree(fresh);
  }
  (void)tuttiMemFree(kept);
  return {wrong};
}

// Arguments that the check refuses are refused also after a valid call of that kind, at any size.
Outcome repeat_invalid(tuttiComm_t comm, int /*rank*/, int ranks) {
  for (const std::size_t count : {4, 5000}) {
    std::vector<float> memory(3 * count);
    float* const send = memory.data();
    const auto call = [&](const void* from, void* to) {
      return tuttiAllReduce(from, to, count, tuttiFloat32, tuttiSum, comm, nullptr);
    };
    for (int time = 0; time < 3; ++time) {
      if (call(send, send + count) != tuttiSuccess || call(send, send) != tuttiSuccess) {
        return {tuttiGetLastError(comm)};
      }
      if (call(nullptr, send) != tuttiInvalidArgument || call(send, nullptr) != tuttiInvalidArgument ||
          call(send, send + 1) != tuttiInvalidArgument || call(send + count - 1, send) != tuttiInvalidArgument) {
        return {"an invalid call of " + std::to_string(count) + " is taken on " + std::to_string(ranks) + " ranks"};
      }
    }
  }
  return {};
}

// A rank calls another size after many calls of one size: every rank gets the error, and none uses the prepared call.
Outcome differ_in_the_end(tuttiComm_t comm, int rank, int ranks) {
  Runner runner(comm, rank, ranks);
  Spec spec;
  for (int time = 0; time < 100; ++time) {
    spec.count = 1 + static_cast<std::size_t>(time) % 2;
    if (const std::string wrong = runner.run(spec); !wrong.empty()) return {wrong};
  }
  spec.count = rank == 1 ? 2 : 1;
  Memory send;
  Memory recv;
  Trial trial(spec, rank, ranks);
  trial.prepare(&send, &recv);
  const tuttiResult_t result = trial.issue(comm, nullptr);
  if (result != tuttiMismatch) return {std::string("told: ") + tuttiGetErrorString(result)};
  return {};
}

void check_all(RunJob run) {
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {1, 2, 3, 4, 20}) {
      INFO(transports << ", " << ranks << " ranks");
      CHECK(wrong_of(run(ranks, transports, repeat)) == "");
      CHECK(wrong_of(run(ranks, transports, repeat_invalid)) == "");
      if (ranks > 4) continue;
      CHECK(wrong_of(run(ranks, transports, repeat_without_memory)) == "");
      CHECK(wrong_of(run(ranks, transports, repeat_in_other_memory)) == "");
      if (ranks > 1) {
        CHECK(wrong_of(run(ranks, transports, differ_in_the_end)) == "");
      }
    }
  }
}

}  // namespace

TEST_CASE("repeated calls have the results of new ones, threads", "[threads]") {
  check_all(run_threads);
}

TEST_CASE("repeated calls have the results of new ones, processes", "[processes]") {
  check_all(run_processes);
}

}  // namespace tutti::internal::test
