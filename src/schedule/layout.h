// The positions of chunks, for one call: the only code that knows sizes.
//
// Input and output share one coordinate, the byte offset in the whole vector (blocks x count elements); a buffer that
// holds only one block (the output of reduce-scatter and scatter, the input of all-gather and gather) is given a base
// address such that base + offset is right for that block. Scratch is cut in the same way, and may be longer than the
// vector. If blocks have different sizes, each is one chunk, and a table has its position in each buffer. See address
// rules in executor/operation.h.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "schedule/schedule.h"

namespace tutti::internal::schedule {

struct ByteRange {
  std::size_t begin = 0;
  std::size_t size = 0;
};

// A slice [begin, begin + extent) of the elements of every block, each cut into `parts` nearly equal chunks. If chunks
// are large enough to stay balanced, cuts are at multiples of 64 bytes of the slice (for elements that do not fill
// lines evenly, at multiples of both; for longer elements, between any two). A cut is never within an element, and
// nothing is padded. The rule depends only on the sizes, so all ranks cut in the same way.
class Layout {
 public:
  Layout() = default;
  // block_elements: elements of a whole block (the distance between blocks).
  constexpr Layout(const Shape& shape, std::size_t block_elements, std::size_t element_bytes)
      : Layout(shape, block_elements, element_bytes, 0, block_elements) {}
  constexpr Layout(const Shape& shape, std::size_t block_elements, std::size_t element_bytes, std::size_t slice_begin,
                   std::size_t slice_elements)
      : parts_(shape.chunks_per_block()),
        stride_(block_elements * element_bytes),
        begin_(slice_begin * element_bytes),
        extent_(slice_elements),
        unit_(parts_ == 1 ? 1 : cut_unit(slice_elements, parts_, element_bytes)),  // avoids a division if it can
        element_bytes_(element_bytes) {}

  // Offset of the first byte of chunk c.
  [[nodiscard]] constexpr std::size_t begin(std::uint32_t c) const {
    if (parts_ == 1) return c * stride_ + begin_;
    const std::uint32_t block = c / parts_;
    return block * stride_ + begin_ + cut(c - block * parts_);
  }
  // Bytes of chunk c.
  [[nodiscard]] constexpr std::size_t size(std::uint32_t c) const {
    if (parts_ == 1) return extent_ * element_bytes_;
    const std::uint32_t part = c % parts_;
    return cut(part + 1) - cut(part);
  }
  // A range is contiguous if it stays in one block, or if the slice is the whole block.
  // REQUIRES: r.count > 0.
  [[nodiscard]] constexpr ByteRange bytes(ChunkRange r) const {
    if (r.count == 1 && parts_ == 1) return {begin(r.first), extent_ * element_bytes_};
    const std::uint32_t last = r.first + r.count - 1;
    const std::size_t from = begin(r.first);
    return {from, begin(last) + size(last) - from};
  }

  // The smallest number of elements that fill whole lines of 64 bytes; one if an element is longer than a line.
  static constexpr std::size_t elements_of_lines(std::size_t element_bytes) {
    constexpr unsigned kLineBits = 6;
    const auto bits = static_cast<unsigned>(std::countr_zero(element_bytes));
    return element_bytes >> kLineBits != 0 ? 1 : std::size_t{1} << (kLineBits - bits);
  }

 private:
  static constexpr std::size_t cut_unit(std::size_t elements, std::uint32_t parts, std::size_t element_bytes) {
    const std::size_t unit = elements_of_lines(element_bytes);
    // Rounding to units moves a cut by less than one: at most 1/16 of a chunk of 16.
    return elements >= 16 * unit * parts ? unit : 1;
  }
  // Offset in bytes of cut i of [0, parts], from the start of the slice.
  [[nodiscard]] constexpr std::size_t cut(std::uint32_t i) const {
    if (i == parts_) return extent_ * element_bytes_;
    const std::size_t units = extent_ / unit_;
    return (units / parts_ * i + units % parts_ * i / parts_) * unit_ * element_bytes_;
  }

  std::uint32_t parts_ = 1;
  std::size_t stride_ = 0;
  std::size_t begin_ = 0;
  std::size_t extent_ = 0;  // elements of the slice
  std::size_t unit_ = 1;    // elements between possible cuts
  std::size_t element_bytes_ = 1;
};

// By Buffer: the positions of its chunks, by number. Chunks that input and output share, as in an in-place call, have
// the same coordinates in both. Null if no step accesses the buffer.
using ChunkPlaces = std::array<const ByteRange*, kBuffers>;

// The bytes [begin, begin + extent) of every chunk of a table; empty for chunks that end before `begin`.
class TableLayout {
 public:
  explicit TableLayout(const ChunkPlaces& places, std::size_t begin = 0, std::size_t extent = SIZE_MAX)
      : places_(places), begin_(begin), extent_(extent) {}

  [[nodiscard]] ByteRange bytes(Buffer buffer, std::uint32_t c) const {
    const ByteRange& whole = places_[static_cast<std::size_t>(buffer)][c];
    const std::size_t from = std::min(begin_, whole.size);
    return {whole.begin + from, std::min(extent_, whole.size - from)};
  }

 private:
  const ChunkPlaces& places_;
  std::size_t begin_;
  std::size_t extent_;
};

}  // namespace tutti::internal::schedule
