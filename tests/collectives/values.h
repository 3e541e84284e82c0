// Data for which every order of combination gives the same bits, so that a result can be compared with memcmp for every
// algorithm: integers wrap (associative), floats are small whole numbers or powers of two. Vectors are periodic with a
// prime period, of which no power-of-two piece or slot is a multiple.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/types.h"

namespace tutti::internal::test {

inline constexpr std::size_t kPeriod = 509;

using Pattern = std::vector<std::byte>;  // kPeriod elements

// The contribution of `rank` of `ranks` to a reduction with `op`. Any thread; cached for the life of the process.
std::shared_ptr<const Pattern> input_pattern(DataType type, ReduceOp op, int ranks, int rank);
// The inputs of the first `combined` ranks combined, in rank order, with the reference kernels. REQUIRES: combined > 0;
// all of them for an average.
std::shared_ptr<const Pattern> combined_pattern(DataType type, ReduceOp op, int ranks, int combined);

// `count` floats of any kind: ordinary numbers whose sums depend on the order, zeros of either sign, infinities, and
// NaNs of either sign with all kinds of payloads, different ones on every rank.
void fill_with_any_bits(std::byte* target, DataType type, std::size_t count, int rank);

// target[i] = pattern[(first + i) mod period], i < count.
void fill_periodic(std::byte* target, const Pattern& pattern, std::size_t first, std::size_t count);
// The first i < count with target[i] != pattern[(first + i) mod period], or count.
std::size_t find_difference(const std::byte* target, const Pattern& pattern, std::size_t first, std::size_t count);

}  // namespace tutti::internal::test
