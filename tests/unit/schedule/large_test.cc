// The memory and work to write one rank's schedule of a large job: counted, not timed.
#include <cstdlib>
#include <new>

#include "algorithms/catalog.h"
#include "catch_compat.h"

namespace {

// For this program's single thread.
struct Heap {
  std::size_t now = 0;
  std::size_t peak = 0;
  std::size_t allocations = 0;
};
Heap heap;

}  // namespace

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  auto* const memory = static_cast<std::size_t*>(std::malloc(bytes + 16));
  if (memory == nullptr) return nullptr;
  *memory = bytes;
  heap.now += bytes;
  heap.peak = heap.now > heap.peak ? heap.now : heap.peak;
  ++heap.allocations;
  return memory + 2;
}
void* operator new(std::size_t bytes) {
  void* const memory = operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory == nullptr) return;
  auto* const begin = static_cast<std::size_t*>(memory) - 2;
  heap.now -= *begin;
  std::free(begin);
}
void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace tutti::internal::algorithms {
namespace {

constexpr int kRanks = 10'000;
constexpr int kRanksPerHost = 8;

World divided() {
  algorithms::Hosts::Lists hosts;
  for (int r = 0; r < kRanks; ++r) {
    if (r % kRanksPerHost == 0) hosts.emplace_back();
    hosts.back().push_back(r);
  }
  return {kRanks, std::move(hosts)};
}

TEST_CASE("one rank's part of a schedule for ten thousand ranks takes little memory and work") {
  const World alone{kRanks, {}};
  const World hosts = divided();
  std::size_t written = 0;
  for (const AlgorithmEntry& entry : catalog()) {
    const World& world = entry.supports(alone) ? alone : hosts;
    if (!entry.supports(world)) continue;
    for (const int rank : {0, 1, 5000, 9999}) {
      heap.peak = heap.now;
      const Heap before = heap;
      const auto schedule = make_schedule(entry, world, rank, 3);
      REQUIRE(schedule.is_ok());
      const std::size_t steps = schedule.value().steps.size();
      INFO(name_of(entry.collective) << " " << entry.name << ", rank " << rank << ": " << steps << " steps, "
                                     << heap.peak - before.now << " bytes, " << heap.allocations - before.allocations
                                     << " allocations");
      // A job's ranks are listed once or twice, and divided into parts.
      CHECK(heap.peak - before.now <= std::size_t{8} << 20);
      CHECK(heap.allocations - before.allocations <= 20 * (steps + kRanks));
      ++written;
    }
  }
  CHECK(written >= 100);
}

}  // namespace
}  // namespace tutti::internal::algorithms
