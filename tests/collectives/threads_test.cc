// Ranks as threads, over every transport: the tag selects it.
#include "sanitizers.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

constexpr int kSeeds = kThreadSanitizer ? 1 : 4;

// `fewer` under ThreadSanitizer: threads synchronise alike for every datatype, and many waiting threads on few
// processors are slow. The release build runs `all`.
std::vector<int> rank_counts(std::vector<int> all, std::vector<int> fewer) {
  return kThreadSanitizer ? fewer : all;
}

// A sample of the types and the sizes under ThreadSanitizer.
std::vector<Spec> types(int ranks, std::size_t large) {
  return sample(every_type(ranks, large), kThreadSanitizer ? 13 : 1);
}
std::vector<Spec> sizes(int ranks, std::size_t most_bytes) {
  return sample(every_size(ranks, most_bytes), kThreadSanitizer ? 5 : 1);
}

// Algorithms fold for odd numbers of ranks, and not for powers of two.
void check_transport(const std::string& transports, std::size_t most_bytes) {
  for (const int ranks : rank_counts({1, 2, 3, 4, 5, 6, 7, 8, 9}, {2, 3, 4, 7}))
    require_all(run_threads, ranks, transports, every_root(ranks));
  for (const int ranks : rank_counts({1, 2, 3, 4, 5, 8}, {3}))
    require_all(run_threads, ranks, transports, types(ranks, 1021));
  for (const int ranks : rank_counts({1, 2, 3, 4, 7}, {3, 4})) {
    require_all(run_threads, ranks, transports, sizes(ranks, ranks <= 4 ? most_bytes : most_bytes / 4));
  }
  require_same_bits(run_threads, kThreadSanitizer ? 3 : 6, transports);
}

}  // namespace

TEST_CASE("threads over shared memory", "[shm]") {
  check_transport("shm", 4 * kMiB);
}

TEST_CASE("threads over TCP", "[tcp]") {
  check_transport("tcp", 2 * kMiB);
}

// Slow on purpose: it delays, reorders across lanes and delivers in pieces.
TEST_CASE("threads over the simulated network", "[sim]") {
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const std::string transports = "sim:" + std::to_string(seed);
    for (const int ranks : rank_counts({1, 2, 3, 5}, {2, 3})) {
      require_all(run_threads, ranks, transports, every_root(ranks));
      require_all(run_threads, ranks, transports, sizes(ranks, kMiB / 16));
    }
  }
  for (const int ranks : rank_counts({2, 4, 6}, {3})) require_all(run_threads, ranks, "sim:5", types(ranks, 257));
  require_same_bits(run_threads, 4, "sim:6");
}

TEST_CASE("many threads", "[many]") {
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : rank_counts({16, 33}, {17})) {
      std::vector<Spec> specs = sizes(ranks, 40'000);
      for (const Spec& s : sizes(ranks, kMiB / 4)) {
        if (s.count % 3 == 0) specs.push_back(s);
      }
      require_all(run_threads, ranks, transports, specs);
      require_same_bits(run_threads, ranks, transports);
    }
  }
  require_all(run_threads, 9, "sim:7", sizes(9, 5000));
}

TEST_CASE("several MiB between threads", "[shm]") {
  for (const int ranks : rank_counts({2, 3, 5}, {3})) {
    std::vector<Spec> specs;
    for (const CollectiveInfo& info : kUniformTable) {
      if (!info.has_data) continue;
      const Collective c = info.collective;
      for (const bool registered : {false, true}) {
        Spec s;
        s.collective = c;
        s.type = DataType::kFloat64;
        s.op = reduces(c) ? ReduceOp::kMax : ReduceOp::kSum;
        s.count = has_blocks(c) ? 150'001 : 800'003;
        s.registered = registered;
        specs.push_back(s);
      }
    }
    require_all(run_threads, ranks, "shm", specs);
  }
}

}  // namespace tutti::internal::test
