// Two ranks whose counts for each other differ, and one of the two is 0: no message shows the difference.
#include <array>
#include <atomic>

#include "faults.h"

namespace tutti::internal::test {
namespace {

constexpr int kRanks = 3;

// Rank 0 sends nothing to rank 2 (or the other way round), which expects 5 elements.
enum class Call { kAllToAllV, kGatherV, kScatterV };

tuttiResult_t differ(Call call, bool receiver_has_zero, tuttiComm_t comm, int rank, tuttiStream_t stream) {
  static thread_local std::array<float, 32> in{};
  static thread_local std::array<float, 32> out{};
  static thread_local std::array<std::size_t, kRanks> sends{};
  static thread_local std::array<std::size_t, kRanks> receives{};
  sends.fill(5);
  receives.fill(5);
  std::size_t own = 5;
  const bool sender_is_wrong = rank == 0 && !receiver_has_zero;
  const bool receiver_is_wrong = rank == 2 && receiver_has_zero;
  switch (call) {
    case Call::kAllToAllV:
      if (sender_is_wrong) sends[2] = 0;
      if (receiver_is_wrong) receives[0] = 0;
      return tuttiAlltoAllV(in.data(), sends.data(), nullptr, out.data(), receives.data(), nullptr, tuttiFloat32, comm,
                            stream);
    case Call::kGatherV:  // to rank 2
      if (sender_is_wrong) own = 0;
      if (receiver_is_wrong) receives[0] = 0;
      return tuttiGatherV(in.data(), own, out.data(), receives.data(), nullptr, tuttiFloat32, 2, comm, stream);
    case Call::kScatterV:  // from rank 0
      if (sender_is_wrong) sends[2] = 0;
      if (receiver_is_wrong) own = 0;
      return tuttiScatterV(in.data(), sends.data(), nullptr, out.data(), own, tuttiFloat32, 0, comm, stream);
  }
  return tuttiInternalError;
}

std::string told_at_once(Call call, bool receiver_has_zero, bool queued, tuttiComm_t comm, int rank) {
  tuttiStream_t stream = nullptr;
  if (queued && tuttiStreamCreate(&stream) != tuttiSuccess) return "no stream";
  tuttiResult_t result = differ(call, receiver_has_zero, comm, rank, stream);
  if (queued && result == tuttiSuccess) result = tuttiStreamSynchronize(stream);
  const std::string text = describe(result, comm);
  (void)tuttiStreamDestroy(stream);
  const bool named = contains(text, "rank 0 sends") && contains(text, "to rank 2, which expects");
  return result == tuttiMismatch && named ? "" : text;
}

void require_told(RunJobKind kind, const char* transports) {
  const auto run = kind == RunJobKind::kThreads ? run_threads : run_processes;
  for (const Call call : {Call::kAllToAllV, Call::kGatherV, Call::kScatterV}) {
    for (const bool receiver_has_zero : {false, true}) {
      for (const bool queued : {false, true}) {
        const auto outcomes = run(kRanks, transports, [&](tuttiComm_t comm, int rank, int) {
          return Outcome{told_at_once(call, receiver_has_zero, queued, comm, rank)};
        });
        INFO(transports << ", call " << static_cast<int>(call) << (receiver_has_zero ? ", receiver" : ", sender")
                        << (queued ? ", queued" : ""));
        CHECK(wrong_of(outcomes) == "");
      }
    }
  }
}

}  // namespace

TEST_CASE("strict: a count that is 0 on only one side is a mismatch at that call (threads)", "[threads]") {
  const Variable strict("TUTTI_CHECK", "strict");
  for (const char* transports : {"shm", "tcp"}) require_told(RunJobKind::kThreads, transports);
}

TEST_CASE("strict: a count that is 0 on only one side is a mismatch at that call (processes)", "[processes]") {
  const Variable strict("TUTTI_CHECK", "strict");
  for (const char* transports : {"shm", "tcp"}) require_told(RunJobKind::kProcesses, transports);
}

TEST_CASE("wait notice: it names the call, the rank that waits and the rank that it waits for", "[processes]") {
  const Timeout timeout(4000);
  ::setenv("TUTTI_WAIT_NOTICE_MS", "500", 1);
  StandardError captured;
  const SharedMemory<std::atomic<int>> over;
  const auto outcomes = run_processes(kRanks, "tcp", [&](tuttiComm_t comm, int rank, int) {
    const tuttiResult_t result = differ(Call::kAllToAllV, false, comm, rank, nullptr);
    // The others stay until rank 2 has given up.
    if (rank == 2) *over.get() = 1;
    await_count(*over.get(), 1);
    return Outcome{(result == tuttiTimeout) == (rank == 2) ? "" : describe(result, comm)};
  });
  const std::string collective = captured.take();
  ::unsetenv("TUTTI_WAIT_NOTICE_MS");
  INFO(collective);
  CHECK(wrong_of(outcomes) == "");
  CHECK(contains(collective, "alltoall_v"));
  CHECK(contains(collective, "rank 2 waits for rank 0"));
  CHECK(contains(collective, "TUTTI_CHECK=strict"));
  CHECK_FALSE(contains(collective, "send or receive"));
}

TEST_CASE("wait notice: for a receive it names the peer and the missing call", "[processes]") {
  const Timeout timeout(4000);
  ::setenv("TUTTI_WAIT_NOTICE_MS", "500", 1);
  StandardError captured;
  const SharedMemory<std::atomic<int>> over;
  const auto outcomes = run_processes(2, "tcp", [&](tuttiComm_t comm, int rank, int) {
    float x = 0;
    if (rank == 0) {
      await_count(*over.get(), 1);
      return Outcome{};
    }
    const tuttiResult_t result = tuttiRecv(&x, 1, tuttiFloat32, 0, comm, nullptr);
    *over.get() = 1;
    return Outcome{result == tuttiTimeout ? "" : describe(result, comm)};
  });
  const std::string text = captured.take();
  ::unsetenv("TUTTI_WAIT_NOTICE_MS");
  INFO(text);
  CHECK(wrong_of(outcomes) == "");
  CHECK(contains(text, "recv(count 1, float, from rank 0)"));
  CHECK(contains(text, "rank 1 waits for rank 0, which perhaps has not called the send that matches"));
}

namespace {

extern "C" void sum_at_once(const void* in, void* inout, size_t count, tuttiDataType_t, void* /*context*/) {
  for (size_t i = 0; i < count; ++i) static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
}
extern "C" void sum_slowly(const void* in, void* inout, size_t count, tuttiDataType_t type, void* context) {
  sleep_ms(1500);
  sum_at_once(in, inout, count, type, context);
}

}  // namespace

TEST_CASE("wait notice: for a collective with equal counts on all ranks it does not mention counts", "[processes]") {
  ::setenv("TUTTI_WAIT_NOTICE_MS", "300", 1);
  ::setenv("TUTTI_ALGORITHM", "ring", 1);
  StandardError captured;
  const auto outcomes = run_processes(2, "tcp", [&](tuttiComm_t comm, int rank, int) {
    // Only rank 1 takes long.
    const auto combine = rank == 1 ? sum_slowly : sum_at_once;
    tuttiRedOp_t op = tuttiSum;
    if (tuttiRedOpCreate(&op, combine, nullptr, 1, comm) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
    std::vector<float> x(1000, 1);
    // In a ring each rank combines a part, for which the other waits.
    const tuttiResult_t result = tuttiAllReduce(x.data(), x.data(), x.size(), tuttiFloat32, op, comm, nullptr);
    const bool right = result == tuttiSuccess && x == std::vector<float>(1000, 2);
    return Outcome{right ? "" : describe(result, comm)};
  });
  const std::string text = captured.take();
  ::unsetenv("TUTTI_WAIT_NOTICE_MS");
  ::unsetenv("TUTTI_ALGORITHM");
  INFO(text);
  CHECK(wrong_of(outcomes) == "");
  CHECK(contains(text, "has waited"));
  CHECK_FALSE(contains(text, "counts"));
}

}  // namespace tutti::internal::test
