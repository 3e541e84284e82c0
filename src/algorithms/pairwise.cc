#include "algorithms/pairwise.h"

namespace tutti::internal::algorithms {

void pairwise_all_to_all(Builder& b) {
  const int n = b.shape().ranks;
  const int me = b.rank();
  const std::uint32_t parts = b.shape().chunks_per_block();
  const auto block = [&](int rank) { return static_cast<std::uint32_t>(rank) * parts; };
  b.copy({Buffer::kInput, block(me)}, {Buffer::kOutput, block(me)}, parts);
  for (int k = 1; k < n; ++k) {
    const int to = (me + k) % n;
    const int from = (me + n - k) % n;
    if (k > 1) b.wait_for_last();  // waits for the receive of the round before
    b.send_from(to, {Buffer::kInput, block(to)}, parts);
    b.recv_into(from, {Buffer::kOutput, block(from)}, parts);
  }
}

}  // namespace tutti::internal::algorithms
