// Programs repeat few small calls, with new buffers, new values and in any order: what a communicator keeps of earlier
// calls changes no result, and a call that repeats one takes no memory.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "suites.h"

namespace {
thread_local std::uint64_t allocations = 0;
}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // those have their own
// Counts, of the calling thread.
void* operator new(std::size_t bytes) {
  ++allocations;
  void* const memory = std::malloc(std::max<std::size_t>(bytes, 1));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}
#endif

namespace tutti::internal::test {
namespace {

using Elements = std::vector<std::int32_t>;

constexpr int kKinds = 11;
constexpr int kMostCount = 40;  // more than there are places for calls that differ in this alone
constexpr std::int32_t kUntouched = -7;

struct Planned {
  int kind = 0;
  int count = 1;
  int root = 0;
  bool largest = false;  // tuttiMax; else tuttiSum
  bool in_place = false;
  std::uint32_t salt = 0;
};

std::int32_t value(const Planned& p, int rank, int i) {
  const auto mixed = static_cast<std::uint32_t>(rank) * 7919U + static_cast<std::uint32_t>(i) * 104'729U + p.salt * 31U;
  return static_cast<std::int32_t>(mixed % 1000U);
}

// Of ranks [0, end).
std::int32_t reduced(const Planned& p, int end, int i) {
  std::int32_t all = value(p, 0, i);
  for (int rank = 1; rank < end; ++rank) {
    all = p.largest ? std::max(all, value(p, rank, i)) : all + value(p, rank, i);
  }
  return all;
}

// One call of one rank: where its input and its output are, how long they are in blocks, and what the output must be.
class Trial {
 public:
  Trial(const Planned& p, int rank, int ranks, Elements& memory, std::size_t shift)
      : p_(p), rank_(rank), ranks_(ranks), half_(memory.size() / 2) {
    std::fill(memory.begin(), memory.end(), kUntouched);
    send_ = memory.data() + shift;
    recv_ = memory.data() + half_ + shift;
    const bool is_root = rank == p.root;
    const bool long_input = p.kind == 4 || p.kind == 7 || (p.kind == 6 && is_root);
    const bool reads = p.kind != 10 && ((p.kind != 1 && p.kind != 6) || is_root);
    const int block = rank * p.count;
    if (p.in_place) {
      if (p.kind == 3 || (p.kind == 5 && is_root))
        send_ = recv_ + block;
      else if (p.kind == 4 || (p.kind == 6 && is_root))
        recv_ = send_ + block;
      else if (p.kind != 5 && p.kind != 6)
        send_ = recv_;
    }
    for (int i = 0; reads && i < p.count * (long_input ? ranks : 1); ++i) send_[i] = value(p, rank, i);
  }

  tuttiResult_t issue(tuttiComm_t comm) const {
    const auto count = static_cast<std::size_t>(p_.count);
    const tuttiRedOp_t op = p_.largest ? tuttiMax : tuttiSum;
    switch (p_.kind) {
      case 0: return tuttiAllReduce(send_, recv_, count, tuttiInt32, op, comm, nullptr);
      case 1: return tuttiBroadcast(send_, recv_, count, tuttiInt32, p_.root, comm, nullptr);
      case 2: return tuttiReduce(send_, recv_, count, tuttiInt32, op, p_.root, comm, nullptr);
      case 3: return tuttiAllGather(send_, recv_, count, tuttiInt32, comm, nullptr);
      case 4: return tuttiReduceScatter(send_, recv_, count, tuttiInt32, op, comm, nullptr);
      case 5: return tuttiGather(send_, recv_, count, tuttiInt32, p_.root, comm, nullptr);
      case 6: return tuttiScatter(send_, recv_, count, tuttiInt32, p_.root, comm, nullptr);
      case 7: return tuttiAlltoAll(send_, recv_, count, tuttiInt32, comm, nullptr);
      case 8: return tuttiScan(send_, recv_, count, tuttiInt32, op, comm, nullptr);
      case 9: return tuttiExscan(send_, recv_, count, tuttiInt32, op, comm, nullptr);
      default: return tuttiBarrier(comm, nullptr);
    }
  }

  // How many elements of the output are wrong, and what lies behind it.
  [[nodiscard]] int wrong() const {
    const bool is_root = rank_ == p_.root;
    if (p_.kind == 10 || ((p_.kind == 2 || p_.kind == 5) && !is_root) || (p_.kind == 9 && rank_ == 0)) return 0;
    const bool long_output = p_.kind == 3 || p_.kind == 5 || p_.kind == 7;
    const int length = p_.count * (long_output ? ranks_ : 1);
    int all = 0;
    for (int i = 0; i < length; ++i) all += recv_[i] != expected(i);
    const bool inside = p_.in_place && (p_.kind == 4 || p_.kind == 6);  // what follows is the input
    return all + (!inside && recv_[length] != kUntouched);
  }

 private:
  [[nodiscard]] std::int32_t expected(int i) const {
    const int from = i / p_.count;
    switch (p_.kind) {
      case 0:
      case 2: return reduced(p_, ranks_, i);
      case 1: return value(p_, p_.root, i);
      case 3:
      case 5: return value(p_, from, i % p_.count);
      case 4: return reduced(p_, ranks_, rank_ * p_.count + i);
      case 6: return value(p_, p_.root, rank_ * p_.count + i);
      case 7: return value(p_, from, rank_ * p_.count + i % p_.count);
      case 8: return reduced(p_, rank_ + 1, i);
      default: return reduced(p_, rank_, i);
    }
  }

  Planned p_;
  int rank_;
  int ranks_;
  std::size_t half_;
  std::int32_t* send_;
  std::int32_t* recv_;
};

// Calls of few kinds at a time, and now and then one of another root, or in place.
Outcome repeat(tuttiComm_t comm, int rank, int ranks) {
  constexpr int kTimes = 6000;
  std::mt19937 same(static_cast<std::uint32_t>(ranks));  // on all ranks
  std::mt19937 own(static_cast<std::uint32_t>(rank) + 100);
  const auto below = [](std::mt19937& random, int end) {
    return static_cast<int>(random() % static_cast<std::uint32_t>(end));
  };
  Elements memory(static_cast<std::size_t>(2 * (kMostCount * ranks + 8)));
  std::vector<Planned> some(12);
  for (int time = 0; time < kTimes; ++time) {
    if (time % 200 == 0) {
      for (Planned& p : some) {
        p = {below(same, kKinds), 1 + below(same, kMostCount), below(same, ranks),
             below(same, 2) == 1, below(same, 3) == 0,         0};
      }
    }
    Planned p = some[same() % some.size()];
    if (below(same, 50) == 0) p.root = below(same, ranks);
    if (below(same, 20) == 0) p.in_place = !p.in_place;
    p.salt = static_cast<std::uint32_t>(same());
    const Trial trial(p, rank, ranks, memory, own() % 4);
    if (const tuttiResult_t result = trial.issue(comm); result != tuttiSuccess) return {tuttiGetLastError(comm)};
    if (trial.wrong() > 0) {
      return {"call " + std::to_string(time) + ", kind " + std::to_string(p.kind) + ", count " +
              std::to_string(p.count) + ", root " + std::to_string(p.root) + (p.in_place ? ", in place" : "")};
    }
  }
  return {};
}

// The root goes round: as many calls as there are ranks, and all are kept. A rank that falls asleep may need memory.
Outcome repeat_without_memory(tuttiComm_t comm, int rank, int ranks) {
  Elements memory(static_cast<std::size_t>(2 * (ranks + 8)));
  constexpr int kKept = 100;
  constexpr int kTimes = 200;
  constexpr int kCalls = 3;
  std::uint64_t before = 0;
  for (int time = 0; time < kKept + kTimes; ++time) {
    if (time == kKept) before = allocations;
    for (int kind = 0; kind < kCalls; ++kind) {
      const Planned p{kind, 1, kind == 0 ? 0 : time % ranks, false, false, static_cast<std::uint32_t>(time)};
      const Trial trial(p, rank, ranks, memory, 0);
      if (trial.issue(comm) != tuttiSuccess) return {tuttiGetLastError(comm)};
      if (trial.wrong() > 0) return {"kind " + std::to_string(kind)};
    }
  }
  if (allocations - before > kTimes * kCalls / 10) return {std::to_string(allocations - before) + " allocations"};
  return {};
}

// A rank calls another size after many of one: all are told, none takes what it kept for the call.
Outcome differ_in_the_end(tuttiComm_t comm, int rank, int ranks) {
  Elements memory(static_cast<std::size_t>(2 * (kMostCount * ranks + 8)));
  for (int time = 0; time < 50; ++time) {
    for (const int count : {1, 2}) {
      const Trial trial({0, count, 0, false, false, 1}, rank, ranks, memory, 0);
      if (trial.issue(comm) != tuttiSuccess || trial.wrong() > 0) return {"before"};
    }
  }
  const Trial trial({0, rank == 1 ? 2 : 1, 0, false, false, 1}, rank, ranks, memory, 0);
  const tuttiResult_t result = trial.issue(comm);
  if (result != tuttiMismatch) return {std::string("told: ") + tuttiGetErrorString(result)};
  return {};
}

void check_all(std::vector<Outcome> (*run)(int, const std::string&, const Body&)) {
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {1, 2, 3, 4}) {
      INFO(transports << ", " << ranks << " ranks");
      CHECK(wrong_of(run(ranks, transports, repeat)) == "");
      CHECK(wrong_of(run(ranks, transports, repeat_without_memory)) == "");
      if (ranks > 1) {
        CHECK(wrong_of(run(ranks, transports, differ_in_the_end)) == "");
      }
    }
  }
}

}  // namespace

TEST_CASE("repeated small calls have the results of new ones, threads", "[threads]") {
  check_all(run_threads);
}

TEST_CASE("repeated small calls have the results of new ones, processes", "[processes]") {
  check_all(run_processes);
}

}  // namespace tutti::internal::test
