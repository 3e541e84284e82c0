// Every algorithm of the catalog, executed on integers, against the definition of its collective.
#include "cases.h"
#include "catch_compat.h"
#include "sanitizers.h"
#include "sim/faulty.h"

namespace tutti::internal::test {
namespace {

// The second set under a sanitizer, which makes everything many times slower: every algorithm still takes every path,
// with fewer numbers of ranks and of elements, and fewer seeds. The release build runs the whole set.
std::vector<int> rank_counts(std::vector<int> all, std::vector<int> fewer) {
  return kAnySanitizer ? fewer : all;
}
std::vector<std::size_t> element_counts(std::vector<std::size_t> all, std::vector<std::size_t> fewer) {
  return kAnySanitizer ? fewer : all;
}
// 0: in one piece.
std::vector<std::size_t> slice_bytes(std::vector<std::size_t> all, std::vector<std::size_t> fewer) {
  return kThreadSanitizer ? fewer : all;
}
constexpr std::uint64_t kSeeds = kAnySanitizer ? 1 : 2;

// In place, or not, or one after the other. ThreadSanitizer only needs a call in place if there is one: a rank then
// also writes to memory that others read.
std::vector<bool> ways_to_place(Collective collective) {
  if (!input_is_output(collective)) return {false};
  if (kThreadSanitizer) return {true};
  return {false, true};
}

void check_all(int ranks, const std::vector<std::size_t>& counts, bool simulated, bool zcopy, std::uint64_t seed,
               bool own_processors = true, bool far = false, Rig::Drive drive = Rig::Drive::kThreads) {
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    if (!entry.supports({ranks, {}})) continue;
    for (const std::size_t count : counts) {
      for (const bool in_place : ways_to_place(entry.collective)) {
        Rig rig(ranks, simulated, seed + count, zcopy);
        rig.own_processors = own_processors;
        rig.far = far;
        rig.drive = drive;
        const int root = has_root(entry.collective) ? static_cast<int>(count + seed) % ranks : 0;
        check({&entry, ranks, root, count_for(entry, ranks, count), 4096, in_place}, rig);
      }
    }
  }
}

}  // namespace

TEST_CASE("every algorithm computes its collective over shared memory between threads") {
  for (const int ranks : rank_counts({1, 2, 3, 4, 5, 8}, {1, 4, 5})) {
    check_all(ranks, element_counts({1, 7, 1000, 40'000}, {7, 40'000}), false, false, 1);
  }
}

TEST_CASE("every algorithm computes its collective over shared memory to far processors") {
  for (const int ranks : rank_counts({2, 3, 5, 8}, {3}))
    check_all(ranks, element_counts({1000, 40'000}, {40'000}), false, false, 3, true, true);
}

TEST_CASE("every algorithm computes its collective over shared memory between oversubscribed ranks") {
  for (const int ranks : rank_counts({2, 3, 4, 8}, {3, 4}))
    check_all(ranks, element_counts({1, 7, 40'000}, {1, 40'000}), false, false, 1, false);
}

TEST_CASE("every algorithm computes its collective if one thread drives all ranks", "[one_thread]") {
  for (const int ranks : rank_counts({1, 2, 3, 4, 5, 8}, {1, 2, 5})) {
    for (const bool own_processors : {true, false}) {
      check_all(ranks, element_counts({1, 7, 1000, 40'000}, {7, 40'000}), false, false, 1, own_processors, false,
                Rig::Drive::kOneThread);
    }
  }
}

TEST_CASE("every algorithm computes its collective if one thread drives some ranks, and others wait") {
  for (const int ranks : rank_counts({2, 3, 4, 5}, {2, 3})) {
    check_all(ranks, element_counts({1, 7, 40'000}, {1, 40'000}), false, false, 1, true, false, Rig::Drive::kBoth);
  }
}

TEST_CASE("a long operation gives way after a bounded number of bytes to others of the same driver", "[one_thread]") {
  for (const char* algorithm : {"ring", "recursive_doubling", "halving_doubling"}) {
    const algorithms::AlgorithmEntry* const entry = algorithms::find(Collective::kAllReduce, algorithm);
    REQUIRE(entry != nullptr);
    Rig rig(4, false, 1);
    rig.drive = Rig::Drive::kOneThread;
    rig.tuning.turn_bytes = 16 * 1024;
    INFO(algorithm);
    check({entry, 4, 0, 1 << 20, 16 * 1024, false}, rig);
    // Chunks are too short for zero copy. Forwarded bytes count once, and a turn ends with the piece that fills it.
    CHECK(rig.most_sent_at_once > 0);
    CHECK(rig.most_sent_at_once <= 2 * (rig.tuning.turn_bytes + transport::shm::kSlotBytes));
  }
}

// Otherwise the thread that drives it sleeps until a peer acts, and the peer may be waiting for that very operation.
TEST_CASE("an operation that has nothing to do has done all that it can", "[one_thread]") {
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    for (const int ranks : rank_counts({2, 4, 8}, {4})) {
      if (!entry.supports({ranks, {}})) continue;
      // Shorter and longer than the zero-copy limit, in one slice and in several.
      for (const std::size_t slice_bytes : {std::size_t{16} * 1024, std::size_t{128} * 1024}) {
        Rig rig(ranks, false, 1);
        rig.drive = Rig::Drive::kOneThread;
        rig.watch_idle = true;
        const int root = has_root(entry.collective) ? 1 : 0;
        check({&entry, ranks, root, count_for(entry, ranks, 100'000), slice_bytes, false}, rig);
        INFO(entry.name << ", " << ranks << " ranks, slices of " << slice_bytes);
        CHECK(rig.idle_in_vain == 0);
      }
    }
  }
}

TEST_CASE("one thread drives all ranks over an adverse network", "[one_thread]") {
  for (const bool zcopy : {false, true}) {
    for (const int ranks : rank_counts({2, 3, 4, 7}, {3})) {
      check_all(ranks, element_counts({1, 5, 3000, 20'000}, {5, 20'000}), true, zcopy, 31, true, false,
                Rig::Drive::kOneThread);
    }
  }
}

TEST_CASE("every algorithm computes its collective over an adverse network") {
  for (std::uint64_t seed = 11; seed < 11 + kSeeds; ++seed) {
    for (const int ranks : rank_counts({2, 3, 4, 7}, {4})) {
      check_all(ranks, element_counts({1, 5, 3000, 20'000}, {5, 20'000}), true, false, seed);
    }
  }
}

TEST_CASE("every algorithm respects memory that the network still reads") {
  for (std::uint64_t seed = 21; seed < 21 + kSeeds; ++seed) {
    for (const int ranks : rank_counts({2, 3, 4, 6}, {3})) {
      check_all(ranks, element_counts({1, 5, 3000, 20'000}, {5, 20'000}), true, true, seed);
    }
  }
}

TEST_CASE("large slices and many slices give the same result") {
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    if (!entry.supports({4, {}})) continue;
    for (const std::size_t slice : slice_bytes({0, 64, 32'768, 1 << 20}, {64, 32'768})) {
      Rig rig(4, false, 1);
      const std::size_t elements = kAnySanitizer ? 30'001 : 300'001;
      check({&entry, 4, 0, count_for(entry, 4, elements), slice, false}, rig);
    }
  }
}

TEST_CASE("results are the same past the cache, with direct puts, and in small pieces") {
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    for (const int ranks : rank_counts({2, 3, 4}, {3})) {
      if (!entry.supports({ranks, {}})) continue;
      for (const std::size_t slice : slice_bytes({0, 20'000, 65'536}, {20'000})) {
        for (const bool in_place : ways_to_place(entry.collective)) {
          Rig rig(ranks, false, 1);
          rig.tuning = {12'288, 1000, 1000, 5000};
          check({&entry, ranks, 0, count_for(entry, ranks, 70'001), slice, in_place}, rig);
        }
      }
    }
  }
}

TEST_CASE("links hear of every long operation, also those from which a rank only receives") {
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    if (!entry.supports({3, {}}) || entry.collective == Collective::kBarrier) continue;
    Rig rig(3, false, 1);
    std::atomic<int> links{0};
    std::atomic<int> begun{0};
    rig.decorate = [&](std::unique_ptr<transport::Link> link, int to) {
      ++links;
      return transport::sim::make_counting(std::move(link), to, &begun);
    };
    INFO(entry.name);
    check({&entry, 3, 0, count_for(entry, 3, 100'000), 4096, false}, rig);
    CHECK(begun == links);
  }
}

// Two ranks that run one call with different plans: the first error.
Status run_differently(const Case& c, const std::function<void(Rig*)>& differ) {
  Rig rig(c.ranks, false, 1);
  differ(&rig);
  return run(c, rig);
}

TEST_CASE("ranks with different slices or algorithms get an error, not wrong data") {
  const auto contains = [](const Status& s, const char* text) { return s.message().find(text) != std::string::npos; };
  const algorithms::AlgorithmEntry* ring = algorithms::find(Collective::kAllReduce, "ring");
  const algorithms::AlgorithmEntry* doubling = algorithms::find(Collective::kAllReduce, "recursive_doubling");
  REQUIRE((ring != nullptr && doubling != nullptr));
  for (const Rig::Drive drive : {Rig::Drive::kThreads, Rig::Drive::kOneThread, Rig::Drive::kBoth}) {
    for (const std::size_t count : {std::size_t{9}, std::size_t{300'001}}) {
      const Case c{ring, 2, 0, count, 65'536, false};
      INFO("count " << count);
      const Status slices = run_differently(c, [&](Rig* rig) {
        rig->drive = drive;
        rig->other_slice_chunk_bytes[1] = 131'072;
      });
      INFO(slices.message());
      CHECK(slices.code() == Code::kMismatch);
      CHECK(contains(slices, " runs operation 2, all_reduce(count "));
      CHECK(contains(slices, ", int32, sum) by ring, 2 chunks, in slices of "));
      CHECK(contains(slices, " runs it by another algorithm or slicing"));
      const Status algorithms = run_differently(c, [&](Rig* rig) {
        rig->drive = drive;
        rig->other_algorithm[0] = doubling;
      });
      INFO(algorithms.message());
      CHECK(algorithms.code() == Code::kMismatch);
      CHECK(contains(algorithms, " in slices of 65536 bytes, rank "));
      CHECK(contains(algorithms, " runs it by another algorithm or slicing"));
    }
  }
}

}  // namespace tutti::internal::test
