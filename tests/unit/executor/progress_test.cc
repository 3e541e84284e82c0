// No transport promises buffer space: operations end even if lanes take few bytes at a time.
#include <algorithm>
#include <array>
#include <mutex>

#include "../transport/socket_pairs.h"
#include "cases.h"
#include "catch_compat.h"
#include "sanitizers.h"
#include "transport/tcp/link.h"

namespace tutti::internal::test {
namespace {

using transport::conformance::Family;

// This long without any progress is a deadlock.
constexpr std::int64_t kStuckMs = 20'000;

// Three ranks are the fewest that algorithms for powers of two must fold. All algorithms serve four, in pairs on two
// hosts.
std::vector<int> rank_counts() {
  if (kThreadSanitizer) return {3};
  if (kAddressSanitizer) return {3, 4};
  return {2, 3, 4, 5};
}

// `fewer` under a sanitizer: whether an operation ends, with any of these numbers, the release build finds out.
template <class T>
std::vector<T> numbers(std::vector<T> all, std::vector<T> fewer) {
  return kAnySanitizer ? fewer : all;
}

// The divisions into hosts that an algorithm needs: none, or pairs of ranks.
std::vector<algorithms::World> worlds_of(int ranks) {
  algorithms::Hosts::Lists pairs;
  for (int r = 0; r < ranks; ++r) {
    if (r % 2 == 0) pairs.emplace_back();
    pairs.back().push_back(r);
  }
  return {{ranks, {}}, {ranks, pairs}};
}

// Calls run(entry, world, in place) for every algorithm of the catalog that supports this number of ranks.
template <class F>
void for_all_algorithms(int ranks, F&& run) {
  for (const algorithms::World& world : worlds_of(ranks)) {
    for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
      const bool plain = entry.supports({ranks, {}});
      if (!entry.supports(world) || (plain && !world.hosts.empty())) continue;
      run(entry, world);
    }
  }
}

// Sockets between all pairs of ranks, with the smallest buffers of the kernel, or with its defaults.
class Sockets {
 public:
  Sockets(int ranks, Family family, int streams, int buffer_bytes = 1) : buffer_bytes_(buffer_bytes) {
    for (int high = 1; high < ranks; ++high) {
      for (int low = 0; low < high; ++low) {
        auto [a, b] = transport::conformance::connected(family, streams);
        ends_[{high, low}] = std::move(a);
        ends_[{low, high}] = std::move(b);
      }
    }
  }
  std::unique_ptr<transport::Link> link(int from, int to) {
    const std::lock_guard lock(mutex_);
    transport::tcp::Options options;
    options.peer = to;
    options.socket_buffer_bytes = buffer_bytes_;
    return std::move(transport::tcp::make_link(std::move(ends_.at({from, to})), options)).value();
  }

 private:
  const int buffer_bytes_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::vector<net::ByteStream>> ends_;
};

void check_sockets(Family family, int ranks, int streams, std::size_t bytes) {
  for_all_algorithms(ranks, [&](const algorithms::AlgorithmEntry& entry, const algorithms::World& world) {
    Sockets sockets(ranks, family, streams);
    Rig rig(ranks, [&](int from, int to) { return sockets.link(from, to); });
    rig.timeout_ms = kStuckMs;
    rig.world = world;
    const int root = has_root(entry.collective) ? ranks - 1 : 0;
    INFO(streams << " streams");
    check({&entry, ranks, root, count_for(entry, ranks, bytes / sizeof(std::int32_t)), 128 * 1024, false}, rig);
  });
}

// Rank 0 sends chunks 0 and 1 in one step, and has chunk 1 only when rank 1, which also sends both in one step, has
// received chunk 0. Byte by byte that ends; a rank that waits for more than chunk 0 before it sends would wait without
// end.
std::vector<Rig::Part> crossing_schedules() {
  using schedule::Buffer;
  using schedule::StepKind;
  const auto step = [](StepKind kind, Buffer buffer, std::uint32_t chunk, std::uint16_t chunks) {
    schedule::Step s;
    s.kind = kind;
    (kind == StepKind::kSend ? s.source : s.target) = buffer;
    s.source_chunk = s.target_chunk = chunk;
    s.chunks = chunks;
    return s;
  };
  std::vector<Rig::Part> parts(2);
  for (int r = 0; r < 2; ++r) {
    // Rank 0 owns chunk 0, rank 1 chunk 1; each receives the other's, and its own back into scratch.
    parts[static_cast<std::size_t>(r)].slice_chunk_bytes = SIZE_MAX;
    schedule::Schedule& s = parts[static_cast<std::size_t>(r)].schedule;
    s.shape = {Collective::kAllReduce, 2, 0, 2, 1};
    s.rank = r;
    s.scratch_chunks = 2;
    s.steps = {step(StepKind::kRecv, r == 0 ? Buffer::kScratch : Buffer::kOutput, 0, 1),
               step(StepKind::kRecv, r == 0 ? Buffer::kOutput : Buffer::kScratch, 1, 1),
               step(StepKind::kSend, Buffer::kOutput, 0, 2)};
    for (schedule::Step& each : s.steps) each.peer = 1 - r;
    s.steps[2].dependencies = 1;
    s.dependencies = {r == 0 ? 1U : 0U};
  }
  return parts;
}

}  // namespace

TEST_CASE("a send does not wait for a longer zero-copy message while nothing moves") {
  constexpr std::size_t kChunk = 10'240;
  transport::sim::Options options;
  options.benign = true;
  options.maps_source = true;
  options.zcopy_bytes = 16'384;
  Rig rig(2, 1, options);
  rig.timeout_ms = kStuckMs;
  std::array<std::vector<std::byte>, 2> output;
  std::array<std::vector<std::byte>, 2> scratch;
  for (std::size_t r = 0; r < 2; ++r) {
    output[r].assign(2 * kChunk, std::byte{0});
    scratch[r].assign(2 * kChunk, std::byte{0});
    std::fill_n(output[r].begin() + static_cast<std::ptrdiff_t>(r * kChunk), kChunk, static_cast<std::byte>(r + 1));
  }
  const Status status = rig.run_parts(crossing_schedules(), [&](int rank, executor::Operation* op) {
    const auto r = static_cast<std::size_t>(rank);
    op->block_elements = op->bytes = 2 * kChunk;
    op->buffers[0] = op->buffers[1] = {output[r].data(), output[r].size(), 0, 0, 0};
    op->buffers[2] = {scratch[r].data(), scratch[r].size(), 0, 0, 0};
  });
  INFO(status.message());
  REQUIRE(status.is_ok());
  CHECK(output[0] == output[1]);
  CHECK(output[0].front() == std::byte{1});
  CHECK(output[0].back() == std::byte{2});
}

TEST_CASE("every algorithm ends if only large pieces use zero copy") {
  for (const int ranks : rank_counts()) {
    for_all_algorithms(ranks, [&](const algorithms::AlgorithmEntry& entry, const algorithms::World& world) {
      // Thresholds around the sizes of chunks and of steps of several chunks.
      for (const std::size_t zcopy_bytes :
           numbers<std::size_t>({1'000, 4'096, 6'000, 12'000, 19'000}, {1'000, 6'000})) {
        transport::sim::Options options;
        options.maps_source = true;
        options.zcopy_bytes = zcopy_bytes;
        Rig rig(ranks, zcopy_bytes, options);
        rig.timeout_ms = kStuckMs;
        rig.world = world;
        INFO("zero copy from " << zcopy_bytes);
        check({&entry, ranks, has_root(entry.collective) ? 1 : 0, 5'000, SIZE_MAX, false}, rig);
      }
    });
  }
}

TEST_CASE("operations end over lanes that hold 64 bytes") {
  for (const int ranks : rank_counts()) {
    for (const std::uint64_t seed : numbers<std::uint64_t>({1, 2}, {2})) {
      for_all_algorithms(ranks, [&](const algorithms::AlgorithmEntry& entry, const algorithms::World& world) {
        transport::sim::Options options;
        options.piece_bytes = 1 << 20;
        options.capacity_bytes = transport::kLeastRoomBytes;
        options.benign = seed == 1;
        Rig rig(ranks, seed, options);
        rig.timeout_ms = kStuckMs;
        rig.world = world;
        INFO("seed " << seed);
        check({&entry, ranks, has_root(entry.collective) ? 1 : 0, 5000, SIZE_MAX, false}, rig);
      });
    }
  }
}

// The number of streams decides how a message is cut; the number of ranks decides which rank waits for which. So only
// three ranks run with several streams.
TEST_CASE("operations end over sockets of the smallest buffers") {
  for (const int ranks : rank_counts()) {
    for (const std::size_t bytes :
         numbers<std::size_t>({1 << 10, 16 << 10, 100 << 10, 1 << 20}, {1 << 10, 100 << 10})) {
      for (const int streams : numbers<int>({1, 2, 16}, {1, 16})) {
        if (streams == 1 || ranks == 3) check_sockets(Family::kUnix, ranks, streams, bytes);
      }
    }
  }
}

// Rank 0 receives the odd rank's data only combined by rank 2, which must not forward it. The odd rank is late, so that
// rank 2 has continued by lanes.
TEST_CASE("data of another call is not forwarded") {
  constexpr int kRanks = 4;
  Sockets sockets(kRanks, Family::kIpv4, 1, 0);
  Rig rig(kRanks, [&](int from, int to) { return sockets.link(from, to); });
  rig.timeout_ms = 1000;
  rig.odd_rank = rig.late_rank = 3;
  const Case c{algorithms::find(Collective::kAllReduce, "recursive_doubling"), kRanks, 0, 100, SIZE_MAX, false};
  (void)run(c, rig);
  for (int rank = 0; rank < kRanks; ++rank) {
    INFO("rank " << rank);
    CHECK_FALSE(rig.results[static_cast<std::size_t>(rank)].is_ok());
  }
}

}  // namespace tutti::internal::test
