// User-defined element sizes, through the public interface, compared with a naive model: no element is ever cut, and
// nothing beside the elements is touched.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "base/types.h"
#include "elements.h"
#include "sanitizers.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::array<std::size_t, 11> kElementBytes = {1, 3, 12, 24, 63, 64, 65, 100, 1000, 4095, 4096};
constexpr std::byte kUntouched{0xa5};

using Combine = void (*)(const std::byte*, const std::byte*, std::byte*, std::size_t);

struct Context {
  Combine combine;
  std::size_t size;
  tuttiDataType_t datatype;
  std::atomic<bool> wrong{false};
};

extern "C" void call_combine(const void* in, void* inout, size_t count, tuttiDataType_t datatype, void* context) {
  auto& c = *static_cast<Context*>(context);
  if (datatype != c.datatype || count == 0) c.wrong = true;
  for (std::size_t i = 0; i < count; ++i) {
    auto* const later = static_cast<std::byte*>(inout) + i * c.size;
    c.combine(static_cast<const std::byte*>(in) + i * c.size, later, later, c.size);
  }
}

std::byte value(std::size_t rank, std::size_t i) {
  return low(static_cast<unsigned>((rank + 3) * 2654435761u + i * (2 * rank + 7) + (i >> 7) * 11));
}

// The data that the ranks of a job send, and the results of its combinations. All ranks and all calls share one model,
// so each byte is computed once.
class Model {
 public:
  // most_bytes: of a block, without the elements by which the blocks of one call differ.
  Model(std::size_t ranks, std::size_t most_bytes) : bytes_(ranks * (most_bytes + ranks * kElementBytes.back())) {
    for (std::size_t r = 0; r < ranks; ++r) {
      sent_.emplace_back(bytes_);
      for (std::size_t i = 0; i < bytes_; ++i) sent_[r][i] = value(r, i);
    }
  }

  // The rank's vector from byte `begin` on. REQUIRES: begin + bytes are within the vector.
  [[nodiscard]] const std::byte* sent(std::size_t rank, std::size_t begin, std::size_t bytes) const {
    if (begin + bytes > bytes_) std::abort();
    return sent_[rank].data() + begin;
  }
  // The combination of the vectors of ranks 0 to `ranks` - 1, in this order, from byte `begin` on. REQUIRES: whole
  // elements, ranks > 0.
  [[nodiscard]] const std::byte* combined(std::size_t ranks, std::size_t size, bool commutes, std::size_t begin,
                                          std::size_t bytes) {
    if (begin + bytes > bytes_) std::abort();
    const std::lock_guard lock(mutex_);
    return grow(ranks, size, commutes, begin + bytes) + begin;
  }

 private:
  struct Sum {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t length = 0;  // the bytes that have been computed; they do not change any more
  };

  // REQUIRES: mutex_ is held.
  const std::byte* grow(std::size_t ranks, std::size_t size, bool commutes, std::size_t length) {
    if (ranks == 1) return sent_[0].data();
    Sum& sum = sums_[{ranks, size, commutes}];
    if (sum.bytes == nullptr) sum.bytes.reset(new std::byte[bytes_]);
    if (length > sum.length) {
      const std::byte* const before = grow(ranks - 1, size, commutes, length);
      for (std::size_t i = sum.length; i < length; i += size)
        (commutes ? add : compose)(before + i, &sent_[ranks - 1][i], &sum.bytes[i], size);
      sum.length = length;
    }
    return sum.bytes.get();
  }

  std::size_t bytes_;
  std::vector<Bytes> sent_;
  std::mutex mutex_;
  std::map<std::tuple<std::size_t, std::size_t, bool>, Sum> sums_;
};

// One call on one rank. In collectives whose counts may differ, blocks have different counts.
class Trial {
 public:
  Trial(Model* model, Collective collective, std::size_t size, std::size_t count, bool commutes, int rank, int ranks)
      : model_(model),
        info_(info_of(collective)),
        collective_(collective),
        size_(size),
        count_(count),
        commutes_(commutes),
        rank_(static_cast<std::size_t>(rank)),
        n_(static_cast<std::size_t>(ranks)),
        root_(ranks / 2) {
    for (std::size_t r = 0; r < n_; ++r) {
      counts_.push_back(!varies(collective) ? count : r % 3 == 1 ? 0 : count + r);
      displacements_.push_back(total_);
      total_ += counts_[r];
    }
    if (blocks_of(collective, ranks) == 1) total_ = count;
  }

  std::string run(tuttiDataType_t type, tuttiComm_t comm, void* stream, bool in_place, std::size_t misalign) {
    type_ = type;
    comm_ = comm;
    stream_ = stream;
    const Extent in = extent(info_.input);
    // An all-to-all sends rank k the k-th count, from every rank.
    const Extent out = collective_ == Collective::kAllToAllV ? Extent{0, n_ * counts_[rank_]} : extent(info_.output);
    Bytes send(in.count * size_ + misalign + 1, kUntouched);
    Bytes recv(out.count * size_ + misalign + 1, kUntouched);
    fill(send.data() + misalign, rank_, in);
    std::byte* to = recv.data() + misalign;
    const std::byte* from = send.data() + misalign;
    Bytes* result = &recv;
    if (in_place && in.count != 0 && out.count != 0) {
      // In the longer of the two.
      if (in.count >= out.count) {
        to = send.data() + misalign + (out.begin - in.begin) * size_;
        result = &send;
      } else {
        fill(to + (in.begin - out.begin) * size_, rank_, in);
        from = to + (in.begin - out.begin) * size_;
      }
    }
    if (issue(from, to) != tuttiSuccess) return text() + ": " + tuttiGetLastError(comm);
    if (stream != nullptr && tuttiStreamSynchronize(static_cast<tuttiStream_t>(stream)) != tuttiSuccess)
      return text() + ": " + tuttiGetLastError(comm);
    if (context_.wrong) return text() + ": the function was called with what it should not be";
    if (number(result->back()) != number(kUntouched) || (misalign > 0 && (*result)[misalign - 1] != kUntouched))
      return text() + ": what lies beside the elements was touched";
    const Bytes expected = expected_in(out);
    if (expected.empty() || std::memcmp(to, expected.data(), expected.size()) == 0) return {};
    const auto wrong = std::mismatch(expected.begin(), expected.end(), to).first - expected.begin();
    return text() + ": byte " + std::to_string(wrong) + " is wrong";
  }

 private:
  // Elements of the vector that a buffer holds.
  struct Extent {
    std::size_t begin = 0;
    std::size_t count = 0;
  };
  [[nodiscard]] Extent extent(Holds holds) const {
    if (!has_any(holds, static_cast<int>(rank_), root_)) return {};
    if (holds == Holds::kOwnBlock) return {displacements_[rank_], counts_[rank_]};
    return {0, total_};
  }
  void fill(std::byte* buffer, std::size_t rank, const Extent& e) const {
    const std::size_t bytes = e.count * size_;
    if (bytes != 0) std::memcpy(buffer, model_->sent(rank, e.begin * size_, bytes), bytes);
  }
  [[nodiscard]] std::string text() const {
    return std::string(name_of(collective_)) + " of " + std::to_string(count_) + " elements of " +
           std::to_string(size_) + " bytes";
  }

  tuttiResult_t issue(const std::byte* from, std::byte* to) {
    const std::size_t* const counts = counts_.data();
    const std::size_t* const at = displacements_.data();
    switch (collective_) {
      case Collective::kBroadcast: return tuttiBroadcast(from, to, count_, type_, root_, comm_, stream_);
      case Collective::kAllGather: return tuttiAllGather(from, to, count_, type_, comm_, stream_);
      case Collective::kGather: return tuttiGather(from, to, count_, type_, root_, comm_, stream_);
      case Collective::kScatter: return tuttiScatter(from, to, count_, type_, root_, comm_, stream_);
      case Collective::kAllToAll: return tuttiAlltoAll(from, to, count_, type_, comm_, stream_);
      case Collective::kAllGatherV: return tuttiAllGatherV(from, counts[rank_], to, counts, at, type_, comm_, stream_);
      case Collective::kGatherV: return tuttiGatherV(from, counts[rank_], to, counts, at, type_, root_, comm_, stream_);
      case Collective::kScatterV:
        return tuttiScatterV(from, counts, at, to, counts[rank_], type_, root_, comm_, stream_);
      case Collective::kAllToAllV: {
        const std::vector<std::size_t> received(n_, counts[rank_]);
        std::vector<std::size_t> places(n_);
        for (std::size_t r = 0; r < n_; ++r) places[r] = r * counts[rank_];
        return tuttiAlltoAllV(from, counts, at, to, received.data(), places.data(), type_, comm_, stream_);
      }
      default: return issue_reduction(from, to);
    }
  }
  tuttiResult_t issue_reduction(const std::byte* from, std::byte* to) {
    context_.combine = commutes_ ? &add : &compose;
    context_.size = size_;
    context_.datatype = type_;
    tuttiRedOp_t op = tuttiSum;
    if (const auto r = tuttiRedOpCreate(&op, call_combine, &context_, commutes_ ? 1 : 0, comm_); r != tuttiSuccess)
      return r;
    const tuttiResult_t result = [&] {
      switch (collective_) {
        case Collective::kReduce: return tuttiReduce(from, to, count_, type_, op, root_, comm_, stream_);
        case Collective::kReduceScatter: return tuttiReduceScatter(from, to, count_, type_, op, comm_, stream_);
        case Collective::kReduceScatterV:
          return tuttiReduceScatterV(from, to, counts_.data(), type_, op, comm_, stream_);
        case Collective::kScan: return tuttiScan(from, to, count_, type_, op, comm_, stream_);
        case Collective::kExscan: return tuttiExscan(from, to, count_, type_, op, comm_, stream_);
        default: return tuttiAllReduce(from, to, count_, type_, op, comm_, stream_);
      }
    }();
    (void)tuttiRedOpDestroy(op, comm_);
    return result;
  }

  // The expected contents of this rank's output.
  [[nodiscard]] Bytes expected_in(const Extent& out) const {
    Bytes all(out.count * size_);
    if (out.count == 0) return all;
    if (combines(collective_)) {
      const std::size_t ranks = collective_ == Collective::kScan     ? rank_ + 1
                                : collective_ == Collective::kExscan ? rank_
                                                                     : n_;
      if (ranks == 0) return {};
      std::memcpy(all.data(), model_->combined(ranks, size_, commutes_, out.begin * size_, all.size()), all.size());
      return all;
    }
    if (collective_ == Collective::kBroadcast || collective_ == Collective::kScatter ||
        collective_ == Collective::kScatterV) {
      fill(all.data(), static_cast<std::size_t>(root_), out);
      return all;
    }
    if (collective_ == Collective::kAllToAll || collective_ == Collective::kAllToAllV) {
      const Extent own{displacements_[rank_], counts_[rank_]};
      all.resize(n_ * own.count * size_);
      for (std::size_t r = 0; r < n_; ++r) fill(&all[r * own.count * size_], r, own);
      return all;
    }
    for (std::size_t r = 0; r < n_; ++r) {
      if (counts_[r] != 0) fill(&all[displacements_[r] * size_], r, {displacements_[r], counts_[r]});
    }
    return all;
  }

  Model* model_;
  const CollectiveInfo& info_;
  Collective collective_;
  std::size_t size_;
  std::size_t count_;
  bool commutes_;
  std::size_t rank_;
  std::size_t n_;
  int root_;
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> displacements_;
  std::size_t total_ = 0;
  tuttiDataType_t type_ = tuttiUint8;
  tuttiComm_t comm_ = nullptr;
  void* stream_ = nullptr;
  Context context_{nullptr, 0, tuttiUint8};
};

// Round the ring, in a group.
std::string pass_on(const Model& model, tuttiDataType_t type, std::size_t bytes, std::size_t count, tuttiComm_t comm,
                    int rank, int ranks) {
  const int next = (rank + 1) % ranks;
  const int before = (rank + ranks - 1) % ranks;
  Bytes received(bytes + 1, kUntouched);
  (void)tuttiGroupStart();
  (void)tuttiSend(model.sent(static_cast<std::size_t>(rank), 0, bytes), count, type, next, comm, nullptr);
  (void)tuttiRecv(received.data(), count, type, before, comm, nullptr);
  if (tuttiGroupEnd() != tuttiSuccess) return tuttiGetLastError(comm);
  const std::byte* const expected = model.sent(static_cast<std::size_t>(before), 0, bytes);
  if (std::memcmp(expected, received.data(), bytes) != 0) {
    const auto wrong = std::mismatch(expected, expected + bytes, received.begin()).first - expected;
    return "byte " + std::to_string(wrong) + " was passed wrong";
  }
  return received.back() == kUntouched ? "" : "a receive wrote too much";
}

// All collectives, with element sizes and counts for blocks of up to `most_bytes`.
std::string run_all(Model* model, tuttiComm_t comm, int rank, int ranks, std::size_t most_bytes) {
  tuttiStream_t stream = nullptr;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return "no stream";
  std::string wrong;
  std::size_t drawn = 0;
  for (const std::size_t size : kElementBytes) {
    // The size changes what a rank copies, not when.
    if (kThreadSanitizer && size != 12 && size != 1000) continue;
    tuttiDataType_t type = tuttiUint8;
    // Handles with different numbers on other ranks.
    for (int i = 0; i <= rank % 2; ++i) {
      if (tuttiTypeCreate(&type, size, comm) != tuttiSuccess) return tuttiGetLastError(comm);
    }
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{17}, 40'000 / size, most_bytes / size}) {
      if (count * size > most_bytes) continue;
      for (int c = 0; c < kCollectives && wrong.empty(); ++c) {
        const auto collective = static_cast<Collective>(c);
        if (!has_data(collective)) continue;
        for (const bool commutes : {false, true}) {
          if (!wrong.empty() || (commutes && !combines(collective))) continue;
          // All-to-alls in place have one count.
          const bool in_place = ++drawn % 3 == 0 && collective != Collective::kAllToAllV;
          wrong = Trial(model, collective, size, count, commutes, rank, ranks)
                      .run(type, comm, drawn % 5 == 0 ? stream : nullptr, in_place, drawn % 4 == 1 ? 1 : 0);
        }
      }
      if (wrong.empty()) wrong = pass_on(*model, type, count * size, count, comm, rank, ranks);
    }
    if (tuttiTypeDestroy(type, comm) != tuttiSuccess && wrong.empty()) wrong = tuttiGetLastError(comm);
  }
  if (tuttiStreamDestroy(stream) != tuttiSuccess && wrong.empty()) wrong = "the stream failed";
  return wrong;
}

void require_all(RunJob run, int ranks, const std::string& transports, std::size_t most_bytes) {
  INFO(transports << " with " << ranks << " ranks");
  Model model(static_cast<std::size_t>(ranks), most_bytes);
  const auto outcomes = run(ranks, transports, [&](tuttiComm_t comm, int rank, int n) {
    return Outcome{run_all(&model, comm, rank, n, most_bytes)};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

constexpr std::size_t kLong = kThreadSanitizer ? 100'000 : kAddressSanitizer ? 700'000 : 1'400'000;

}  // namespace

TEST_CASE("elements of any size between threads", "[threads]") {
  // Three and five ranks of shared memory are processes, below.
  for (const int ranks : {1, 2, 4, 7, 9}) require_all(run_threads, ranks, "shm", kLong / static_cast<unsigned>(ranks));
  for (const int ranks : {2, 5}) require_all(run_threads, ranks, "tcp", kLong / static_cast<unsigned>(ranks));
  for (const int ranks : {2, 3}) require_all(run_threads, ranks, "sim:5", 20'000);
}

TEST_CASE("elements of any size between processes", "[processes]") {
  for (const int ranks : {2, 3, 5}) require_all(run_processes, ranks, "shm", kLong / static_cast<unsigned>(ranks));
  require_all(run_processes, 3, "tcp", kLong / 3);
}

TEST_CASE("invalid datatypes, or those of another communicator, are refused", "[threads]") {
  std::array<tuttiComm_t, 2> comms{};
  for (tuttiComm_t& comm : comms) REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
  tuttiComm_t const comm = comms[0];
  tuttiDataType_t type = tuttiUint8;
  check_refused(tuttiTypeCreate(nullptr, 12, comm), comm, "datatype is NULL");
  check_refused(tuttiTypeCreate(&type, 0, comm), comm, "from 1 to 4096, and is 0");
  check_refused(tuttiTypeCreate(&type, 4097, comm), comm, "from 1 to 4096, and is 4097");
  CHECK(type == tuttiUint8);
  check_refused(tuttiTypeDestroy(tuttiFloat32, comm), comm, "built-in datatype");

  REQUIRE(tuttiTypeCreate(&type, 12, comm) == tuttiSuccess);
  CHECK(static_cast<int>(type) >= 1000);
  tuttiDataType_t foreign = tuttiUint8;
  REQUIRE(tuttiTypeCreate(&foreign, 12, comms[1]) == tuttiSuccess);
  CHECK(foreign != type);
  std::array<char, 24> memory{};
  char* const data = memory.data();
  CHECK(tuttiBcast(data, 2, type, 0, comm, nullptr) == tuttiSuccess);
  check_refused(tuttiAllReduce(data, data, 2, type, tuttiSum, comm, nullptr), comm,
                "operator sum is not defined for datatype opaque of 12 bytes");
  check_refused(tuttiBcast(data, std::size_t{1} << 49, type, 0, comm, nullptr), comm, "overflows the address space");
  check_refused(tuttiRecv(data, std::size_t{1} << 62, type, 0, comm, nullptr), comm, "overflows the address space");
  REQUIRE(tuttiTypeDestroy(type, comm) == tuttiSuccess);
  for (const tuttiDataType_t none : {type, foreign, static_cast<tuttiDataType_t>(0x7ffffffe)}) {
    check_refused(tuttiBcast(data, 2, none, 0, comm, nullptr), comm, "does not belong to this communicator");
    check_refused(tuttiSend(data, 2, none, 0, comm, nullptr), comm, "does not belong to this communicator");
    check_refused(tuttiTypeDestroy(none, comm), comm, "does not belong to this communicator");
  }
  for (tuttiComm_t c : comms) CHECK(tuttiCommDestroy(c) == tuttiSuccess);
}

// The same total bytes, and the same count.
TEST_CASE("ranks whose elements differ get an error", "[threads]") {
  for (const bool transfer : {false, true}) {
    std::array<std::string, 2> texts;
    const auto outcomes = run_threads(2, "shm", [&](tuttiComm_t comm, int rank, int) {
      tuttiDataType_t type = tuttiUint8;
      if (tuttiTypeCreate(&type, rank == 0 ? 12 : 24, comm) != tuttiSuccess) return Outcome{"no type"};
      std::array<char, 24> data{};
      tuttiResult_t result = tuttiSuccess;
      if (!transfer) result = tuttiAllGather(data.data(), Bytes(48).data(), 1, type, comm, nullptr);
      // A message may be in flight before the receiver looks.
      if (transfer && rank == 0) result = tuttiSend(data.data(), 1, type, 1, comm, nullptr);
      if (transfer && result == tuttiSuccess) result = tuttiRecv(data.data(), 1, type, 1 - rank, comm, nullptr);
      texts[static_cast<std::size_t>(rank)] = tuttiGetLastError(comm);
      return Outcome{result == tuttiMismatch ? "" : "another result than a mismatch"};
    });
    REQUIRE(wrong_of(outcomes) == "");
    INFO(texts[1]);
    CHECK(texts[1].find("count 1, opaque of 12 bytes") != std::string::npos);
    CHECK(texts[1].find("count 1, opaque of 24 bytes") != std::string::npos);
  }
}

}  // namespace tutti::internal::test
