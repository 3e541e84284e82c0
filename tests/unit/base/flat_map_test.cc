#include "base/flat_map.h"

#include <map>
#include <random>

#include "catch_compat.h"

namespace tutti::internal {
namespace {

// Keys in a row, keys whose lower bits are equal, and random ones, some of them twice.
TEST_CASE("FlatMap: finds the keys that were added, with their values, and no others") {
  FlatMap<std::uint64_t, std::uint32_t> flat;
  CHECK(flat.find(7) == nullptr);
  std::map<std::uint64_t, std::uint32_t> known;
  std::mt19937_64 random(1);
  for (std::uint32_t i = 0; i < 30'000; ++i) {
    const std::uint64_t key = i % 3 == 0 ? i : i % 3 == 1 ? std::uint64_t{i} << 32 : random() % 20'000;
    const auto [value, is_new] = flat.add(key, i);
    REQUIRE(is_new == known.try_emplace(key, i).second);
    REQUIRE(*value == known[key]);
    *value += 1;
    known[key] += 1;
  }
  for (const auto& [key, value] : known) {
    REQUIRE(flat.find(key) != nullptr);
    REQUIRE(*flat.find(key) == value);
  }
  for (std::uint64_t key = 0; key < 40'000; ++key) REQUIRE((flat.find(key) != nullptr) == known.contains(key));
}

}  // namespace
}  // namespace tutti::internal
