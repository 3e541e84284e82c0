// Ranks that call different operations: an error on every rank, no hang, no wrong data.
#include <sys/mman.h>

#include <array>
#include <cstdlib>

#include "collectives/trial.h"
#include "faults.h"

namespace tutti::internal::test {
namespace {

struct Difference {
  const char* what;
  Spec most;
  Spec odd;  // the call of one rank
};

Spec spec(Collective c, std::size_t count, DataType type = DataType::kFloat32, ReduceOp op = ReduceOp::kSum,
          int root = 0) {
  Spec s;
  s.collective = c;
  s.count = count;
  s.type = type;
  s.op = op;
  s.root = root;
  return s;
}

std::vector<Difference> differences() {
  constexpr auto kAllReduce = Collective::kAllReduce;
  constexpr auto kFloat = DataType::kFloat32;
  return {
      {"count, small", spec(kAllReduce, 4), spec(kAllReduce, 5)},
      {"count, one slice and many", spec(kAllReduce, 1000), spec(kAllReduce, 500'000)},
      {"count, many slices", spec(kAllReduce, 500'000), spec(kAllReduce, 500'001)},
      {"count, tiny and huge", spec(kAllReduce, 1), spec(kAllReduce, 1'000'000)},
      {"type of the same size", spec(kAllReduce, 100), spec(kAllReduce, 100, DataType::kInt32)},
      {"type of another size", spec(kAllReduce, 100), spec(kAllReduce, 100, DataType::kFloat64)},
      {"operator", spec(kAllReduce, 100), spec(kAllReduce, 100, kFloat, ReduceOp::kMax)},
      {"operator, large", spec(kAllReduce, 300'000), spec(kAllReduce, 300'000, kFloat, ReduceOp::kAvg)},
      {"collective", spec(kAllReduce, 100), spec(Collective::kAllGather, 100)},
      {"collective, with a root", spec(kAllReduce, 100), spec(Collective::kBroadcast, 100)},
      {"barrier", spec(kAllReduce, 1), spec(Collective::kBarrier, 1)},
      {"root of a broadcast", spec(Collective::kBroadcast, 100),
       spec(Collective::kBroadcast, 100, kFloat, ReduceOp::kSum, 1)},
      {"root of a reduce", spec(Collective::kReduce, 100), spec(Collective::kReduce, 100, kFloat, ReduceOp::kSum, 1)},
      {"count of a reduce-scatter", spec(Collective::kReduceScatter, 10), spec(Collective::kReduceScatter, 11)},
      {"count of an all-gather", spec(Collective::kAllGather, 70'000), spec(Collective::kAllGather, 70'001)},
      {"gather and scatter", spec(Collective::kGather, 100), spec(Collective::kScatter, 100)},
      {"root of a gather", spec(Collective::kGather, 100), spec(Collective::kGather, 100, kFloat, ReduceOp::kSum, 1)},
      {"count of a scatter", spec(Collective::kScatter, 20'000), spec(Collective::kScatter, 20'001)},
      {"all-gather and all-to-all", spec(Collective::kAllGather, 100), spec(Collective::kAllToAll, 100)},
      {"count of an all-to-all", spec(Collective::kAllToAll, 30'000), spec(Collective::kAllToAll, 30'001)},
      {"scan and exclusive scan", spec(Collective::kScan, 100), spec(Collective::kExscan, 100)},
      {"operator of a scan", spec(Collective::kScan, 100), spec(Collective::kScan, 100, kFloat, ReduceOp::kMax)},
  };
}

// The error of a rank whose call was complete before a peer noticed: its next call returns the error.
tuttiResult_t barriers(tuttiComm_t comm) {
  tuttiResult_t result = tuttiSuccess;
  for (int i = 0; i < 50 && result == tuttiSuccess; ++i) {
    result = tuttiBarrier(comm, nullptr);
    sleep_ms(10);
  }
  return result;
}

// With a root, and in scans, a rank that only sends, or receives only from ranks that agree with it, completes with
// correct data and learns of the difference in a later call. All others learn of it at once, or when nothing moves.
Outcome mismatched(tuttiComm_t comm, int rank, int ranks, const Spec& mine, int odd) {
  std::array<Memory, 2> memory;
  Trial trial(mine, rank, ranks);
  trial.prepare(&memory[0], &memory[1]);
  tuttiResult_t result = trial.issue(comm, nullptr);
  const std::string who = "rank " + std::to_string(rank);
  if (result == tuttiSuccess) {
    if (!has_root(mine.collective) && !combines_prefixes(mine.collective)) return Outcome{who + " succeeded"};
    const std::string data = trial.check();
    if (!data.empty()) return Outcome{who + " succeeded with wrong data: " + data};
    result = barriers(comm);
  }
  const std::string text = describe(result, comm);
  if (result != tuttiMismatch) return Outcome{who + ": " + text};
  const bool both = contains(text, "rank " + std::to_string(odd) + " runs operation ") && contains(text, ", rank ");
  return Outcome{both ? "" : who + " is not told of both: " + text};
}

void require_mismatch(RunJobKind kind, int ranks, const std::string& transports) {
  for (const Difference& d : differences()) {
    for (const int odd : {0, ranks - 1}) {
      const auto run = kind == RunJobKind::kThreads ? run_threads : run_processes;
      const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
        return mismatched(comm, rank, n, rank == odd ? d.odd : d.most, odd);
      });
      INFO(transports << ", " << ranks << " ranks, rank " << odd << " differs: " << d.what);
      CHECK(wrong_of(outcomes) == "");
    }
  }
}

// Address space of which only a little is touched.
class HugeMemory {
 public:
  explicit HugeMemory(std::size_t bytes)
      : bytes_(bytes),
        memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (memory_ == MAP_FAILED) std::abort();
  }
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;
  ~HugeMemory() { ::munmap(memory_, bytes_); }
  [[nodiscard]] void* get() const { return memory_; }

 private:
  std::size_t bytes_;
  void* memory_;
};

// The last rank's count is 2^32 larger than the others'.
Outcome longer_by_four_gi(tuttiComm_t comm, int rank, int ranks) {
  constexpr std::size_t kShort = 40;
  const bool odd = rank == ranks - 1;
  const std::size_t count = odd ? kShort + (std::size_t{1} << 32) : kShort;
  const HugeMemory memory(count);
  const tuttiResult_t result = tuttiAllReduce(memory.get(), memory.get(), count, tuttiInt8, tuttiSum, comm, nullptr);
  const std::string text = describe(result, comm);
  const bool both = contains(text, "all_reduce(count 40, int8") && contains(text, "all_reduce(count 4294967336, int8");
  return Outcome{result == tuttiMismatch && both ? "" : "rank " + std::to_string(rank) + ": " + text};
}

}  // namespace

TEST_CASE("counts that differ by 2^32 are a mismatch", "[threads]") {
  for (const char* transports : {"shm", "tcp", "sim:3"}) {
    for (const int ranks : {2, 3, 5}) {
      INFO(transports << ", " << ranks << " ranks");
      CHECK(wrong_of(run_threads(ranks, transports, longer_by_four_gi)) == "");
    }
  }
}

TEST_CASE("counts that differ by 2^32 are a mismatch between processes", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) {
    INFO(transports);
    CHECK(wrong_of(run_processes(3, transports, longer_by_four_gi)) == "");
  }
}

TEST_CASE("different calls are a mismatch between threads", "[threads]") {
  for (const int ranks : {2, 3, 5}) require_mismatch(RunJobKind::kThreads, ranks, "shm");
  for (const int ranks : {2, 4}) require_mismatch(RunJobKind::kThreads, ranks, "tcp");
  require_mismatch(RunJobKind::kThreads, 3, "sim:3");
}

TEST_CASE("different calls are a mismatch between processes", "[processes]") {
  for (const int ranks : {2, 3}) require_mismatch(RunJobKind::kProcesses, ranks, "shm");
  require_mismatch(RunJobKind::kProcesses, 4, "tcp");
}

}  // namespace tutti::internal::test
