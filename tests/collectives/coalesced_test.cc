// Small collectives of a group run together: the results are those of the calls one by one, to the bit, and ranks that
// group differently get an error.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/types.h"
#include "sanitizers.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte kUntouched{0xa5};

// The same on all ranks.
struct Planned {
  Collective collective = Collective::kAllReduce;
  tuttiDataType_t type = tuttiFloat32;
  std::size_t element_bytes = 4;
  tuttiRedOp_t op = tuttiSum;
  int root = 0;
  std::size_t count = 0;
  bool in_place = false;
};

// One of them on one rank, with its own memory.
class Trial {
 public:
  Trial(const Planned& planned, std::uint32_t seed, int rank, int ranks)
      : planned_(planned), info_(info_of(planned.collective)), rank_(rank), ranks_(ranks) {
    // Numbers whose sums are rounded.
    std::mt19937 random(seed * 1000 + static_cast<std::uint32_t>(rank));
    send_.resize(bytes_in(info_.input));
    for (std::size_t i = 0; i + sizeof(float) <= send_.size(); i += sizeof(float)) {
      const float value = std::ldexp(static_cast<float>(random() % 16'777'216), static_cast<int>(random() % 20) - 30);
      std::memcpy(&send_[i], &value, sizeof value);
    }
    recv_.assign(bytes_in(info_.output) + 1, kUntouched);
    if (planned.in_place && !send_.empty() && recv_.size() > 1) {
      shared_ = true;
      // Both in one memory; each may be a block of the other.
      const bool input_longer = send_.size() > recv_.size() - 1;
      const std::size_t shift = static_cast<std::size_t>(rank) * std::min(send_.size(), recv_.size() - 1);
      if (send_.size() == recv_.size() - 1) {
        std::copy(send_.begin(), send_.end(), recv_.begin());
      } else if (input_longer) {
        recv_.assign(send_.begin(), send_.end());
        recv_.push_back(kUntouched);
        to_ = shift;
      } else {
        std::copy(send_.begin(), send_.end(), recv_.begin() + static_cast<std::ptrdiff_t>(shift));
        from_ = shift;
      }
    }
  }

  tuttiResult_t issue(tuttiComm_t comm, void* stream) {
    const std::byte* const from = (shared_ ? recv_.data() : send_.data()) + from_;
    std::byte* const to = recv_.data() + to_;
    const Planned& p = planned_;
    switch (p.collective) {
      case Collective::kAllReduce: return tuttiAllReduce(from, to, p.count, p.type, p.op, comm, stream);
      case Collective::kReduceScatter: return tuttiReduceScatter(from, to, p.count, p.type, p.op, comm, stream);
      case Collective::kAllGather: return tuttiAllGather(from, to, p.count, p.type, comm, stream);
      case Collective::kBroadcast: return tuttiBroadcast(from, to, p.count, p.type, p.root, comm, stream);
      case Collective::kReduce: return tuttiReduce(from, to, p.count, p.type, p.op, p.root, comm, stream);
      case Collective::kGather: return tuttiGather(from, to, p.count, p.type, p.root, comm, stream);
      case Collective::kScatter: return tuttiScatter(from, to, p.count, p.type, p.root, comm, stream);
      case Collective::kAllToAll: return tuttiAlltoAll(from, to, p.count, p.type, comm, stream);
      case Collective::kScan: return tuttiScan(from, to, p.count, p.type, p.op, comm, stream);
      case Collective::kExscan: return tuttiExscan(from, to, p.count, p.type, p.op, comm, stream);
      default: return tuttiBarrier(comm, stream);
    }
  }
  // The call's output and the bytes beside it.
  [[nodiscard]] const Bytes& result() const { return recv_; }

 private:
  [[nodiscard]] std::size_t bytes_in(Holds holds) const {
    if (!has_data(planned_.collective) || !has_any(holds, rank_, planned_.root)) return 0;
    return blocks_in(holds, planned_.collective, ranks_) * planned_.count * planned_.element_bytes;
  }

  Planned planned_;
  const CollectiveInfo& info_;
  int rank_;
  int ranks_;
  Bytes send_;
  Bytes recv_;
  bool shared_ = false;
  std::size_t from_ = 0;
  std::size_t to_ = 0;
};

// Mostly runs of one kind; some calls are too long to run together, or empty, or of another kind.
std::vector<Planned> draw(std::mt19937& random, int ranks) {
  constexpr std::array<std::pair<tuttiDataType_t, std::size_t>, 4> kTypes = {
      {{tuttiFloat32, 4}, {tuttiFloat64, 8}, {tuttiFloat16, 2}, {tuttiUint8, 1}}};
  constexpr std::array<tuttiRedOp_t, 4> kOps = {tuttiSum, tuttiProd, tuttiMax, tuttiAvg};
  std::vector<Planned> calls;
  Planned p;
  const std::size_t n = 1 + random() % 40;
  for (std::size_t i = 0; i < n; ++i) {
    if (i == 0 || random() % 12 == 0) {
      do p.collective = static_cast<Collective>(random() % kUniformCollectives);
      while (!has_data(p.collective) && random() % 4 != 0);
      const auto& [type, bytes] = kTypes[random() % kTypes.size()];
      p.type = type;
      p.element_bytes = bytes;
      do p.op = kOps[random() % kOps.size()];
      while (p.op == tuttiAvg && combines_prefixes(p.collective));
      p.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
    }
    constexpr std::array<std::size_t, 5> kMost = {2, 9, 100, 1000, 5000};
    p.count = random() % kMost[random() % kMost.size()];
    p.in_place = random() % 4 == 0;
    calls.push_back(p);
  }
  return calls;
}

std::string run_program(tuttiComm_t comm, int rank, int ranks, std::uint32_t seed) {
  std::mt19937 random(seed);
  const std::vector<Planned> calls = draw(random, ranks);
  const bool queued = random() % 4 == 0;
  tuttiStream_t stream = nullptr;
  if (queued && tuttiStreamCreate(&stream) != tuttiSuccess) return "no stream";
  const auto make = [&] {
    std::vector<Trial> trials;
    for (std::size_t i = 0; i < calls.size(); ++i)
      trials.emplace_back(calls[i], seed * 64 + static_cast<std::uint32_t>(i), rank, ranks);
    return trials;
  };
  std::vector<Trial> alone = make();
  std::vector<Trial> together = make();
  for (Trial& trial : alone) {
    if (trial.issue(comm, nullptr) != tuttiSuccess) return tuttiGetLastError(comm);
  }
  if (tuttiGroupStart() != tuttiSuccess) return "no group";
  for (Trial& trial : together) (void)trial.issue(comm, stream);
  if (tuttiGroupEnd() != tuttiSuccess) return tuttiGetLastError(comm);
  if (queued && (tuttiStreamSynchronize(stream) != tuttiSuccess || tuttiStreamDestroy(stream) != tuttiSuccess))
    return tuttiGetLastError(comm);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (alone[i].result() == together[i].result()) continue;
    return "seed " + std::to_string(seed) + ": call " + std::to_string(i) + " of " + std::to_string(calls.size()) +
           ", " + name_of(calls[i].collective) + " of " + std::to_string(calls[i].count) +
           ", differs from what it gives alone";
  }
  return {};
}

void require_programs(RunJob run, int ranks, const std::string& transports, std::uint32_t programs) {
  INFO(transports << " with " << ranks << " ranks");
  const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
    std::string wrong;
    for (std::uint32_t seed = 0; seed < programs && wrong.empty(); ++seed) wrong = run_program(comm, rank, n, seed);
    return Outcome{wrong};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace

TEST_CASE("small collectives of a group between threads", "[threads]") {
  constexpr std::uint32_t kShare = kAnySanitizer ? 4 : 1;
  for (const int ranks : {1, 2, 3, 4, 7}) require_programs(run_threads, ranks, "shm", 60 / kShare);
  require_programs(run_threads, 3, "tcp", 40 / kShare);
  require_programs(run_threads, 3, "sim:5", 10);
}

TEST_CASE("small collectives of a group between processes", "[processes]") {
  for (const int ranks : {2, 4, 5}) require_programs(run_processes, ranks, "shm", 60);
  require_programs(run_processes, 3, "tcp", 40);
}

namespace {

// Two all-reduces in a group, or one after the other.
tuttiResult_t reduce_two(tuttiComm_t comm, float* values, bool grouped) {
  const auto one = [&](float* v) { return tuttiAllReduce(v, v, 1, tuttiFloat32, tuttiSum, comm, nullptr); };
  if (!grouped) {
    const tuttiResult_t first = one(values);
    return first != tuttiSuccess ? first : one(values + 1);
  }
  (void)tuttiGroupStart();
  (void)one(values);
  (void)one(values + 1);
  return tuttiGroupEnd();
}

}  // namespace

TEST_CASE("ranks that group their calls differently get an error", "[threads]") {
  const bool strict = GENERATE(false, true);
  if (strict) REQUIRE(::setenv("TUTTI_CHECK", "strict", 1) == 0);
  std::array<std::string, 2> texts;
  const auto outcomes = run_threads(2, "shm", [&](tuttiComm_t comm, int rank, int) {
    std::array<float, 2> values{1, 2};
    // Both ways give the same result if all ranks use the same one.
    for (const bool grouped : {false, true}) {
      values = {1, 2};
      if (reduce_two(comm, values.data(), grouped) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
      if (values[0] != 2 || values[1] != 4) return Outcome{"wrong sums"};
    }
    const tuttiResult_t result = reduce_two(comm, values.data(), rank == 0);
    texts[static_cast<std::size_t>(rank)] = tuttiGetLastError(comm);
    return Outcome{result == tuttiMismatch ? "" : "another result than a mismatch: " + texts[0] + texts[1]};
  });
  REQUIRE(::unsetenv("TUTTI_CHECK") == 0);
  INFO((strict ? "strict: " : "") << texts[0] << '\n' << texts[1]);
  REQUIRE(wrong_of(outcomes) == "");
  const bool said = std::any_of(texts.begin(), texts.end(), [](const std::string& text) {
    return text.find("group their calls differently") != std::string::npos;
  });
  CHECK(said);
}

TEST_CASE("collectives of a group that use memory that others of it write are refused", "[threads]") {
  const auto outcomes = run_threads(2, "shm", [](tuttiComm_t comm, int, int ranks) {
    std::array<float, 8> v{1, 1, 1, 1, 1, 1, 1, 1};
    const auto grouped = [&](const float* in1, float* out1, const float* in2, float* out2) {
      (void)tuttiGroupStart();
      (void)tuttiAllReduce(in1, out1, 2, tuttiFloat32, tuttiSum, comm, nullptr);
      (void)tuttiAllReduce(in2, out2, 2, tuttiFloat32, tuttiSum, comm, nullptr);
      return tuttiGroupEnd();
    };
    const auto refused = [&](tuttiResult_t result) {
      return result == tuttiInvalidArgument &&
             std::string(tuttiGetLastError(nullptr)).find("may run together") != std::string::npos;
    };
    float* const at = v.data();
    if (!refused(grouped(at, at + 2, at + 3, at + 6))) return Outcome{"reads what the one before writes"};
    if (!refused(grouped(at, at + 2, at + 5, at + 1))) return Outcome{"writes what the one before reads"};
    if (!refused(grouped(at, at + 2, at + 6, at + 3))) return Outcome{"both write the same"};
    if (!refused(grouped(at, at, at, at))) return Outcome{"the same in place twice"};
    if (std::any_of(v.begin(), v.end(), [](float x) { return x != 1; })) return Outcome{"something was started"};
    // Reading the same memory is allowed.
    if (grouped(at, at + 2, at, at + 4) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
    if (grouped(at + 6, at + 6, at, at) != tuttiSuccess) return Outcome{tuttiGetLastError(comm)};
    const auto n = static_cast<float>(ranks);
    return Outcome{v == std::array<float, 8>{n, n, n, n, n, n, n, n} ? "" : "wrong sums"};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace tutti::internal::test
