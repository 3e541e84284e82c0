// Ranks that have left after a call that differs from the others' call with the same number: ranks that need data from
// them get an error with both calls, in every state of the control tree.
#include <functional>
#include <numeric>
#include <set>

#include "collectives/trial.h"
#include "faults.h"

namespace tutti::internal::test {
namespace {

// A rank that finalizes waits up to a second for the others.
constexpr int kStillThereMs = 300;
constexpr int kGoneMs = 1500;

using Job = std::function<std::vector<Outcome>(int ranks, const char* transports, const Body& body)>;

// `which`: the rank that differs.
void with_each_rank(const Job& run, const std::string& what, const std::function<Body(int which)>& body) {
  const Timeout timeout(20'000);
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {2, 4}) {
      for (const int which : std::set<int>{0, ranks / 2, ranks - 1}) {
        INFO(what << ", " << transports << ", " << ranks << " ranks, rank " << which);
        CHECK(wrong_of(run(ranks, transports, body(which))) == "");
      }
    }
  }
}

// Empty, or what is wrong with an error that should name `which` with its call and one other rank with the call of all
// others.
std::string names_both(tuttiResult_t result, tuttiComm_t comm, int which, const std::string& call,
                       const std::string& others) {
  const std::string text = describe(result, comm);
  const std::string differs = "rank " + std::to_string(which) + " runs ";
  const bool right = result == tuttiMismatch && contains(text, differs + call) && !contains(text, differs + others) &&
                     occurrences(text, " runs " + call) == 1 && occurrences(text, " runs " + others) == 1;
  return right ? "" : text;
}

// `which` calls something different, which needs no other rank, and leaves. The others call `later_ms` later.
Body leaves_after_another_call(int which, bool connected, int later_ms) {
  return [=](tuttiComm_t comm, int rank, int) {
    float v = 1;
    if (connected && tuttiAllReduce(&v, &v, 1, tuttiFloat32, tuttiSum, comm, nullptr) != tuttiSuccess) {
      return Outcome{std::string("all-reduce: ") + tuttiGetLastError(comm)};
    }
    const std::string number = connected ? "operation 2, " : "operation 1, ";
    const auto judge = [&](tuttiResult_t result) {
      return Outcome{names_both(result, comm, which, number + "all_gather(count 0, int8)", number + "barrier")};
    };
    if (rank != which) {
      sleep_ms(later_ms);
      return judge(tuttiBarrier(comm, nullptr));
    }
    tuttiResult_t result = tuttiAllGather(&v, &v, 0, tuttiInt8, comm, nullptr);
    if (result == tuttiSuccess) result = tuttiCommFinalize(comm);
    // This rank gets the error, unless the others are more than a second behind.
    return result == tuttiSuccess ? Outcome{} : judge(result);
  };
}

// `which` comes when the ranks that it receives from have left, and takes their data for longer elements.
Body receives_longer_elements(int which, bool reduces) {
  return [=](tuttiComm_t comm, int rank, int ranks) {
    double v = 1;
    const auto call = [&](tuttiDataType_t type) {
      if (reduces) return tuttiReduce(&v, &v, 1, type, tuttiSum, which, comm, nullptr);
      return tuttiBroadcast(&v, &v, 1, type, (which + 1) % ranks, comm, nullptr);
    };
    if (call(tuttiFloat64) != tuttiSuccess) return Outcome{std::string("the first: ") + tuttiGetLastError(comm)};
    if (rank == which) sleep_ms(kGoneMs);
    tuttiResult_t result = call(rank == which ? tuttiFloat64 : tuttiInt8);
    if (rank != which && result == tuttiSuccess) result = tuttiCommFinalize(comm);
    if (rank != which && result == tuttiSuccess) return Outcome{};
    const std::string name = reduces ? "operation 2, reduce(count 1, " : "operation 2, broadcast(count 1, ";
    return Outcome{names_both(result, comm, which, name + "double", name + "int8")};
  };
}

// Rank 1 has sent rank 2 more than the kernel buffers before rank 2 comes, and leaves before the all-reduce.
Outcome leaves_beside_a_late_receiver(tuttiComm_t comm, int rank, int) {
  std::vector<char> data(std::size_t{16} << 20, 1);
  const auto all_reduce = [&] {
    return tuttiAllReduce(data.data(), data.data(), 3000, tuttiInt8, tuttiMax, comm, nullptr);
  };
  if (const tuttiResult_t first = all_reduce(); first != tuttiSuccess) return Outcome{describe(first, comm)};
  if (rank == 1) {
    // The rest of it is in flight when the rank leaves.
    tuttiStream_t stream = nullptr;
    tuttiResult_t result = tuttiStreamCreate(&stream);
    if (result == tuttiSuccess) result = tuttiSend(data.data(), 3'500'000, tuttiInt8, 2, comm, stream);
    if (result == tuttiSuccess) result = tuttiCommFinalize(comm);
    (void)tuttiStreamDestroy(stream);
    return Outcome{result == tuttiSuccess || result == tuttiMismatch ? "" : describe(result, comm)};
  }
  if (rank == 2) {
    sleep_ms(kGoneMs);
    const tuttiResult_t result = tuttiRecv(data.data(), 3'500'000, tuttiInt8, 1, comm, nullptr);
    if (result != tuttiSuccess) return Outcome{"the receive: " + describe(result, comm)};
  }
  const tuttiResult_t result = all_reduce();
  return Outcome{result == tuttiMismatch ? "" : "rank " + std::to_string(rank) + ": " + describe(result, comm)};
}

// The root waits for the large block of rank 1 when the others, which have no or few bytes to send, have left.
Outcome gathers_from_a_late_rank(tuttiComm_t comm, int rank, int) {
  const std::vector<std::size_t> counts{1, 4'000'000, 1000, 0};
  constexpr int kRoot = 0;
  const auto me = static_cast<std::size_t>(rank);
  std::vector<std::int32_t> own(counts[me], rank);
  std::vector<std::int32_t> all(rank == kRoot ? 4'001'001 : 0);
  tuttiResult_t result = tuttiBarrier(comm, nullptr);
  if (result == tuttiSuccess) {
    if (rank == 1) sleep_ms(2 * kGoneMs);
    result = tuttiGatherV(own.data(), own.size(), all.data(), counts.data(), nullptr, tuttiInt32, kRoot, comm, nullptr);
  }
  if (result == tuttiSuccess) result = tuttiCommFinalize(comm);
  if (result != tuttiSuccess) return Outcome{"rank " + std::to_string(rank) + ": " + describe(result, comm)};
  const bool right = rank != kRoot || std::accumulate(all.begin(), all.end(), std::int64_t{0}) == 4'002'000;
  return Outcome{right ? "" : "a wrong block"};
}

// Rank 1 is later than the limit after which a machine counts as gone; its machine is not gone.
Outcome comes_late(tuttiComm_t comm, int rank, int) {
  constexpr int kLateMs = 18'000;
  constexpr std::size_t kSent = 2'000'000;
  std::vector<std::int32_t> values(5'000'000, rank + 1);
  tuttiComm_t left = nullptr;
  tuttiResult_t result = tuttiCommSplit(comm, 0, rank, &left, nullptr);
  if (result == tuttiSuccess) result = tuttiBarrier(left, nullptr);
  if (result == tuttiSuccess) result = tuttiBarrier(comm, nullptr);
  if (result != tuttiSuccess) return Outcome{describe(result, comm)};
  if (rank == 1) sleep_ms(kLateMs);
  // Sent data arrives although its sender left that communicator long ago.
  std::vector<char> sent(kSent, rank == 0 ? 'x' : ' ');
  result = rank == 0 ? tuttiSend(sent.data(), kSent, tuttiInt8, 1, left, nullptr)
                     : tuttiRecv(sent.data(), kSent, tuttiInt8, 0, left, nullptr);
  if (result != tuttiSuccess) return Outcome{"transfer: " + describe(result, left)};
  if (occurrences(std::string(sent.begin(), sent.end()), "x") != static_cast<int>(kSent)) return Outcome{"wrong bytes"};
  if (const tuttiResult_t end = tuttiCommDestroy(left); end != tuttiSuccess) return Outcome{describe(end, nullptr)};
  result = tuttiAllReduce(values.data(), values.data(), values.size(), tuttiInt32, tuttiSum, comm, nullptr);
  if (result != tuttiSuccess) return Outcome{"all-reduce: " + describe(result, comm)};
  return Outcome{values.front() == 3 && values.back() == 3 ? "" : "a wrong sum"};
}

void find_both_calls(const Job& run) {
  for (const bool connected : {true, false}) {
    for (const int later_ms : {kStillThereMs, kGoneMs}) {
      if (!connected && later_ms == kGoneMs) continue;
      with_each_rank(run, std::string(connected ? "connected" : "unconnected") + ", later " + std::to_string(later_ms),
                     [&](int which) { return leaves_after_another_call(which, connected, later_ms); });
    }
  }
}

void find_longer_elements(const Job& run) {
  for (const bool reduces : {false, true}) {
    with_each_rank(run, reduces ? "reduce" : "broadcast",
                   [&](int which) { return receives_longer_elements(which, reduces); });
  }
}

}  // namespace

TEST_CASE("threads that need a rank that has left after another call get an error with both calls", "[threads]") {
  find_both_calls(run_threads);
}

TEST_CASE("processes that need a rank that has left after another call get an error with both calls", "[processes]") {
  find_both_calls(run_processes);
}

TEST_CASE("a rank that leaves tells all ranks, also while one of them does not read", "[processes]") {
  const Timeout timeout(20'000);
  CHECK(wrong_of(run_processes(3, "tcp", leaves_beside_a_late_receiver)) == "");
}

TEST_CASE("a living rank is waited for, and messages to it arrive", "[processes]") {
  const Timeout timeout(60'000);
  CHECK(wrong_of(run_processes(2, "tcp", comes_late)) == "");
}

TEST_CASE("a rank that owes nothing may leave while another one is late", "[processes]") {
  const Timeout timeout(60'000);
  for (const char* const transports : {"shm", "tcp"}) {
    INFO(transports);
    CHECK(wrong_of(run_processes(4, transports, gathers_from_a_late_rank)) == "");
  }
}

TEST_CASE("a thread with shorter elements from ranks that left gets an error with both calls", "[threads]") {
  find_longer_elements(run_threads);
}

TEST_CASE("a process with shorter elements from ranks that left gets an error with both calls", "[processes]") {
  find_longer_elements(run_processes);
}

}  // namespace tutti::internal::test
