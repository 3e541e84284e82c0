// The registry of tuttiMemAlloc memory: look-ups, also while other threads allocate and free.
#include "memory/region.h"

#include <atomic>
#include <thread>
#include <vector>

#include "catch_compat.h"

using tutti::internal::memory::RegionRegistry;

namespace {

constexpr std::size_t kPage = 4096;
// More than the first table can hold, so that tables grow while readers use them.
constexpr int kMany = 100;

std::byte* allocate(std::size_t bytes) {
  return static_cast<std::byte*>(RegionRegistry::instance().allocate(bytes).value());
}
bool release(void* address) {
  return RegionRegistry::instance().free(address).is_ok();
}
RegionRegistry::Location find(const void* address, std::size_t bytes) {
  return RegionRegistry::instance().find(address, bytes);
}

}  // namespace

TEST_CASE("memory inside a region is found") {
  int local = 0;
  CHECK(find(&local, sizeof local).region == 0);
  std::byte* const a = allocate(2 * kPage);
  std::byte* const b = allocate(kPage);
  const std::uint64_t region = find(a, 1).region;
  CHECK(region != 0);
  CHECK(find(b, kPage).region != region);
  CHECK(find(a + 100, 2 * kPage - 100).region == region);
  CHECK(find(a + 100, 2 * kPage - 100).offset == 100);
  CHECK(find(a, 2 * kPage + 1).region == 0);
  CHECK(find(a, SIZE_MAX).region == 0);
  CHECK(find(&local, sizeof local).region == 0);
  REQUIRE(release(a));
  CHECK(find(a, 1).region == 0);
  CHECK(find(b, kPage).region != 0);
  CHECK_FALSE(release(a));
  REQUIRE(release(b));
  CHECK(find(b, 1).region == 0);
}

TEST_CASE("each of many regions is found, for any order of allocations and frees") {
  std::vector<std::byte*> regions;
  for (int i = 0; i < kMany; ++i) {
    regions.push_back(allocate(kPage));
    if (i % 3 == 2) {
      REQUIRE(release(regions[regions.size() / 2]));
      regions.erase(regions.begin() + static_cast<std::ptrdiff_t>(regions.size() / 2));
    }
    for (const std::byte* r : regions) REQUIRE(find(r, kPage).region != 0);
  }
  while (!regions.empty()) {
    REQUIRE(release(regions.back()));
    CHECK(find(regions.back(), 1).region == 0);
    regions.pop_back();
    for (const std::byte* r : regions) REQUIRE(find(r, kPage).region != 0);
  }
}

TEST_CASE("a region is found while others allocate and free") {
  std::byte* const mine = allocate(kPage);
  const std::uint64_t region = find(mine, kPage).region;
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      while (!over) {
        const RegionRegistry::Location place = find(mine + 8, 8);
        if (place.region != region || place.offset != 8) ++wrong;
      }
    });
  }
  std::vector<std::thread> writers;
  for (int i = 0; i < 2; ++i) {
    writers.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        std::vector<std::byte*> regions;
        for (int k = 0; k < kMany; ++k) regions.push_back(allocate(kPage));
        for (std::byte* r : regions) {
          if (find(r, kPage).region == 0) ++wrong;
          if (!release(r)) ++wrong;
        }
      }
    });
  }
  for (std::thread& t : writers) t.join();
  over = true;
  for (std::thread& t : readers) t.join();
  CHECK(wrong == 0);
  REQUIRE(release(mine));
}
