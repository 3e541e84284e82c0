// The cache of registered memory, with a watch that reports what the test requests.
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "memory/region.h"
#include "registration_fakes.h"

using namespace tutti::internal;
using namespace tutti::internal::memory;
using namespace tutti::internal::memory::test;

namespace {

class FakeWatch final : public MemoryMonitor {
 public:
  bool watch(Range range) override {
    watched.push_back(range);
    return watched.size() % 2 == 1 ? allows : stays_allowed;
  }
  [[nodiscard]] std::uint64_t count() const override { return log_.size(); }
  bool changes(std::uint64_t* seen, std::vector<Range>* changed) override {
    changed->insert(changed->end(), log_.begin() + static_cast<std::ptrdiff_t>(*seen), log_.end());
    *seen = log_.size();
    return !std::exchange(forgets, false);
  }
  bool drain() override { return drained; }
  void report(const std::byte* begin, std::size_t bytes) { log_.push_back({begin, begin + bytes}); }

  std::vector<Range> watched;
  bool allows = true;
  bool stays_allowed = true;  // after registering
  bool drained = true;
  bool forgets = false;

 private:
  std::vector<Range> log_;
};

// Addresses only: no code touches them.
const std::byte* page(std::size_t index) {
  return reinterpret_cast<const std::byte*>(std::uintptr_t{1} << 40) + index * kPage;
}

Source source_of(const std::byte* begin, std::size_t bytes) {
  Source source;
  source.base = begin;
  source.size = bytes;
  return source;
}

struct Rig {
  explicit Rig(std::size_t most_bytes = SIZE_MAX) : cache(&watch, most_bytes) { cache.registrar.touches_pages = false; }
  FakeWatch watch;
  Cache cache;
};

}  // namespace

TEST_CASE("memory stays registered, and parts of it are found") {
  Rig rig;
  const RdmaKeys* keys = rig.cache.next(page(0) + 100, 3 * kPage);
  REQUIRE(rig.cache.registrar.is_live(keys));
  CHECK(rig.cache.registered_bytes() == 4 * kPage);
  CHECK(rig.cache.next(page(0), 4 * kPage) == keys);
  CHECK(rig.cache.find(page(3) + 1, 1) == keys);
  CHECK(rig.cache.registrar.registered == 1);
  // Watched before and after registering.
  REQUIRE(rig.watch.watched.size() == 2);
  CHECK(rig.watch.watched[0].begin == page(0));
  CHECK(rig.watch.watched[1].end == page(4));
}

TEST_CASE("only the part of a source that is memory is registered") {
  Rig rig;
  Source source;
  source.base = page(0);
  source.begin = 10 * kPage + 1;
  source.size = 12 * kPage - 1;
  CHECK(rig.cache->find(source) != nullptr);
  CHECK(rig.cache.registered_bytes() == 2 * kPage);
  source.begin = source.size;
  CHECK(rig.cache->find(source) == nullptr);
}

TEST_CASE("changed memory is registered again, its neighbours are kept") {
  Rig rig;
  const RdmaKeys* left = rig.cache.next(page(0), kPage);
  const RdmaKeys* middle = rig.cache.next(page(1), 3 * kPage);
  const RdmaKeys* right = rig.cache.next(page(4), kPage);
  REQUIRE(rig.cache.registrar.registered == 3);
  const std::uint32_t old = middle->lkeys[0];
  SECTION("whole") {
    rig.watch.report(page(1), 3 * kPage);
  }
  SECTION("inside") {
    rig.watch.report(page(2), kPage);
  }
  SECTION("its first page") {
    rig.watch.report(page(1), kPage);
  }
  SECTION("its last page") {
    rig.watch.report(page(3), kPage);
  }
  CHECK(rig.cache.next(page(0), kPage) == left);
  CHECK(rig.cache.registrar.live() == 2);
  CHECK(rig.cache.find(page(4), kPage) == right);
  const RdmaKeys* again = rig.cache.find(page(1), 3 * kPage);
  REQUIRE(rig.cache.registrar.is_live(again));
  CHECK(again->lkeys[0] != old);
}

TEST_CASE("a change reported in an operation shows in the next, and keys live until then") {
  Rig rig;
  const RdmaKeys* keys = rig.cache.next(page(0), kPage);
  rig.watch.report(page(0), kPage);
  // A miss processes changes.
  (void)rig.cache.find(page(9), kPage);
  CHECK(rig.cache.registrar.is_live(keys));
  rig.cache->begin_operation();
  CHECK(rig.cache.registrar.live() == 1);
  CHECK(rig.cache.registered_bytes() == kPage);
}

TEST_CASE("a change that is reported between watching and registering is not missed") {
  Rig rig;
  int changes = 0;
  int wanted = 0;
  rig.cache.registrar.on_register = [&] {
    if (changes++ < wanted) rig.watch.report(page(0), kPage);
  };
  SECTION("once") {
    wanted = 1;
    CHECK(rig.cache.registrar.is_live(rig.cache.next(page(0), kPage)));
    CHECK(rig.cache.registrar.registered == 2);
    CHECK(rig.cache.registrar.live() == 1);
  }
  SECTION("always") {
    wanted = 1000;
    CHECK(rig.cache.next(page(0), kPage) == nullptr);
    CHECK(rig.cache->trouble().find("changes") != std::string::npos);
    CHECK(rig.cache.registrar.live() == 0);
    CHECK(rig.cache.registrar.registered < 10);
  }
}

TEST_CASE("after more changes than the log holds, no registration is trusted") {
  Rig rig;
  const std::uint32_t old = rig.cache.next(page(0), kPage)->lkeys[0];
  rig.watch.report(page(50), kPage);
  rig.watch.forgets = true;
  CHECK(rig.cache.next(page(0), kPage)->lkeys[0] != old);
}

TEST_CASE("during changes no registration is used") {
  Rig rig;
  const RdmaKeys* keys = rig.cache.next(page(0), kPage);
  rig.watch.drained = false;
  CHECK(rig.cache.next(page(0), kPage) == nullptr);
  CHECK(rig.cache.find(page(1), kPage) == nullptr);
  rig.watch.drained = true;
  CHECK(rig.cache.next(page(0), kPage) == keys);
  CHECK(rig.cache.registrar.registered == 1);
}

TEST_CASE("everything is registered again after it has been forgotten") {
  Rig rig;
  (void)rig.cache.next(page(0), kPage);
  rig.watch.report(page(0), kPage);
  const RdmaKeys* keys = rig.cache.find(page(4), kPage);
  const std::uint32_t old = keys->lkeys[0];
  rig.cache.shared().forget_all();
  // The operation that uses it continues.
  CHECK(rig.cache.registrar.is_live(keys));
  CHECK(rig.cache.find(page(4), kPage) == keys);
  rig.cache->begin_operation();
  CHECK(rig.cache.registrar.live() == 0);
  CHECK(rig.cache.registered_bytes() == 0);
  keys = rig.cache.find(page(4), kPage);
  REQUIRE(rig.cache.registrar.is_live(keys));
  CHECK(keys->lkeys[0] != old);
}

TEST_CASE("a communicator finds another one's registrations") {
  Rig rig;
  RegistrationUser other(rig.cache.shared());
  const RdmaKeys* keys = rig.cache.next(page(0), 4 * kPage);
  CHECK(other.find(source_of(page(1), kPage)) == keys);
  CHECK(rig.cache.registrar.registered == 1);
}

TEST_CASE("an operation's memory stays registered, whatever another communicator does") {
  Rig rig(4 * kPage);
  RegistrationUser other(rig.cache.shared());
  const RdmaKeys* keys = rig.cache.next(page(0), 3 * kPage);
  REQUIRE(rig.cache.registrar.is_live(keys));
  SECTION("hears of a change") {
    rig.watch.report(page(0), kPage);
    other.begin_operation();
    // A later look-up gets the memory that is there now.
    CHECK(other.find(source_of(page(1), kPage)) != keys);
  }
  SECTION("needs its room") {
    CHECK(other.find(source_of(page(8), 2 * kPage)) == nullptr);
    other.begin_operation();
    other.begin_operation();
    CHECK(rig.cache.registrar.is_live(keys));
    rig.cache->begin_operation();
    CHECK(other.find(source_of(page(8), 2 * kPage)) != nullptr);
    CHECK(rig.cache.registrar.live() == 1);
    return;
  }
  SECTION("fills the device") {
    rig.cache.registrar.fail_next = 2;
    CHECK(other.find(source_of(page(8), kPage)) == nullptr);
  }
  SECTION("opens a further device") {
    rig.cache.shared().forget_all();
  }
  SECTION("ends") {
    RegistrationUser ends(rig.cache.shared());
    CHECK(ends.find(source_of(page(1), kPage)) == keys);
  }
  CHECK(rig.cache.registrar.is_live(keys));
  CHECK(rig.cache.find(page(0), 3 * kPage) == keys);
}

TEST_CASE("a replaced registration is removed when the last operation that has it is over") {
  Rig rig;
  RegistrationUser other(rig.cache.shared());
  const RdmaKeys* keys = rig.cache.next(page(0), 2 * kPage);
  CHECK(other.find(source_of(page(0), 2 * kPage)) == keys);
  rig.watch.report(page(1), kPage);
  rig.cache->begin_operation();
  CHECK(rig.cache.find(page(0), 2 * kPage) != keys);
  CHECK(rig.cache.registrar.is_live(keys));
  CHECK(rig.cache.registrar.live() == 2);
  other.begin_operation();
  CHECK(rig.cache.registrar.live() == 1);
  CHECK(rig.cache.registered_bytes() == 2 * kPage);
}

TEST_CASE("each communicator retries a failed registration itself") {
  Rig rig;
  RegistrationUser other(rig.cache.shared());
  rig.cache.registrar.fail_next = 2;
  CHECK(rig.cache.next(page(0), kPage) == nullptr);
  CHECK(rig.cache.find(page(0), kPage) == nullptr);
  const RdmaKeys* keys = other.find(source_of(page(0), kPage));
  REQUIRE(rig.cache.registrar.is_live(keys));
  // The same during its whole operation.
  CHECK(rig.cache.find(page(0), kPage) == nullptr);
  CHECK(rig.cache.next(page(0), kPage) == keys);
}

TEST_CASE("without a watch only regions are registered") {
  Cache cache(nullptr);
  Pages memory(1);
  CHECK(cache.next(memory.at(0), kPage) == nullptr);
  CHECK_FALSE(cache->trouble().empty());
  CHECK(cache.registrar.registered == 0);
}

TEST_CASE("memory that cannot be watched is not registered, and rarely asked about") {
  Rig rig;
  SECTION("by the kernel") {
    rig.watch.allows = false;
  }
  SECTION("as registering shows") {
    rig.watch.stays_allowed = false;
  }
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(rig.cache.next(page(0), kPage) == nullptr);
    REQUIRE(rig.cache.find(page(0), kPage) == nullptr);
  }
  CHECK(rig.cache.registrar.live() == 0);
  CHECK(rig.watch.watched.size() > 4);
  CHECK(rig.watch.watched.size() < 40);
  CHECK_FALSE(rig.cache->trouble().empty());
  // Other memory is not affected, and this memory may become watchable.
  rig.watch.allows = rig.watch.stays_allowed = true;
  CHECK(rig.cache.next(page(1), kPage) != nullptr);
  const RdmaKeys* keys = nullptr;
  for (int i = 0; i < 300 && keys == nullptr; ++i) keys = rig.cache.next(page(0), kPage);
  CHECK(rig.cache.registrar.is_live(keys));
}

TEST_CASE("at a limit of the device, unused registrations are removed") {
  Rig rig;
  rig.cache.registrar.most_bytes = 4 * kPage;
  (void)rig.cache.next(page(0), 2 * kPage);
  const RdmaKeys* used = rig.cache.next(page(10), 2 * kPage);
  CHECK(rig.cache.find(page(20), 2 * kPage) != nullptr);
  CHECK(rig.cache.registrar.is_live(used));
  CHECK(rig.cache.registrar.live() == 2);
  // Both are in use.
  CHECK(rig.cache.find(page(30), kPage) == nullptr);
  CHECK(rig.cache->trouble().find("full") != std::string::npos);
  const int tried = rig.cache.registrar.registered;
  rig.cache.registrar.most_bytes = SIZE_MAX;
  CHECK(rig.cache.find(page(30), kPage) == nullptr);
  CHECK(rig.cache.registrar.registered == tried);
  CHECK(rig.cache.next(page(30), kPage) != nullptr);
}

TEST_CASE("a temporary failure is retried at once") {
  Rig rig;
  rig.cache.registrar.fail_next = 1;
  CHECK(rig.cache.registrar.is_live(rig.cache.next(page(0), kPage)));
}

TEST_CASE("the least recently used registration is removed first") {
  Rig rig(3 * kPage);
  const RdmaKeys* first = rig.cache.next(page(0), kPage);
  const std::uint32_t second = rig.cache.next(page(10), kPage)->lkeys[0];
  (void)rig.cache.next(page(20), kPage);
  CHECK(rig.cache.next(page(0), kPage) == first);
  CHECK(rig.cache.next(page(30), kPage) != nullptr);
  CHECK(rig.cache.registered_bytes() == 3 * kPage);
  CHECK(rig.cache.next(page(0), kPage) == first);
  CHECK(rig.cache.next(page(10), kPage)->lkeys[0] != second);
  CHECK(rig.cache.next(page(0), 4 * kPage) == nullptr);
}

TEST_CASE("buffers that overlap are registered together") {
  Rig rig;
  const RdmaKeys* first = rig.cache.next(page(0), 4 * kPage + 1);
  const RdmaKeys* both = rig.cache.find(page(2) + 64, 5 * kPage);
  REQUIRE(rig.cache.registrar.is_live(both));
  // Found before in this operation.
  CHECK(rig.cache.registrar.is_live(first));
  rig.cache->begin_operation();
  CHECK(rig.cache.registrar.live() == 1);
  CHECK(rig.cache.find(page(0), 8 * kPage) == both);
}

TEST_CASE("buffers that share a page are registered each by itself") {
  Rig rig;
  constexpr std::size_t kBuffers = 20;
  const std::size_t kBytes = 10 * kPage + 48;
  // From the middle outwards, on both sides.
  const auto buffer = [&](std::size_t i) {
    return page(0) + (i % 2 == 0 ? kBuffers / 2 + i / 2 : kBuffers / 2 - 1 - i / 2) * kBytes;
  };
  std::vector<const RdmaKeys*> keys;
  for (std::size_t i = 0; i < kBuffers; ++i) {
    keys.push_back(rig.cache.next(buffer(i), kBytes));
    CHECK(rig.cache.registrar.is_live(keys.back()));
  }
  CHECK(rig.cache.registrar.registered == static_cast<int>(kBuffers));
  for (std::size_t i = 0; i < kBuffers; ++i) CHECK(rig.cache.next(buffer(i), kBytes) == keys[i]);
  // The shared page belongs to both.
  const auto shared = reinterpret_cast<std::uintptr_t>(buffer(0)) / kPage * kPage;
  rig.watch.report(reinterpret_cast<const std::byte*>(shared), 1);
  rig.cache->begin_operation();
  CHECK(rig.cache.registrar.live() == kBuffers - 2);
  // A buffer that contains many of them replaces them.
  CHECK(rig.cache.next(page(0), kBuffers * kBytes) != nullptr);
  CHECK(rig.cache.registrar.live() == 1);
}

TEST_CASE("after a change, only the used part of overlapping memory is registered") {
  Rig rig;
  (void)rig.cache.next(page(4), 4 * kPage);
  rig.cache.registrar.on_register = [&] {
    rig.watch.report(page(6), 2 * kPage);
    rig.cache.registrar.on_register = nullptr;
  };
  CHECK(rig.cache.registrar.is_live(rig.cache.next(page(2), 4 * kPage)));
  CHECK(rig.cache.registered_bytes() == 4 * kPage);
}

TEST_CASE("a buffer that grows with every operation is registered in few of them") {
  Rig rig;
  constexpr std::size_t kSteps = 1000;
  std::size_t used_bytes = 0;
  SECTION("from its beginning") {
    for (std::size_t i = 1; i <= kSteps; ++i) {
      const RdmaKeys* keys = rig.cache.next(page(0), i * kPage);
      CHECK((keys == nullptr || rig.cache.registrar.is_live(keys)));
      used_bytes += i * kPage;
    }
    CHECK(rig.cache.registrar.registered < static_cast<int>(kSteps / 3));
  }
  SECTION("by windows that overlap") {
    for (std::size_t i = 0; i < kSteps; ++i) {
      (void)rig.cache.next(page(8 * i), 9 * kPage);
      used_bytes += 9 * kPage;
    }
  }
  SECTION("by windows that overlap, each used twice") {
    for (std::size_t i = 0; i < 2 * kSteps; ++i) {
      (void)rig.cache.next(page(i / 2 * 8), 9 * kPage);
      used_bytes += 9 * kPage;
    }
  }
  CHECK(rig.cache.registrar.registered_bytes < 2 * used_bytes);
  // When it is used repeatedly it is registered.
  const RdmaKeys* keys = nullptr;
  for (int i = 0; i < 10 && keys == nullptr; ++i) keys = rig.cache.next(page(0), 8 * kSteps * kPage);
  CHECK(rig.cache.registrar.is_live(keys));
}

TEST_CASE("a size that is used many times before it grows is registered at once") {
  Rig rig;
  for (std::size_t pages = 1; pages <= 1024; pages *= 2) {
    for (int i = 0; i < 10; ++i) REQUIRE(rig.cache.next(page(0), pages * kPage) != nullptr);
  }
  CHECK(rig.cache.registrar.registered == 11);
}

TEST_CASE("memory of a region is registered while the region is there") {
  auto& regions = RegionRegistry::instance();
  FakeWatch watch;
  Cache cache(GENERATE(true, false) ? &watch : nullptr);
  auto* memory = static_cast<std::byte*>(regions.allocate(8 * kPage).value());
  auto* other = static_cast<std::byte*>(regions.allocate(kPage).value());
  const std::uint64_t id = regions.find(memory, kPage).region;
  const std::uint64_t other_id = regions.find(other, kPage).region;
  const RdmaKeys* keys = cache.next(memory + 1, 2 * kPage, id);
  REQUIRE(cache.registrar.is_live(keys));
  CHECK(cache.registered_bytes() == 3 * kPage);
  const RdmaKeys* others = cache.next(other, kPage, other_id);
  CHECK(cache.next(memory, kPage, id) == keys);
  REQUIRE(regions.free(memory).is_ok());
  CHECK(cache.next(other, kPage, other_id) == others);
  CHECK(cache.registrar.live() == 1);
  // Another region has its address now.
  auto* again = static_cast<std::byte*>(regions.allocate(8 * kPage).value());
  const RdmaKeys* anew = cache.next(again, 2 * kPage, regions.find(again, kPage).region);
  REQUIRE(cache.registrar.is_live(anew));
  CHECK(anew->lkeys[0] > others->lkeys[0]);
  REQUIRE(regions.free(again).is_ok());
  REQUIRE(regions.free(other).is_ok());
  cache->begin_operation();
  CHECK(cache.registrar.live() == 0);
}

TEST_CASE("a buffer that is partly in a registered region does not take its registration") {
  auto& regions = RegionRegistry::instance();
  Rig rig;
  auto* memory = static_cast<std::byte*>(regions.allocate(4 * kPage).value());
  const RdmaKeys* keys = rig.cache.next(memory, 2 * kPage, regions.find(memory, kPage).region);
  CHECK(rig.cache.next(memory + 100, 100) == keys);
  CHECK(rig.cache.next(memory + kPage, 3 * kPage) == nullptr);
  CHECK(rig.cache.registrar.is_live(keys));
  REQUIRE(regions.free(memory).is_ok());
}
