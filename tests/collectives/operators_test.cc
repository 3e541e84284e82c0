// User-defined operators, compared with naive models.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "algorithms/catalog.h"
#include "suites.h"
#include "trial.h"

namespace tutti::internal::test {
namespace {

constexpr std::array kReducing = {Collective::kAllReduce,      Collective::kReduce, Collective::kReduceScatter,
                                  Collective::kReduceScatterV, Collective::kScan,   Collective::kExscan};
// One datatype for each size of an element.
constexpr std::array kTypes = {DataType::kUint8, DataType::kBfloat16, DataType::kFloat32, DataType::kComplex64,
                               DataType::kComplex128};

// An element as two numbers of half its size.
struct Halves {
  std::uint64_t upper = 0;
  std::uint64_t lower = 0;
};

Halves load(const std::byte* from, std::size_t size) {
  Halves h;
  if (size == 16) {
    std::memcpy(&h.upper, from, 8);
    std::memcpy(&h.lower, from + 8, 8);
    return h;
  }
  std::uint64_t all = 0;
  std::memcpy(&all, from, size);
  const unsigned bits = static_cast<unsigned>(size) * 4;
  return {all >> bits, all & ((std::uint64_t{1} << bits) - 1)};
}

void store(std::byte* to, std::size_t size, const Halves& h) {
  if (size == 16) {
    std::memcpy(to, &h.upper, 8);
    std::memcpy(to + 8, &h.lower, 8);
    return;
  }
  const unsigned bits = static_cast<unsigned>(size) * 4;
  const std::uint64_t all = h.upper << bits | (h.lower & ((std::uint64_t{1} << bits) - 1));
  std::memcpy(to, &all, size);
}

// x -> upper x + lower, after one another. The factors of the data are odd, so nothing gets lost.
Halves composed(const Halves& a, const Halves& b) {
  return {a.upper * b.upper, b.upper * a.lower + b.lower};
}
// Commutes: (1 + x) (1 + y) - 1, in each half.
Halves blended(const Halves& a, const Halves& b) {
  return {a.upper * b.upper + a.upper + b.upper, a.lower * b.lower + a.lower + b.lower};
}

struct Context {
  Halves (*combine)(const Halves&, const Halves&);
  tuttiDataType_t expected = tuttiUint8;
  std::atomic<bool> wrong{false};
};

extern "C" void call_context(const void* in, void* inout, size_t count, tuttiDataType_t datatype, void* context) {
  auto& c = *static_cast<Context*>(context);
  if (datatype != c.expected || in == inout || count == 0) c.wrong = true;
  std::size_t size = 0;
  for (const DataType type : kTypes) {
    if (public_value(type) == static_cast<int>(datatype)) size = size_of(type);
  }
  const auto* const a = static_cast<const std::byte*>(in);
  auto* const b = static_cast<std::byte*>(inout);
  for (std::size_t i = 0; i < count; ++i) {
    store(b + i * size, size, c.combine(load(a + i * size, size), load(b + i * size, size)));
  }
}

struct Case {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kComplex64;
  std::size_t count = 1;
  int root = 0;
  bool in_place = false;
  bool commutes = false;
  std::size_t misalign = 0;
  bool registered = false;  // memory from tuttiMemAlloc
};

std::string text_of(const Case& c) {
  return std::string(name_of(c.collective)) + " of " + std::to_string(c.count) + " " + name_of(c.type) + ", root " +
         std::to_string(c.root) + (c.in_place ? ", in place" : "") + (c.commutes ? ", commutes" : "");
}

Halves input(int rank, std::size_t i) {
  const std::uint64_t mixed =
      (i % kPeriod + 1) * 0x9e3779b97f4a7c15u ^ static_cast<std::uint64_t>(rank + 1) * 0xbf58476d1ce4e5b9u;
  return {(mixed >> 7) | 1, mixed * 0x94d049bb133111ebu >> 3};
}

// Elements of the vector in order, as they are in memory.
std::vector<std::byte> elements(std::size_t size, std::size_t first, std::size_t count,
                                const std::function<Halves(std::size_t)>& value) {
  std::vector<std::byte> pattern(kPeriod * size);
  for (std::size_t i = 0; i < kPeriod; ++i) store(pattern.data() + i * size, size, value(first + i));
  std::vector<std::byte> all(count * size);
  for (std::size_t i = 0; i < count; ++i) std::memcpy(&all[i * size], &pattern[i % kPeriod * size], size);
  return all;
}

// One call with its own buffers.
class Attempt {
 public:
  Attempt(const Case& c, int rank, int ranks) : case_(c), size_(size_of(c.type)), ranks_(ranks), rank_(rank) {
    for (std::size_t r = 0; r < blocks_of(c.collective, ranks); ++r) {
      // Some ranks get nothing if counts may differ.
      const bool varies = c.collective == Collective::kReduceScatterV;
      counts_.push_back(!varies ? c.count : r % 3 == 1 ? 0 : c.count + r);
      if (r < static_cast<std::size_t>(rank)) first_ += counts_[r];
    }
    const bool has_block = has_blocks(c.collective);
    if (!has_block) first_ = 0;
    count_ = counts_[has_block ? static_cast<std::size_t>(rank) : 0];
    std::size_t total = 0;
    for (const std::size_t count : counts_) total += count;
    sent_ = elements(size_, 0, total, [&](std::size_t i) { return input(rank, i); });
    const std::size_t received = count_ * size_;
    send_ = send_memory_.get(sent_.size() + c.misalign + 1, c.registered) + c.misalign;
    recv_ = recv_memory_.get(received + c.misalign + 1, c.registered) + c.misalign;
    if (!sent_.empty()) std::memcpy(send_, sent_.data(), sent_.size());
    std::memset(recv_, 0x5a, received);
  }
  tuttiResult_t issue(tuttiRedOp_t op, tuttiComm_t comm, void* stream) {
    const auto type = static_cast<tuttiDataType_t>(public_value(case_.type));
    std::byte* const recv = received();
    switch (case_.collective) {
      case Collective::kReduce: return tuttiReduce(send_, recv, case_.count, type, op, case_.root, comm, stream);
      case Collective::kReduceScatter: return tuttiReduceScatter(send_, recv, case_.count, type, op, comm, stream);
      case Collective::kReduceScatterV: return tuttiReduceScatterV(send_, recv, counts_.data(), type, op, comm, stream);
      case Collective::kScan: return tuttiScan(send_, recv, case_.count, type, op, comm, stream);
      case Collective::kExscan: return tuttiExscan(send_, recv, case_.count, type, op, comm, stream);
      default: return tuttiAllReduce(send_, recv, case_.count, type, op, comm, stream);
    }
  }
  // Empty, or what is wrong.
  [[nodiscard]] std::string check() {
    if (!case_.in_place && !sent_.empty() && std::memcmp(send_, sent_.data(), sent_.size()) != 0)
      return text_of(case_) + ": the input has changed";
    if (!has_any(info_of(case_.collective).output, rank_, case_.root)) return {};
    int end = ranks_;
    if (case_.collective == Collective::kScan) end = rank_ + 1;
    if (case_.collective == Collective::kExscan) end = rank_;
    const auto expected = elements(size_, first_, count_, [&](std::size_t i) {
      Halves all = through_memory(input(0, i));
      for (int r = 1; r < end; ++r) {
        const Halves next = through_memory(input(r, i));
        all = through_memory(case_.commutes ? blended(all, next) : composed(all, next));
      }
      return all;
    });
    const std::byte* const got = received();
    for (std::size_t i = 0; i < count_; ++i) {
      if (std::memcmp(got + i * size_, &expected[i * size_], size_) != 0)
        return text_of(case_) + ": wrong from element " + std::to_string(i) + " on";
    }
    return {};
  }

 private:
  std::byte* received() { return case_.in_place ? send_ + first_ * size_ : recv_; }
  [[nodiscard]] Halves through_memory(const Halves& h) const {
    std::array<std::byte, 16> memory{};
    store(memory.data(), size_, h);
    return load(memory.data(), size_);
  }
  Case case_;
  std::size_t size_;
  std::vector<std::size_t> counts_;  // of the blocks
  std::size_t first_ = 0;            // of what this rank receives, in the vector
  std::size_t count_ = 0;
  int ranks_;
  int rank_;
  std::vector<std::byte> sent_;
  Memory send_memory_;
  Memory recv_memory_;
  std::byte* send_;
  std::byte* recv_;
};

std::string failure(tuttiComm_t comm) {
  return tuttiGetLastError(comm);
}

// Makes the operator, with another handle on every rank, and runs the case; with a stream the operator is destroyed
// before the call is complete.
std::string run_case(tuttiComm_t comm, int rank, int ranks, const Case& c, tuttiStream_t stream = nullptr) {
  Context context{c.commutes ? &blended : &composed, static_cast<tuttiDataType_t>(public_value(c.type))};
  tuttiRedOp_t op = tuttiSum;
  for (int i = 0; i <= rank % 3; ++i) {
    if (i > 0 && tuttiRedOpDestroy(op, comm) != tuttiSuccess) return failure(comm);
    if (tuttiRedOpCreate(&op, call_context, &context, c.commutes ? 1 : 0, comm) != tuttiSuccess) return failure(comm);
  }
  Attempt trial(c, rank, ranks);
  if (trial.issue(op, comm, stream) != tuttiSuccess) return text_of(c) + ": " + failure(comm);
  if (tuttiRedOpDestroy(op, comm) != tuttiSuccess) return failure(comm);
  if (stream != nullptr && tuttiStreamSynchronize(stream) != tuttiSuccess) return text_of(c) + ": " + failure(comm);
  if (context.wrong) return text_of(c) + ": the function was called with what it should not be";
  return trial.check();
}

// All sizes, roots and so on; not all combinations.
std::vector<Case> cases_for(int ranks) {
  std::vector<Case> cases;
  for (const Collective collective : kReducing) {
    for (const std::size_t count : {0, 1, 17, 4097, 200'001}) {
      for (const bool commutes : {false, true}) {
        const int roots = collective == Collective::kReduce ? (count <= 17 ? ranks : std::min(ranks, 2)) : 1;
        for (int root = 0; root < roots; ++root) {
          Case c{collective, kTypes[cases.size() % kTypes.size()], count, root};
          if (count > 4097) c.count = count / blocks_of(collective, ranks);
          if (count > 17 && root > 0) c.root = ranks - 1 - ranks / 3;
          c.in_place = cases.size() % 3 == 1;
          c.commutes = commutes;
          c.registered = cases.size() % 5 == 2;
          c.misalign = std::array<std::size_t, 4>{0, 1, 0, 4}[cases.size() % 4];
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

void require_cases(RunJob run, int ranks, const std::string& transports, const std::vector<Case>& cases) {
  const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
    Outcome outcome;
    tuttiStream_t stream = nullptr;
    if (tuttiStreamCreate(&stream) != tuttiSuccess) return Outcome{"no stream"};
    for (std::size_t i = 0; i < cases.size() && outcome.wrong.empty(); ++i) {
      outcome.wrong = run_case(comm, rank, n, cases[i], i % 4 == 3 ? stream : nullptr);
    }
    if (tuttiStreamDestroy(stream) != tuttiSuccess && outcome.wrong.empty()) outcome.wrong = "the stream failed";
    return outcome;
  });
  INFO(transports << " with " << ranks << " ranks");
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace

TEST_CASE("user-defined operators between threads over shared memory", "[shm]") {
  for (int ranks = 1; ranks <= 9; ++ranks) require_cases(run_threads, ranks, "shm", cases_for(ranks));
}

// So long that kernels would write past the cache.
TEST_CASE("user-defined operators on long vectors", "[shm]") {
  const std::size_t count = 4'300'000;
  for (const int ranks : {2, 3}) {
    std::vector<Case> cases;
    for (const bool commutes : {false, true}) {
      for (const Collective c : kReducing) {
        cases.push_back({c, DataType::kFloat32, count / blocks_of(c, ranks), 0, false, commutes});
        cases.back().registered = commutes;
      }
    }
    require_cases(run_threads, ranks, "shm", cases);
  }
}

TEST_CASE("user-defined operators between processes", "[shm]") {
  for (const int ranks : {2, 3, 6}) require_cases(run_processes, ranks, "shm", cases_for(ranks));
}

TEST_CASE("user-defined operators over TCP", "[tcp]") {
  for (const int ranks : {2, 5, 8}) require_cases(run_threads, ranks, "tcp", cases_for(ranks));
  require_cases(run_processes, 3, "tcp", cases_for(3));
}

TEST_CASE("user-defined operators over the simulated network", "[sim]") {
  for (const int ranks : {2, 3, 5}) {
    std::vector<Case> cases = cases_for(ranks);
    std::erase_if(cases, [](const Case& c) { return c.count > 4097; });
    require_cases(run_threads, ranks, "sim:11", cases);
  }
}

TEST_CASE("every algorithm with user-defined operators", "[algorithms]") {
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    if (!reduces(entry.collective)) continue;
    for (const int ranks : {2, 3, 5, 6}) {
      std::vector<int> together(static_cast<std::size_t>(ranks));
      std::iota(together.begin(), together.end(), 0);
      const algorithms::World world{ranks, algorithms::Hosts::Lists{together}};
      if (!entry.supports(world)) continue;
      std::vector<Case> cases;
      // The longest is several slices for every rank of six.
      for (const std::size_t count : {5, 4097, 120'001}) {
        for (const bool in_place : {false, true}) {
          const bool ordered = algorithms::order_of(entry, world) == schedule::Order::kRanks;
          const int root = has_root(entry.collective) ? ranks / 2 : 0;
          cases.push_back({entry.collective, DataType::kFloat32, count, root, in_place, !ordered, cases.size() % 2});
          if (ordered) cases.push_back({entry.collective, DataType::kBfloat16, count, root, in_place, true});
        }
      }
      const std::string forced = std::string(name_of(entry.collective)) + ":" + entry.name;
      INFO(forced);
      ::setenv("TUTTI_ALGORITHM", forced.c_str(), 1);
      require_cases(run_threads, ranks, "shm", cases);
      ::unsetenv("TUTTI_ALGORITHM");
    }
  }
}

namespace {

void never_called(const void*, void*, size_t, tuttiDataType_t, void*) {
  std::abort();
}
void throws(const void*, void*, size_t, tuttiDataType_t, void*) {
  throw std::runtime_error("seven is not a matrix");
}

tuttiRedOp_t make(tuttiComm_t comm, bool commutes, tuttiRedOpFunction_t function = never_called) {
  tuttiRedOp_t op = tuttiSum;
  REQUIRE(tuttiRedOpCreate(&op, function, nullptr, commutes ? 1 : 0, comm) == tuttiSuccess);
  return op;
}

}  // namespace

TEST_CASE("invalid operators, or those of another communicator, are refused", "[refused]") {
  std::array<tuttiComm_t, 2> comms{};
  for (tuttiComm_t& comm : comms) REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
  tuttiComm_t const comm = comms[0];
  tuttiRedOp_t op = tuttiMax;
  float scalar = 2;
  const auto sum = [&](void* of, tuttiDataType_t type, int residence) {
    return tuttiRedOpCreatePreMulSum(&op, of, type, static_cast<tuttiScalarResidence_t>(residence), comm);
  };
  check_refused(sum(nullptr, tuttiFloat32, 0), comm, "scalar is NULL");
  check_refused(sum(&scalar, tuttiBool, 0), comm, "not defined for datatype bool");
  check_refused(sum(&scalar, tuttiNumTypes, 0), comm, "datatype is not a tuttiDataType_t");
  check_refused(sum(&scalar, tuttiFloat32, 2), comm, "residence is 2, which is not a tuttiScalarResidence_t");
  check_refused(tuttiRedOpCreatePreMulSum(nullptr, &scalar, tuttiFloat32, tuttiScalarDevice, comm), comm, "op is NULL");
  check_refused(tuttiRedOpCreate(&op, nullptr, nullptr, 1, comm), comm, "function is NULL");
  check_refused(tuttiRedOpCreate(nullptr, never_called, nullptr, 1, comm), comm, "op is NULL");
  CHECK(op == tuttiMax);
  for (const auto built_in : {tuttiSum, tuttiAvg, tuttiLxor, static_cast<tuttiRedOp_t>(999)})
    check_refused(tuttiRedOpDestroy(built_in, comm), comm, "built-in operator");

  const auto call = [&](tuttiRedOp_t with, tuttiComm_t on, tuttiDataType_t type = tuttiFloat32) {
    return tuttiAllReduce(&scalar, &scalar, 1, type, with, on, nullptr);
  };
  const tuttiRedOp_t foreign = make(comms[1], true);
  const tuttiRedOp_t destroyed = make(comm, false);
  CHECK(static_cast<int>(foreign) >= 1000);
  CHECK(foreign != destroyed);
  CHECK(call(destroyed, comm) == tuttiSuccess);  // a single rank combines nothing
  REQUIRE(tuttiRedOpDestroy(destroyed, comm) == tuttiSuccess);
  for (const tuttiRedOp_t none : {foreign, destroyed, static_cast<tuttiRedOp_t>(0x7ffffffe)}) {
    check_refused(call(none, comm), comm, "does not belong to this communicator: it was made for another one");
    check_refused(tuttiRedOpDestroy(none, comm), comm, "does not belong to this communicator");
  }
  check_refused(call(static_cast<tuttiRedOp_t>(999), comm), comm, "operator is not a tuttiRedOp_t");
  REQUIRE(sum(&scalar, tuttiFloat32, tuttiScalarHostImmediate) == tuttiSuccess);
  check_refused(call(op, comm, tuttiInt32), comm, "created for datatype float, but the call uses int32");
  CHECK(call(op, comm) == tuttiSuccess);
  CHECK(scalar == 4);
  CHECK(make(comm, true) != destroyed);

  REQUIRE(tuttiCommDestroy(comms[1]) == tuttiSuccess);
  check_refused(call(foreign, comm), comm, "does not belong to this communicator");
  CHECK(tuttiRedOpDestroy(foreign, comms[1]) == tuttiInvalidArgument);
  REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("ranks with different kinds of operators get an error", "[refused]") {
  std::array<std::string, 2> texts;
  const auto outcomes = run_threads(2, "shm", [&](tuttiComm_t comm, int rank, int) {
    std::uint64_t value = 1;
    const tuttiRedOp_t op = make(comm, rank == 0);
    const tuttiResult_t result = tuttiAllReduce(&value, &value, 1, tuttiUint64, op, comm, nullptr);
    texts[static_cast<std::size_t>(rank)] = tuttiGetLastError(comm);
    return Outcome{result == tuttiMismatch ? "" : "another result than a mismatch"};
  });
  REQUIRE(wrong_of(outcomes) == "");
  for (const std::string& text : texts) {
    INFO(text);
    CHECK(text.find("uint64, user function)") != std::string::npos);
    CHECK(text.find("uint64, non-commutative user function)") != std::string::npos);
  }
}

TEST_CASE("a function that throws fails the communicator, on all ranks", "[refused]") {
  const auto outcomes = run_threads(3, "shm", [&](tuttiComm_t comm, int, int) {
    std::vector<int> values(10'000, 1);
    const tuttiRedOp_t op = make(comm, true, throws);
    const auto call = [&] {
      return tuttiAllReduce(values.data(), values.data(), values.size(), tuttiInt32, op, comm, nullptr);
    };
    if (call() == tuttiSuccess) return Outcome{"the call has succeeded"};
    const std::string text = tuttiGetLastError(comm);
    if (text.find("seven is not a matrix") == std::string::npos) return Outcome{text};
    return Outcome{call() == tuttiSuccess ? "the communicator has not failed" : ""};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("an algorithm in another order is refused if the order of ranks matters", "[refused]") {
  ::setenv("TUTTI_ALGORITHM", "all_reduce:ring", 1);
  const auto outcomes = run_threads(3, "shm", [&](tuttiComm_t comm, int rank, int ranks) {
    std::uint64_t value = 1;
    const tuttiResult_t result = tuttiAllReduce(&value, &value, 1, tuttiUint64, make(comm, false), comm, nullptr);
    const std::string text = tuttiGetLastError(comm);
    if (result != tuttiInvalidUsage) return Outcome{"another result: " + text};
    if (text.find("does not combine in the order of ranks") == std::string::npos) return Outcome{text};
    // In a group it prevents all from being started.
    std::uint64_t other = 1;
    static_cast<void>(tuttiGroupStart());
    static_cast<void>(tuttiAllReduce(&other, &other, 1, tuttiUint64, tuttiSum, comm, nullptr));
    static_cast<void>(tuttiAllReduce(&value, &value, 1, tuttiUint64, make(comm, false), comm, nullptr));
    if (tuttiGroupEnd() != tuttiInvalidUsage) return Outcome{"the group was not refused"};
    if (other != 1) return Outcome{"a part of the group has run"};
    return Outcome{run_case(comm, rank, ranks, {.count = 1000, .commutes = true})};
  });
  ::unsetenv("TUTTI_ALGORITHM");
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace tutti::internal::test
