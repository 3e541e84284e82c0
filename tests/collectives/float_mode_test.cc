// Ranks whose threads are in different floating-point modes: all get the bits of the default mode, blocking and queued,
// and user-defined functions run in the mode of the calls.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "float_modes.h"
#include "reduction/element.h"
#include "sanitizers.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

constexpr std::size_t kManyElements = kAnySanitizer ? 2'000 : 50'000;

// Denormal numbers, and numbers whose sums and products have to be rounded.
std::vector<std::byte> operand(DataType type, std::size_t count, int rank) {
  const std::size_t size = size_of(type);
  std::vector<std::byte> data(count * size + 8);
  std::uint64_t state = static_cast<std::uint64_t>(rank) + 11;
  for (std::size_t at = 0; at < count * size; at += 8) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    std::uint64_t bits = state ^ state >> 31;
    // Without the exponent's upper bit: sums stay finite. Every third without an exponent: denormal.
    const bool small = at / 8 % 3 == 0;
    switch (type) {
      case DataType::kFloat32:
      case DataType::kComplex64: bits &= small ? 0x807fffff'807fffffU : 0xbfffffff'bfffffffU; break;
      case DataType::kFloat64:
      case DataType::kComplex128: bits &= small ? 0x800fffff'ffffffffU : 0xbfffffff'ffffffffU; break;
      case DataType::kFloat16: bits &= small ? 0x83ff'83ff'83ff'83ffU : 0xbfff'bfff'bfff'bfffU; break;
      case DataType::kBfloat16: bits &= small ? 0x807f'807f'807f'807fU : 0xbfff'bfff'bfff'bfffU; break;
      default: break;
    }
    std::memcpy(&data[at], &bits, std::min<std::size_t>(8, count * size - at));
  }
  data.resize(count * size);
  return data;
}

class Digest {
 public:
  // In words, the last one padded with zeros: byte by byte it takes longer than the code under test. Vectors that
  // differ in one word always have different digests.
  void add(const std::vector<std::byte>& bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, &bytes[at], std::min<std::size_t>(8, bytes.size() - at));
      value_ = std::rotl((value_ ^ word) * 0x100000001b3ULL, 29);
    }
  }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 1469598103934665603ULL;
};

struct Called {
  tuttiComm_t comm;
  DataType type;
  tuttiRedOp_t op;
};

std::string all_reduce(const Called& call, std::size_t count, int rank, tuttiStream_t stream, Digest* digest) {
  const auto send = operand(call.type, count, rank);
  std::vector<std::byte> recv(send.size());
  const tuttiResult_t result =
      tuttiAllReduce(send.data(), recv.data(), count, static_cast<tuttiDataType_t>(public_value(call.type)), call.op,
                     call.comm, stream);
  if (result != tuttiSuccess || (stream != nullptr && tuttiStreamSynchronize(stream) != tuttiSuccess)) {
    return tuttiGetLastError(call.comm);
  }
  digest->add(recv);
  return {};
}

// Blocking: the general path, then twice the fast path if there is one; then queued.
std::string all_ways(const Called& call, std::size_t count, int rank, tuttiStream_t stream, Digest* digest) {
  std::string wrong;
  for (int i = 0; i < 3 && wrong.empty(); ++i) wrong = all_reduce(call, count, rank, nullptr, digest);
  if (wrong.empty()) wrong = all_reduce(call, count, rank, stream, digest);
  return wrong;
}

std::string all_operators(tuttiComm_t comm, DataType type, int rank, tuttiStream_t stream, Digest* digest) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{4}, std::size_t{1000}, kManyElements}) {
    for (int o = 0; o <= static_cast<int>(ReduceOp::kAvg); ++o) {
      if (!supports(type, static_cast<ReduceOp>(o))) continue;
      const Called call{comm, type, static_cast<tuttiRedOp_t>(o)};
      if (std::string wrong = all_ways(call, count, rank, stream, digest); !wrong.empty()) return wrong;
    }
    const auto factor = operand(type, 2, 7);
    tuttiRedOp_t scaled = tuttiSum;
    if (tuttiRedOpCreatePreMulSum(&scaled, const_cast<std::byte*>(factor.data() + size_of(type)),
                                  static_cast<tuttiDataType_t>(public_value(type)), tuttiScalarHostImmediate,
                                  comm) != tuttiSuccess) {
      return tuttiGetLastError(comm);
    }
    if (std::string wrong = all_ways({comm, type, scaled}, count, rank, stream, digest); !wrong.empty()) return wrong;
    if (tuttiRedOpDestroy(scaled, comm) != tuttiSuccess) return "an operator cannot be destroyed";
  }
  return {};
}

// All floats, on the communicator and on one that is created in the mode. `mode` is rank 1's; null: the default one.
Outcome all_types(tuttiComm_t comm, int rank, const NamedMode* mode) {
  Outcome outcome;
  Digest digest;
  if (mode != nullptr && rank == 1) set_mode(*mode);
  const FloatMode before = FloatMode::current();
  tuttiComm_t child = nullptr;
  tuttiStream_t stream = nullptr;
  if (tuttiCommSplit(comm, 0, rank, &child, nullptr) != tuttiSuccess || tuttiStreamCreate(&stream) != tuttiSuccess) {
    outcome.wrong = tuttiGetLastError(comm);
  }
  for (tuttiComm_t one : {comm, child}) {
    for (int t = 0; t < kDataTypes && outcome.wrong.empty(); ++t) {
      const auto type = static_cast<DataType>(t);
      // Threads hand over the mode alike for every type.
      if (kThreadSanitizer && type != DataType::kFloat32) continue;
      if (is_float(type) || is_complex(type)) outcome.wrong = all_operators(one, type, rank, stream, &digest);
    }
  }
  (void)tuttiStreamDestroy(stream);
  (void)tuttiCommDestroy(child);
  if (!(FloatMode::current() == before) && outcome.wrong.empty()) outcome.wrong = "the thread's mode has changed";
  set_default_mode();
  outcome.digest = digest.value();
  return outcome;
}

void require_bits_of_default_mode(RunJob run, const std::string& transports, std::span<const NamedMode> modes) {
  const auto job = [&](const NamedMode* mode) {
    const auto outcomes =
        run(3, transports, [&](tuttiComm_t comm, int rank, int) { return all_types(comm, rank, mode); });
    INFO(transports << ", rank 1 " << (mode == nullptr ? "is in the default mode" : mode->name));
    REQUIRE(wrong_of(outcomes) == "");
    REQUIRE(same_digests(outcomes));
    return outcomes.front().digest;
  };
  const std::uint64_t expected = job(nullptr);
  for (const NamedMode& mode : modes) {
    INFO(transports << ", " << mode.name);
    CHECK(job(&mode) == expected);
  }
}

// The modes that user-defined functions have found.
struct Seen {
  FloatMode expected;
  std::atomic<int> calls{0};
  std::atomic<bool> wrong{false};
  void look() {
    ++calls;
    if (!(FloatMode::current() == expected)) wrong = true;
  }
};

extern "C" void sum_and_look(const void* in, void* inout, size_t count, tuttiDataType_t, void* context) {
  static_cast<Seen*>(context)->look();
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<std::int32_t*>(inout)[i] += static_cast<const std::int32_t*>(in)[i];
  }
}
extern "C" void look_alone(void* context) {
  static_cast<Seen*>(context)->look();
}

// The functions of every rank find the mode of the thread that has made the call.
Outcome functions_in(tuttiComm_t comm, int rank, const NamedMode& mode) {
  if (rank == 1) set_mode(mode);
  Seen seen;
  seen.expected = FloatMode::current();
  Outcome outcome;
  tuttiRedOp_t op = tuttiSum;
  tuttiStream_t stream = nullptr;
  std::vector<std::int32_t> values(1000, 1);
  const auto all_reduce = [&](tuttiStream_t on) {
    return tuttiAllReduce(values.data(), values.data(), values.size(), tuttiInt32, op, comm, on);
  };
  const bool done = tuttiRedOpCreate(&op, sum_and_look, &seen, 1, comm) == tuttiSuccess &&
                    tuttiStreamCreate(&stream) == tuttiSuccess && all_reduce(nullptr) == tuttiSuccess &&
                    all_reduce(stream) == tuttiSuccess && tuttiStreamSynchronize(stream) == tuttiSuccess &&
                    tuttiGroupStart() == tuttiSuccess && all_reduce(stream) == tuttiSuccess &&
                    tuttiGroupEnd() == tuttiSuccess && tuttiLaunchHostFunc(stream, look_alone, &seen) == tuttiSuccess &&
                    tuttiStreamSynchronize(stream) == tuttiSuccess;
  if (!done) outcome.wrong = tuttiGetLastError(comm);
  if (seen.wrong) outcome.wrong = "a function has run in another mode";
  if (seen.calls < 2) outcome.wrong = "functions have not run";
  (void)tuttiStreamDestroy(stream);
  set_default_mode();
  return outcome;
}

void require_mode_of_caller(RunJob run, const std::string& transports) {
  for (const NamedMode& mode : kModes) {
    INFO(transports << ", " << mode.name);
    const auto outcomes =
        run(2, transports, [&](tuttiComm_t comm, int rank, int) { return functions_in(comm, rank, mode); });
    REQUIRE(wrong_of(outcomes) == "");
  }
}

// All calls of a program, while its threads trap every exception: none may occur.
std::string all_calls(tuttiComm_t comm, int rank, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  for (const std::size_t count : {std::size_t{1}, std::size_t{777}, 2 * kManyElements + 3}) {
    std::vector<std::int32_t> one(count * n, rank);
    std::vector<std::int32_t> two(count * n);
    const std::vector<std::size_t> counts(n, count);
    std::vector<std::size_t> at(n);
    for (std::size_t r = 1; r < n; ++r) at[r] = at[r - 1] + count;
    tuttiStream_t queue = nullptr;
    if (tuttiStreamCreate(&queue) != tuttiSuccess) return tuttiGetLastError(nullptr);
    for (tuttiStream_t stream : {tuttiStream_t{nullptr}, queue}) {
      const tuttiResult_t results[] = {
          tuttiAllReduce(one.data(), two.data(), count, tuttiInt32, tuttiAvg, comm, stream),
          tuttiBroadcast(one.data(), two.data(), count, tuttiInt32, 0, comm, stream),
          tuttiReduce(one.data(), two.data(), count, tuttiInt32, tuttiSum, 1, comm, stream),
          tuttiAllGather(one.data(), two.data(), count, tuttiInt32, comm, stream),
          tuttiReduceScatter(one.data(), two.data(), count, tuttiInt32, tuttiSum, comm, stream),
          tuttiGather(one.data(), two.data(), count, tuttiInt32, 0, comm, stream),
          tuttiScatter(one.data(), two.data(), count, tuttiInt32, 0, comm, stream),
          tuttiAlltoAll(one.data(), two.data(), count, tuttiInt32, comm, stream),
          tuttiScan(one.data(), two.data(), count, tuttiInt32, tuttiSum, comm, stream),
          tuttiExscan(one.data(), two.data(), count, tuttiInt32, tuttiSum, comm, stream),
          tuttiAllGatherV(one.data(), count, two.data(), counts.data(), at.data(), tuttiInt32, comm, stream),
          tuttiReduceScatterV(one.data(), two.data(), counts.data(), tuttiInt32, tuttiSum, comm, stream),
          tuttiAlltoAllV(one.data(), counts.data(), at.data(), two.data(), counts.data(), at.data(), tuttiInt32, comm,
                         stream),
          tuttiBarrier(comm, stream),
          tuttiGroupStart(),
          tuttiSend(one.data(), count, tuttiInt32, (rank + 1) % ranks, comm, stream),
          tuttiRecv(two.data(), count, tuttiInt32, (rank + ranks - 1) % ranks, comm, stream),
          tuttiAllReduce(one.data(), one.data(), count / 2, tuttiInt32, tuttiSum, comm, stream),
          tuttiAllReduce(&one[count], &one[count], count / 3, tuttiInt32, tuttiSum, comm, stream),
          tuttiGroupEnd(),
          tuttiStreamSynchronize(queue)};
      for (const tuttiResult_t result : results) {
        if (result != tuttiSuccess) return tuttiGetLastError(comm);
      }
    }
    if (tuttiStreamDestroy(queue) != tuttiSuccess) return tuttiGetLastError(comm);
  }
  std::array<char, 4096> text{};
  for (int c = 0; c < kCollectives; ++c) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{12'345}, std::size_t{99'999'999}}) {
      if (tuttiCommExplain(comm, static_cast<tuttiCollective_t>(c), bytes, text.data(), text.size()) != tuttiSuccess) {
        return tuttiGetLastError(comm);
      }
    }
  }
  return {};
}

std::string whole_life(const tuttiUniqueId& id, int rank, int ranks) {
  tuttiComm_t comm = nullptr;
  tuttiComm_t child = nullptr;
  if (tuttiCommInitRank(&comm, ranks, id, rank) != tuttiSuccess) return tuttiGetLastError(nullptr);
  std::string wrong = all_calls(comm, rank, ranks);
  if (tuttiCommSplit(comm, 0, rank, &child, nullptr) != tuttiSuccess) return tuttiGetLastError(comm);
  if (wrong.empty()) wrong = all_calls(child, rank, ranks);
  for (tuttiComm_t one : {child, comm}) {
    if (tuttiCommFinalize(one) != tuttiSuccess || tuttiCommDestroy(one) != tuttiSuccess) wrong += "destroy failed";
  }
  return wrong;
}

TEST_CASE("the library raises no floating-point exception in threads that trap them", "[threads]") {
  const NamedMode& traps = mode_named("traps exceptions");
  // Not every processor supports traps.
  if (::feenableexcept(FE_ALL_EXCEPT) == -1) {
    WARN("skipped: this processor cannot trap floating-point exceptions");
    return;
  }
  set_default_mode();
  const auto require_quiet = [&](const char* transports) {
    ::setenv("TUTTI_TRANSPORTS", transports, 1);
    constexpr int kRanks = 3;
    std::array<std::string, kRanks> wrong;
    std::vector<std::thread> threads;
    tuttiUniqueId id;
    set_mode(traps);
    const tuttiResult_t got = tuttiGetUniqueId(&id);
    set_default_mode();
    REQUIRE(got == tuttiSuccess);
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        set_mode(traps);
        wrong[static_cast<std::size_t>(rank)] = whole_life(id, rank, kRanks);
        set_default_mode();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::string& each : wrong) CHECK(each == "");
  };
  for (const char* transports : {"shm", "tcp"}) require_quiet(transports);
  // Ranks that compare each call beforehand.
  ::setenv("TUTTI_CHECK", "strict", 1);
  require_quiet("shm,tcp");
  ::unsetenv("TUTTI_CHECK");
  ::unsetenv("TUTTI_TRANSPORTS");
  // All ranks made by one thread.
  std::array<tuttiComm_t, 2> comms{};
  set_mode(traps);
  const tuttiResult_t made = tuttiCommInitAll(comms.data(), 2, nullptr);
  bool destroyed = true;
  for (tuttiComm_t comm : comms) destroyed = destroyed && made == tuttiSuccess && tuttiCommAbort(comm) == tuttiSuccess;
  set_default_mode();
  CHECK(destroyed);
}

TEST_CASE("all_reduce: ranks in different floating-point modes get the bits of the default mode (threads)",
          "[threads]") {
  for (const char* transports : {"shm", "tcp"}) require_bits_of_default_mode(run_threads, transports, kModes);
  // The network determines which thread runs a kernel, not the effect of a mode on it.
  require_bits_of_default_mode(run_threads, "sim", {&mode_named("rounds to zero and flushes"), 1});
}

TEST_CASE("all_reduce: ranks in different floating-point modes get the bits of the default mode (processes)",
          "[processes]") {
  for (const char* transports : {"shm", "tcp"}) require_bits_of_default_mode(run_processes, transports, kModes);
}

TEST_CASE("operators: functions run in the floating-point mode of the caller (threads)", "[threads]") {
  for (const char* transports : {"shm", "tcp"}) require_mode_of_caller(run_threads, transports);
}

TEST_CASE("operators: functions run in the floating-point mode of the caller (processes)", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) require_mode_of_caller(run_processes, transports);
}

}  // namespace
}  // namespace tutti::internal::test
