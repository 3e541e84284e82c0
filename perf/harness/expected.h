// The data that the ranks send, and that each must receive: computed on every rank from (seed, rank, index)
// alone, without communication.
//
// Data repeat after kPeriod elements (with many ranks kPeriodOfMany), a prime, so that a chunk that lands at a wrong
// offset shows, while 64 MiB are checked nearly as fast as they are copied. Integers are random in full width;
// arithmetic wraps. Floats are chosen so that sums and products are exact in every order of combination:
//   sum, avg  integers whose partial sums stay below 2^significand_bits; with more ranks than that
//             allows, a varying window of the ranks sends them and the others send zeros
//   prod      signed powers of two from a window of the ranks (exponents stay in range), one of them
//             times 1.5, and 1 or -1 from the others
//   max, min, and what only moves data: random finite numbers
// The parts of a complex number are such floats; factors are real or imaginary. Integers and booleans are often 0 where
// a logical operator combines them. So every element must be right to the last bit, except for avg of floats, where the
// division may differ in the last place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "subject.h"

namespace tutti::internal::perf {

inline constexpr std::size_t kPeriod = 65'521;
// With many ranks a shorter prime: what a rank computes for a check grows with their number.
inline constexpr std::size_t kPeriodOfMany = 4'093;
inline constexpr int kMany = 16;

struct Problem {
  Subject subject = Collective::kAllReduce;
  DataType datatype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int ranks = 1;
  int root = 0;
  std::size_t count = 0;  // elements as the API counts them; where blocks have counts of their own, their mean
  double skew = 0;        // of the blocks, where they have counts of their own: see skew.h
  std::uint64_t seed = 0;

  // The elements of each block of the vector as `rank` has it, or of the vector where it is not made of blocks. In an
  // all-to-all with counts of their own, block j of rank r is as large as block (r + j) mod ranks otherwise is: so are
  // all vectors, and those that two ranks exchange.
  [[nodiscard]] std::vector<std::size_t> blocks(int rank) const;
  // Of that vector, before this block.
  [[nodiscard]] std::size_t elements_before(int rank, int block) const;
  [[nodiscard]] std::size_t vector_elements() const;
  [[nodiscard]] std::size_t send_elements(int rank) const;
  [[nodiscard]] std::size_t recv_elements(int rank) const;
  // The larger of a rank's two buffers, which is the same on all of them but where only the root has it.
  [[nodiscard]] std::size_t vector_bytes() const { return vector_elements() * size_of(datatype); }
  [[nodiscard]] std::size_t send_bytes(int rank) const { return send_elements(rank) * size_of(datatype); }
  [[nodiscard]] std::size_t recv_bytes(int rank) const { return recv_elements(rank) * size_of(datatype); }
  // Whether recvbuff has a meaning on `rank`.
  [[nodiscard]] bool receives(int rank) const { return subject.receives(rank, root); }
};

// Fills the data that `rank` sends. REQUIRES: send.size() == problem.send_bytes(rank).
void fill_send(const Problem& problem, int rank, std::span<std::byte> send);

// Elements of `recv` that differ from what `rank` must receive. REQUIRES: recv.size() == recv_bytes(rank),
// problem.receives(rank).
std::size_t count_wrong(const Problem& problem, int rank, std::span<const std::byte> recv);

// Elements of `part`, which begins at element `first` of what `rank` sends, that differ from what fill_send wrote.
std::size_t count_changed(const Problem& problem, int rank, std::size_t first, std::span<const std::byte> part);

}  // namespace tutti::internal::perf
