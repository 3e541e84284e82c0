// A rank that is held while it touches memory of its peer, whose operation fails meanwhile: the peer gets its memory
// back only when no other rank touches it, and no rank succeeds with bytes of revoked memory.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>

#include "fault/held_pages.h"
#include "faults.h"

namespace tutti::internal::test {
namespace {

constexpr std::size_t kKiB = 1024;
// Longer than a failed operation waits for another process.
constexpr int kHoldMs = 1500;
constexpr int kPatienceMs = 60'000;

enum class Fate { kUnmapped, kOverwritten };

struct Case {
  const char* collective;
  std::size_t bytes;  // of a block: what one rank sends to another
  Fate fate;          // of a rank's buffers as soon as its call has returned
  bool second_half;   // the second half of rank 1's output is held, otherwise the first
};

// Shared by both ranks, as threads or processes.
struct Shared {
  std::atomic<bool> held{false};
  std::atomic<bool> released{false};
  std::atomic<int> returned_early{0};  // calls that returned before the held rank was released
};

// The input of rank r; sum(): the sum of both inputs.
float value(int rank, std::size_t i) {
  return static_cast<float>(i % 251) + static_cast<float>(rank * 1000);
}
float sum(std::size_t i) {
  return value(0, i) + value(1, i);
}

class Rank {
 public:
  Rank(const Case& c, bool processes, int rank)
      : case_(c),
        rank_(rank),
        count_(c.bytes / sizeof(float)),
        out_bytes_(is("all_gather") ? 2 * c.bytes : c.bytes),
        held_(out_bytes_, c.second_half ? out_bytes_ / 2 : 0, out_bytes_ / 2) {
    if (processes) {
      owned_ = tuttiMemAlloc(&in_, c.bytes) == tuttiSuccess && tuttiMemAlloc(&out_, out_bytes_) == tuttiSuccess;
    } else {
      in_ = map(c.bytes);
      out_ = map(out_bytes_);
    }
    if (rank == 1) out_ = held_.base();
    for (std::size_t i = 0; i < count_; ++i) static_cast<float*>(in_)[i] = value(rank, i);
  }

  tuttiResult_t call(tuttiComm_t comm) {
    if (is("broadcast")) return tuttiBroadcast(in_, out_, count_, tuttiFloat32, 0, comm, nullptr);
    if (is("all_gather")) return tuttiAllGather(in_, out_, count_, tuttiFloat32, comm, nullptr);
    if (is("reduce")) return tuttiReduce(in_, out_, count_, tuttiFloat32, tuttiSum, 1, comm, nullptr);
    return tuttiAllReduce(in_, out_, count_, tuttiFloat32, tuttiSum, comm, nullptr);
  }

  // What is wrong after a call that succeeded.
  [[nodiscard]] std::string check() const {
    if (is("reduce") && rank_ == 0) return "";
    const auto* out = static_cast<const float*>(out_);
    for (std::size_t i = 0; i < out_bytes_ / sizeof(float); ++i) {
      float expected = sum(i % count_);
      if (is("broadcast")) expected = value(0, i);
      if (is("all_gather")) expected = value(i < count_ ? 0 : 1, i % count_);
      if (out[i] != expected) return "rank " + std::to_string(rank_) + " has wrong bytes at " + std::to_string(i);
    }
    return "";
  }

  void meet_fate() {
    if (case_.fate == Fate::kOverwritten) {
      std::memset(in_, 0x55, case_.bytes);
      if (rank_ == 0) std::memset(out_, 0x55, out_bytes_);
    } else if (owned_) {
      (void)tuttiMemFree(in_);
      if (rank_ == 0) (void)tuttiMemFree(out_);
    } else {
      ::munmap(in_, case_.bytes);
      ::munmap(out_, out_bytes_);
    }
  }

  // Runs beside the call of rank 1: waits until a thread is held, and releases it when a call has returned or `hold_ms`
  // have passed.
  void hold(Shared* shared, int hold_ms) {
    shared->held = held_.wait_until_held(kPatienceMs / 10);
    const Deadline deadline = Deadline::after_ms(hold_ms);
    while (shared->held && shared->returned_early == 0 && !deadline.passed()) sleep_ms(2);
    // Time for the buffers' fate.
    if (shared->returned_early != 0) sleep_ms(50);
    shared->released = true;
    held_.release();
  }

 private:
  [[nodiscard]] bool is(const char* collective) const { return std::strcmp(case_.collective, collective) == 0; }
  static void* map(std::size_t bytes) {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }

  Case case_;
  int rank_;
  std::size_t count_;
  std::size_t out_bytes_;
  HeldPages held_;  // the output of rank 1
  void* in_ = nullptr;
  void* out_ = nullptr;
  bool owned_ = false;  // by tuttiMemAlloc
};

// Returns whether a thread was held; on a busy machine the time may be over before the operation has begun.
bool run_case(const Case& c, RunJobKind kind) {
  const bool processes = kind == RunJobKind::kProcesses;
  const SharedMemory<Shared> memory;
  Shared* const shared = memory.get();
  const Timeout timeout(300);
  const auto outcomes = (processes ? run_processes : run_threads)(2, "shm", [&](tuttiComm_t comm, int r, int) {
    Rank rank(c, processes, r);
    std::thread holder;
    // A wait for a process ends after a while, a wait for a thread does not.
    if (r == 1) holder = std::thread([&] { rank.hold(shared, processes ? kPatienceMs / 3 : kHoldMs); });
    const tuttiResult_t result = rank.call(comm);
    std::string wrong = result == tuttiSuccess ? rank.check() : "";
    if (!shared->released) ++shared->returned_early;
    rank.meet_fate();
    if (holder.joinable()) holder.join();
    return Outcome{wrong};
  });
  INFO(c.collective << " of " << c.bytes << " bytes, buffers "
                    << (c.fate == Fate::kUnmapped ? "unmapped" : "overwritten") << " at once, "
                    << (c.second_half ? "second" : "first") << " half held");
  if (!shared->held) return false;
  REQUIRE(wrong_of(outcomes) == "");
  if (processes) {
    CHECK(shared->returned_early > 0);
  } else {
    CHECK(shared->returned_early == 0);
  }
  return true;
}

void run_held(RunJobKind kind, const Case& c) {
  int tries = 0;
  while (!run_case(c, kind)) REQUIRE(++tries < 5);
}

void run_cases(RunJobKind kind) {
  for (const char* collective : {"broadcast", "all_gather", "reduce", "all_reduce"}) {
    for (const std::size_t bytes : {32 * kKiB, 64 * kKiB, 1024 * kKiB}) {
      for (const Fate fate : {Fate::kUnmapped, Fate::kOverwritten}) {
        run_held(kind, {collective, bytes, fate, false});
        // In an all-reduce each rank writes one half. The other half of a gathered output is written by its own rank,
        // which then touches nothing of its peer's.
        if (std::strcmp(collective, "all_reduce") == 0) run_held(kind, {collective, bytes, fate, true});
      }
    }
  }
}

void probe() {
  if (HeldPages::possible()) return;
  std::printf("skipped: userfaultfd is not allowed here\n");
  std::exit(77);
}

}  // namespace

TEST_CASE("a thread is held in memory of an operation that fails", "[threads]") {
  probe();
  run_cases(RunJobKind::kThreads);
}

TEST_CASE("a process is held in memory of an operation that fails", "[processes]") {
  probe();
  run_cases(RunJobKind::kProcesses);
}

}  // namespace tutti::internal::test
