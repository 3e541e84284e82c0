#include "schedule/layout.h"

#include <random>

#include "catch_compat.h"

namespace tutti::internal::schedule {
namespace {

// The chunks of every block are contiguous and fill the slice exactly.
void check_partition(const Shape& shape, std::size_t block, std::size_t element_bytes, std::size_t begin,
                     std::size_t extent) {
  const Layout layout(shape, block, element_bytes, begin, extent);
  INFO(shape.chunks << " chunks, " << shape.blocks << " blocks of " << block << ", slice " << begin << "+" << extent);
  const std::uint32_t per_block = shape.chunks_per_block();
  for (std::uint32_t b = 0; b < shape.blocks; ++b) {
    std::size_t at = (b * block + begin) * element_bytes;
    for (std::uint32_t p = 0; p < per_block; ++p) {
      const std::uint32_t c = b * per_block + p;
      REQUIRE(layout.begin(c) == at);
      REQUIRE(layout.size(c) % element_bytes == 0);
      at += layout.size(c);
    }
    REQUIRE(at == (b * block + begin + extent) * element_bytes);
    const ByteRange whole = layout.bytes({b * per_block, per_block});
    REQUIRE(whole.begin == (b * block + begin) * element_bytes);
    REQUIRE(whole.size == extent * element_bytes);
  }
}

TEST_CASE("chunks partition the slice, for random sizes") {
  std::mt19937 random(7);
  const auto below = [&](unsigned n) { return static_cast<std::size_t>(random() % n); };
  for (int i = 0; i < 3000; ++i) {
    Shape shape;
    const bool blocks = below(2) == 0;
    shape.ranks = static_cast<std::int32_t>(1 + below(40));
    shape.blocks = blocks ? static_cast<std::uint32_t>(shape.ranks) : 1;
    shape.chunks = shape.blocks * static_cast<std::uint32_t>(1 + below(70));
    const std::size_t element_bytes = std::size_t{1} << below(4);
    const std::size_t block = below(i % 3 == 0 ? 100 : 200000);
    const std::size_t begin = below(static_cast<unsigned>(block) + 1);
    check_partition(shape, block, element_bytes, begin, below(static_cast<unsigned>(block - begin) + 1));
    check_partition(shape, block, element_bytes, 0, block);
  }
}

TEST_CASE("large chunks are balanced and cut at cache lines") {
  const Shape shape{Collective::kAllReduce, 7, 0, 7, 1};
  const Layout layout(shape, 1000003, 4);
  for (std::uint32_t c = 0; c < 7; ++c) {
    CHECK(layout.begin(c) % 64 == 0);
    CHECK(layout.size(c) <= 1000003 / 7 * 4 + 2 * 64);
    CHECK(layout.size(c) + 2 * 64 >= 1000003 / 7 * 4);
  }
}

TEST_CASE("small vectors leave some chunks empty rather than uneven") {
  const Shape shape{Collective::kAllReduce, 8, 0, 8, 1};
  const Layout layout(shape, 5, 4);
  std::size_t bytes = 0;
  for (std::uint32_t c = 0; c < 8; ++c) {
    CHECK(layout.size(c) <= 4);
    bytes += layout.size(c);
  }
  CHECK(bytes == 20);
}

}  // namespace
}  // namespace tutti::internal::schedule
