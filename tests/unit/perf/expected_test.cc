// A check that never fails proves nothing: correct results must pass, and each wrong element must be counted.
#include "perf/harness/expected.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "catch_compat.h"
#include "perf/harness/measure.h"
#include "perf/harness/options.h"
#include "perf/harness/skew.h"
#include "reference/reduction.h"

namespace tutti::internal::perf {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<Bytes> all_sends(const Problem& problem) {
  std::vector<Bytes> sends;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    sends.emplace_back(problem.send_bytes(rank));
    fill_send(problem, rank, sends.back());
  }
  return sends;
}

// The combined data of the first `ranks` ranks.
Bytes combined(const Problem& problem, const std::vector<Bytes>& sends, std::size_t ranks) {
  Bytes total = sends[0];
  const std::size_t elements = total.size() / size_of(problem.datatype);
  for (std::size_t r = 1; r < ranks; ++r) {
    reduction::combine_reference(problem.datatype, problem.op, total.data(), total.data(), sends[r].data(), elements);
  }
  if (problem.op == ReduceOp::kAvg) {
    reduction::finish_reference(problem.datatype, total.data(), elements, ranks);
  }
  return total;
}

// What `rank` receives, with the library's reference arithmetic and by the collective's definition.
Bytes receive(const Problem& problem, int rank, const std::vector<Bytes>& sends) {
  const std::size_t width = size_of(problem.datatype);
  // In the vector of `from`.
  const auto own_block = [&](const Bytes& vector, int from) {
    std::size_t begin = 0;
    for (int other = 0; other < rank; ++other) begin += problem.blocks(from)[static_cast<std::size_t>(other)] * width;
    const auto first = vector.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::size_t bytes = problem.blocks(from)[static_cast<std::size_t>(rank)] * width;
    return Bytes(first, first + static_cast<std::ptrdiff_t>(bytes));
  };
  const Bytes& of_root = sends[static_cast<std::size_t>(problem.root)];
  switch (*problem.subject.collective()) {
    case Collective::kBroadcast: return of_root;
    case Collective::kScatter:
    case Collective::kScatterV: return own_block(of_root, problem.root);
    case Collective::kScan: return combined(problem, sends, static_cast<std::size_t>(rank) + 1);
    case Collective::kExscan: return combined(problem, sends, static_cast<std::size_t>(rank));
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV: return own_block(combined(problem, sends, sends.size()), rank);
    case Collective::kAllGather:
    case Collective::kAllGatherV:
    case Collective::kGather:
    case Collective::kGatherV:
    case Collective::kAllToAll:
    case Collective::kAllToAllV: break;
    default: return combined(problem, sends, sends.size());
  }
  Bytes all;
  const bool permutes = problem.subject == Collective::kAllToAll || problem.subject == Collective::kAllToAllV;
  for (int from = 0; from < problem.ranks; ++from) {
    const Bytes& send = sends[static_cast<std::size_t>(from)];
    const Bytes part = permutes ? own_block(send, from) : send;
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

Problem problem_of(Collective collective, DataType type, ReduceOp op, int ranks, std::size_t count) {
  Problem p;
  p.subject = collective;
  p.datatype = type;
  p.op = op;
  p.ranks = ranks;
  p.root = ranks - 1;
  p.count = count;
  p.seed = 7;
  if (p.subject.varies()) p.skew = ranks == 1 ? 1 : 1.7;
  return p;
}

const std::vector<Collective> kMoving = {
    Collective::kAllReduce,     Collective::kBroadcast, Collective::kReduce,     Collective::kAllGather,
    Collective::kReduceScatter, Collective::kGather,    Collective::kScatter,    Collective::kAllToAll,
    Collective::kScan,          Collective::kExscan,    Collective::kAllGatherV, Collective::kReduceScatterV,
    Collective::kAllToAllV,     Collective::kGatherV,   Collective::kScatterV};

}  // namespace

TEST_CASE("right results of every collective, datatype and operator pass") {
  for (const Collective collective : kMoving) {
    for (int type = 0; type < kDataTypes; ++type) {
      for (int op = 0; op < (reduces(collective) ? kReduceOps : 1); ++op) {
        if (!is_defined(collective, static_cast<DataType>(type), static_cast<ReduceOp>(op))) continue;
        for (const int ranks : {1, 3, 8, 33}) {
          const Problem p = problem_of(collective, static_cast<DataType>(type), static_cast<ReduceOp>(op), ranks, 257);
          INFO(name_of(collective) << " " << name_of(p.datatype) << " " << name_of(p.op) << " ranks " << ranks);
          const std::vector<Bytes> sends = all_sends(p);
          for (int rank = 0; rank < ranks; rank += std::max(1, ranks - 1)) {
            if (!p.receives(rank)) continue;
            REQUIRE(count_wrong(p, rank, receive(p, rank, sends)) == 0);
            REQUIRE(count_changed(p, rank, 0, sends[static_cast<std::size_t>(rank)]) == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("each wrong element is counted, wherever it is") {
  // Longer than a period, so that elements beyond it are checked as well.
  for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, 2 * kPeriod + 17}) {
    for (const Collective collective : kMoving) {
      const Problem p = problem_of(collective, DataType::kInt32, ReduceOp::kSum, 3, count);
      const int rank = p.root;
      const std::vector<Bytes> sends = all_sends(p);
      Bytes recv = receive(p, rank, sends);
      INFO(name_of(collective) << " count " << count);
      REQUIRE(recv.size() == p.recv_bytes(rank));
      REQUIRE(count_wrong(p, rank, recv) == 0);
      recv.back() ^= std::byte{0x80};
      REQUIRE(count_wrong(p, rank, recv) == 1);
      recv.front() ^= std::byte{1};
      REQUIRE(count_wrong(p, rank, recv) == (recv.size() == 4 ? 1 : 2));
      Bytes changed = sends[static_cast<std::size_t>(rank)];
      changed.back() ^= std::byte{1};
      REQUIRE(count_changed(p, rank, 0, changed) == 1);
      // The same for a part that begins in the middle.
      const std::size_t first = p.send_elements(rank) / 2;
      const std::span<const std::byte> part = std::span<const std::byte>(changed).subspan(first * size_of(p.datatype));
      REQUIRE(count_changed(p, rank, first, part) == 1);
    }
  }
}

TEST_CASE("a wrong complex number is one wrong element, whichever part is wrong") {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kAvg}) {
    const Problem p = problem_of(Collective::kAllReduce, DataType::kComplex128, op, 3, 100);
    Bytes recv = receive(p, 0, all_sends(p));
    INFO(name_of(op));
    recv[7 * 16 + 7] ^= std::byte{0x40};
    CHECK(count_wrong(p, 0, recv) == 1);
    recv[7 * 16 + 15] ^= std::byte{0x40};
    CHECK(count_wrong(p, 0, recv) == 1);
    recv[8 * 16 + 15] ^= std::byte{0x40};
    CHECK(count_wrong(p, 0, recv) == 2);
  }
}

TEST_CASE("blocks at a wrong position are detected") {
  Problem p = problem_of(Collective::kAllGather, DataType::kFloat32, ReduceOp::kSum, 2, 4096);
  const std::vector<Bytes> sends = all_sends(p);
  const Bytes recv = receive(p, 0, sends);
  Bytes swapped = recv;
  std::rotate(swapped.begin(), swapped.begin() + static_cast<std::ptrdiff_t>(swapped.size() / 2), swapped.end());
  CHECK(count_wrong(p, 0, swapped) > 8000);
  Bytes shifted = recv;
  std::memmove(shifted.data(), recv.data() + 64, recv.size() - 64);
  CHECK(count_wrong(p, 0, shifted) > 8000);
  // Leaving out one rank's contribution, or taking one twice, changes most sums.
  p.subject = Collective::kAllReduce;
  CHECK(count_wrong(p, 0, sends[0]) > 3000);
  // Another seed gives other data.
  Problem other = p;
  other.seed = 8;
  CHECK(count_changed(other, 0, 0, sends[0]) > 3000);
}

TEST_CASE("another rank's data is wrong") {
  for (const Collective collective : {Collective::kReduceScatter, Collective::kScatter, Collective::kAllToAll,
                                      Collective::kScan, Collective::kExscan}) {
    const Problem p = problem_of(collective, DataType::kFloat32, ReduceOp::kSum, 4, 4096);
    const std::vector<Bytes> sends = all_sends(p);
    INFO(name_of(collective));
    for (int rank = 1; rank < p.ranks; ++rank) {
      CHECK(count_wrong(p, rank, receive(p, rank, sends)) == 0);
      CHECK(count_wrong(p, rank, receive(p, rank % 3 + 1, sends)) > 2000);
    }
  }
  // A scan that leaves out this rank is not a scan, and an exclusive scan that includes it is not one either.
  Problem p = problem_of(Collective::kScan, DataType::kInt32, ReduceOp::kSum, 4, 4096);
  const std::vector<Bytes> sends = all_sends(p);
  const Bytes scan = receive(p, 2, sends);
  p.subject = Collective::kExscan;
  CHECK(count_wrong(p, 2, scan) > 4000);
  const Bytes exscan = receive(p, 2, sends);
  p.subject = Collective::kScan;
  CHECK(count_wrong(p, 2, exscan) > 4000);
}

TEST_CASE("the received data is that of the preceding rank") {
  Problem p = problem_of(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 3, 4096);
  p.subject = Transfers::kSendRecv;
  const std::vector<Bytes> sends = all_sends(p);
  CHECK(p.send_bytes(1) == 16384);
  CHECK(p.recv_bytes(1) == 16384);
  for (int rank = 0; rank < p.ranks; ++rank) {
    CHECK(p.receives(rank));
    CHECK(count_wrong(p, rank, sends[static_cast<std::size_t>((rank + 2) % 3)]) == 0);
    CHECK(count_wrong(p, rank, sends[static_cast<std::size_t>(rank)]) > 4000);
    CHECK(count_wrong(p, rank, sends[static_cast<std::size_t>((rank + 1) % 3)]) > 4000);
  }
}

TEST_CASE("an average of floats may differ in its last place only") {
  const Problem p = problem_of(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kAvg, 3, 500);
  Bytes recv = receive(p, 0, all_sends(p));
  for (std::size_t i = 0; i < p.count; ++i) {
    float f = 0;
    std::memcpy(&f, recv.data() + 4 * i, sizeof f);
    f *= 1.001F;
    std::memcpy(recv.data() + 4 * i, &f, sizeof f);
  }
  CHECK(count_wrong(p, 0, recv) > 250);
}

TEST_CASE("a skew spreads a vector over the blocks") {
  const auto spread = [](double skew, int ranks, std::size_t elements) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(ranks));
    skewed_counts(skew, ranks, elements, counts.data());
    return counts;
  };
  using Counts = std::vector<std::size_t>;
  CHECK(spread(1, 1, 9) == Counts{9});
  CHECK(spread(1, 4, 400) == Counts{100, 100, 100, 100});
  CHECK(spread(1.5, 3, 12) == Counts{2, 4, 6});
  CHECK(spread(1.6, 4, 400) == Counts{40, 80, 120, 160});
  CHECK(spread(2, 4, 600) == Counts{0, 100, 200, 300});
  CHECK(spread(3, 4, 400) == Counts{0, 0, 100, 300});
  CHECK(spread(4, 4, 400) == Counts{0, 0, 0, 400});
  CHECK(spread(2, 4, 0) == Counts{0, 0, 0, 0});
  for (const int ranks : {2, 3, 8, 33, 256}) {
    for (const double part : {0.0, 0.1, 0.5, 0.9, 1.0}) {
      for (const std::size_t elements : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 31}) {
        const double skew = 1 + part * (ranks - 1);
        const Counts counts = spread(skew, ranks, elements);
        INFO("skew " << skew << " of " << ranks << " ranks, " << elements << " elements");
        std::size_t sum = 0;
        for (const std::size_t count : counts) sum += count;
        CHECK(sum == elements);
        for (std::size_t i = 1; i < counts.size(); ++i) CHECK(counts[i] + 1 >= counts[i - 1]);
        const double mean = static_cast<double>(elements) / ranks;
        CHECK(std::abs(static_cast<double>(counts.back()) - skew * mean) <= 1);
        if (part == 0.9 && ranks > 2) CHECK(counts.front() == 0);
      }
    }
  }
}

TEST_CASE("exchanges with different counts match") {
  const Problem p = problem_of(Collective::kAllToAllV, DataType::kFloat32, ReduceOp::kSum, 5, 100);
  for (int rank = 0; rank < p.ranks; ++rank) {
    std::size_t begin = 0;
    for (int peer = 0; peer < p.ranks; ++peer) {
      const std::size_t sent = p.blocks(rank)[static_cast<std::size_t>(peer)];
      CHECK(sent == p.blocks(peer)[static_cast<std::size_t>(rank)]);
      CHECK(p.elements_before(rank, peer) == begin);
      begin += sent;
    }
    CHECK(begin == 500);
  }
}

TEST_CASE("bus bandwidth counts what the busiest rank must move") {
  const auto factor = [](Collective collective, double skew, int root) {
    Problem p = problem_of(collective, DataType::kFloat32, ReduceOp::kSum, 4, 100);
    p.skew = skew;
    p.root = root;
    return bus_factor(p);
  };
  for (const Collective collective : {Collective::kAllGatherV, Collective::kReduceScatterV, Collective::kAllToAllV,
                                      Collective::kGatherV, Collective::kScatterV}) {
    INFO(name_of(collective));
    CHECK(factor(collective, 1, 0) == 0.75);
    CHECK(factor(collective, 1.6, 0) == 0.9);
    CHECK(factor(collective, 4, 0) == 1.0);
    if (has_root(collective)) CHECK(factor(collective, 1.6, 3) == 0.6);
    if (has_root(collective)) CHECK(factor(collective, 4, 3) == 0.0);
  }
  CHECK(factor(Collective::kAllReduce, 0, 0) == 1.5);
  CHECK(factor(Collective::kAllGather, 0, 0) == 0.75);
}

TEST_CASE("numbers of elements follow from the collective") {
  Problem p = problem_of(Collective::kReduceScatter, DataType::kFloat16, ReduceOp::kSum, 5, 7);
  CHECK(p.send_elements(1) == 35);
  CHECK(p.recv_bytes(1) == 14);
  p.subject = Collective::kAllGather;
  CHECK(p.send_bytes(1) == 14);
  CHECK(p.recv_elements(1) == 35);
  p.subject = Collective::kReduce;
  CHECK(p.receives(4));
  CHECK_FALSE(p.receives(0));
  p.subject = Collective::kGather;
  CHECK(p.send_elements(1) == 7);
  CHECK(p.recv_elements(1) == 35);
  CHECK(p.receives(4));
  CHECK_FALSE(p.receives(0));
  p.subject = Collective::kScatter;
  CHECK(p.send_elements(1) == 35);
  CHECK(p.recv_elements(1) == 7);
  CHECK(p.receives(0));
  p.subject = Collective::kAllToAll;
  CHECK(p.send_elements(1) == 35);
  CHECK(p.recv_elements(1) == 35);
  p.subject = Collective::kExscan;
  CHECK(p.recv_elements(1) == 7);
  CHECK(p.receives(1));
  CHECK_FALSE(p.receives(0));
}

}  // namespace tutti::internal::perf
