// Every algorithm of the catalog, executed on integers, against the definition of its collective.
#include <algorithm>

#include "catch_compat.h"
#include "rig.h"
#include "sanitizers.h"

namespace tutti::test {
namespace {

// Rank r's element i.
std::int32_t value(int rank, std::size_t i) {
  return static_cast<std::int32_t>((static_cast<std::uint64_t>(rank + 1) * 2654435761U + i * 40503U) >> 3 & 0xffff);
}

struct Data {
  std::vector<std::int32_t> input;
  std::vector<std::int32_t> output;
  std::vector<std::int32_t> scratch;
};

constexpr std::int32_t kGuard = -12345;

// Of these, the second where ThreadSanitizer makes everything twenty times slower: every algorithm still takes
// every way, with fewer numbers of ranks and seeds.
std::vector<int> rank_counts(std::vector<int> all, std::vector<int> fewer) {
  return kThreadSanitizer ? fewer : all;
}
constexpr std::uint64_t kSeeds = kThreadSanitizer ? 1 : 2;

// What rank must find in its output.
std::vector<std::int32_t> expected(Collective c, int ranks, int rank, int root, std::size_t count) {
  std::vector<std::int32_t> out;
  out.reserve(c == Collective::kAllGather ? count * static_cast<std::size_t>(ranks) : count);
  const auto sum = [&](std::size_t i) {
    std::int32_t s = 0;
    for (int r = 0; r < ranks; ++r) s += value(r, i);
    return s;
  };
  switch (c) {
    case Collective::kAllReduce:
      for (std::size_t i = 0; i < count; ++i) out.push_back(sum(i));
      break;
    case Collective::kReduce:
      for (std::size_t i = 0; i < count && rank == root; ++i) out.push_back(sum(i));
      break;
    case Collective::kBroadcast:
      for (std::size_t i = 0; i < count; ++i) out.push_back(value(root, i));
      break;
    case Collective::kAllGather:
      for (int r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < count; ++i) out.push_back(value(r, i));
      }
      break;
    case Collective::kReduceScatter:
      for (std::size_t i = 0; i < count; ++i) out.push_back(sum(static_cast<std::size_t>(rank) * count + i));
      break;
    case Collective::kBarrier: break;
  }
  return out;
}

struct Case {
  const algorithms::AlgorithmEntry* entry;
  int ranks;
  int root;
  std::size_t count;
  std::size_t slice_chunk_bytes;
  bool in_place;
};

transport::Source source(std::vector<std::int32_t>& v, std::size_t shift) {
  transport::Source s;
  s.base = reinterpret_cast<std::byte*>(v.data()) - shift * sizeof(std::int32_t);
  s.size = (shift + v.size()) * sizeof(std::int32_t);
  return s;
}

void fill(const Case& c, int rank, Data* d) {
  const auto n = static_cast<std::size_t>(c.ranks);
  const auto me = static_cast<std::size_t>(rank);
  const std::size_t in = c.entry->collective == Collective::kReduceScatter ? c.count * n : c.count;
  const std::size_t out = c.entry->collective == Collective::kAllGather ? c.count * n : c.count;
  d->input.resize(in);
  for (std::size_t i = 0; i < in; ++i) d->input[i] = value(rank, i);
  d->output.assign(out, kGuard);
  d->scratch.assign(std::max(in, out), kGuard);
  if (!c.in_place) return;
  if (c.entry->collective == Collective::kAllGather) {
    std::copy(d->input.begin(), d->input.end(), d->output.begin() + static_cast<std::ptrdiff_t>(me * c.count));
  } else if (c.entry->collective == Collective::kReduceScatter) {
    d->output = d->input;
  } else {
    d->output = d->input;
  }
}

void bind(const Case& c, int rank, Data* d, executor::Operation* op) {
  const std::size_t own = static_cast<std::size_t>(rank) * c.count;
  const Collective k = c.entry->collective;
  op->block_elements = c.count;
  op->element_bytes = sizeof(std::int32_t);
  op->kernels = &reduction::kernels(DataType::kInt32, ReduceOp::kSum);
  op->print = executor::make_fingerprint(1, k, DataType::kInt32, ReduceOp::kSum, c.root, c.count);
  op->buffers[0] = source(c.in_place ? d->output : d->input, k == Collective::kAllGather && !c.in_place ? own : 0);
  op->buffers[1] = source(d->output, k == Collective::kReduceScatter && !c.in_place ? own : 0);
  op->buffers[2] = source(d->scratch, 0);
}

void check(const Case& c, Rig& rig) {
  std::vector<Data> data(static_cast<std::size_t>(c.ranks));
  for (int r = 0; r < c.ranks; ++r) fill(c, r, &data[static_cast<std::size_t>(r)]);
  const Status status = rig.run(*c.entry, c.root, c.slice_chunk_bytes, [&](int r, executor::Operation* op) {
    bind(c, r, &data[static_cast<std::size_t>(r)], op);
  });
  INFO(name_of(c.entry->collective) << " " << c.entry->name << " ranks " << c.ranks << " root " << c.root << " count "
                                    << c.count << " slice " << c.slice_chunk_bytes << " in place " << c.in_place
                                    << " error " << status.message());
  REQUIRE(status.is_ok());
  for (int r = 0; r < c.ranks; ++r) {
    const Data& d = data[static_cast<std::size_t>(r)];
    const auto want = expected(c.entry->collective, c.ranks, r, c.root, c.count);
    const bool scattered = c.in_place && c.entry->collective == Collective::kReduceScatter;
    const std::size_t at = scattered ? static_cast<std::size_t>(r) * c.count : 0;
    INFO("rank " << r);
    REQUIRE(std::equal(want.begin(), want.end(), d.output.begin() + static_cast<std::ptrdiff_t>(at)));
    bool untouched = true;
    for (std::size_t i = 0; i < d.input.size(); ++i) untouched &= d.input[i] == value(r, i);
    REQUIRE(untouched);
  }
}

void check_all(int ranks, const std::vector<std::size_t>& counts, bool simulated, bool lends, std::uint64_t seed) {
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    if (!entry.supports({ranks, {}})) continue;
    for (const std::size_t count : counts) {
      for (const bool in_place : {false, true}) {
        Rig rig(ranks, simulated, seed + count, lends);
        const int root = has_root(entry.collective) ? static_cast<int>(count + seed) % ranks : 0;
        check({&entry, ranks, root, count, 4096, in_place}, rig);
      }
    }
  }
}

}  // namespace

TEST_CASE("every algorithm computes its collective over shared memory between threads") {
  for (const int ranks : rank_counts({1, 2, 3, 4, 5, 8}, {1, 2, 5, 8})) {
    check_all(ranks, {1, 7, 1000, 40'000}, false, false, 1);
  }
}

TEST_CASE("every algorithm computes its collective over an unkind network") {
  for (std::uint64_t seed = 11; seed < 11 + kSeeds; ++seed) {
    for (const int ranks : rank_counts({2, 3, 4, 7}, {3, 4})) {
      check_all(ranks, {1, 5, 3000, 20'000}, true, false, seed);
    }
  }
}

TEST_CASE("every algorithm respects memory that the network still reads") {
  for (std::uint64_t seed = 21; seed < 21 + kSeeds; ++seed) {
    for (const int ranks : rank_counts({2, 3, 4, 6}, {3, 4})) {
      check_all(ranks, {1, 5, 3000, 20'000}, true, true, seed);
    }
  }
}

TEST_CASE("large slices and many slices give the same result") {
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    if (!entry.supports({4, {}})) continue;
    for (const std::size_t slice : {std::size_t{0}, std::size_t{64}, std::size_t{32768}, std::size_t{1} << 20}) {
      Rig rig(4, false, 1);
      check({&entry, 4, 0, kThreadSanitizer ? 30'001U : 300'001U, slice, false}, rig);
    }
  }
}

TEST_CASE("results are the same past the cache, placed at the peer, and in small pieces") {
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    for (const int ranks : rank_counts({2, 3, 4}, {2, 3})) {
      if (!entry.supports({ranks, {}})) continue;
      for (const std::size_t slice : {std::size_t{0}, std::size_t{20'000}, std::size_t{65'536}}) {
        for (const bool in_place : {false, true}) {
          Rig rig(ranks, false, 1);
          rig.tuning = {12'288, 1000, 1000};
          check({&entry, ranks, 0, 70'001, slice, in_place}, rig);
        }
      }
    }
  }
}

// Two ranks that run one call by different plans: the first error.
Status run_differently(const Case& c, const std::function<void(Rig*)>& differ) {
  std::vector<Data> data(static_cast<std::size_t>(c.ranks));
  for (int r = 0; r < c.ranks; ++r) fill(c, r, &data[static_cast<std::size_t>(r)]);
  Rig rig(c.ranks, false, 1);
  differ(&rig);
  return rig.run(*c.entry, c.root, c.slice_chunk_bytes, [&](int r, executor::Operation* op) {
    bind(c, r, &data[static_cast<std::size_t>(r)], op);
  });
}

TEST_CASE("ranks with different slices or algorithms get an error, not wrong data") {
  const auto contains = [](const Status& s, const char* text) { return s.message().find(text) != std::string::npos; };
  const algorithms::AlgorithmEntry* ring = algorithms::find(Collective::kAllReduce, "ring");
  const algorithms::AlgorithmEntry* doubling = algorithms::find(Collective::kAllReduce, "recursive_doubling");
  REQUIRE((ring != nullptr && doubling != nullptr));
  for (const std::size_t count : {std::size_t{9}, std::size_t{300'001}}) {
    const Case c{ring, 2, 0, count, 65'536, false};
    INFO("count " << count);
    const Status slices = run_differently(c, [](Rig* rig) { rig->other_slice_chunk_bytes[1] = 131'072; });
    INFO(slices.message());
    CHECK(slices.code() == Code::kMismatch);
    CHECK(contains(slices, " runs operation 2, all_reduce(count "));
    CHECK(contains(slices, ", int32, sum) by ring, 2 chunks, in slices of "));
    CHECK(contains(slices, " runs it by another algorithm or slicing"));
    const Status algorithms = run_differently(c, [&](Rig* rig) { rig->other_algorithm[0] = doubling; });
    INFO(algorithms.message());
    CHECK(algorithms.code() == Code::kMismatch);
    CHECK(contains(algorithms, " in slices of 65536 bytes, rank "));
    CHECK(contains(algorithms, " runs it by another algorithm or slicing"));
  }
}

}  // namespace tutti::test
