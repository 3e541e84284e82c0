#include "algorithms/direct.h"

namespace tutti::internal::algorithms {

// Member i gathers x0 + x1 + ... + x(i-1) in scratch, combines that with its own vector, and continues with x(i+1).
// Member 1 may start from its own. Member 0 receives x1 into scratch: if all combined into the memory that they still
// send, no member could begin without buffering.
void direct_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes) {
  const int n = g.size();
  const int i = g.index();
  for (int k = 1; k < n; ++k) b.send(g.rank(i + k), c);
  const auto now = [&](int last_combined) { return completes_if(last_combined == n - 1, completes); };
  int next = 0;
  if (i == 0 && n > 1) {
    b.recv_to_scratch(g.rank(1), c);
    b.reduce_from_scratch(c, ScratchComes::kLast, now(1));
    next = 2;
  } else if (i >= 2) {
    b.recv_to_scratch(g.rank(0), c);
    for (int k = 1; k < i; ++k) b.recv_reduce_to_scratch(g.rank(k), c);
    b.reduce_from_scratch(c, ScratchComes::kFirst, now(i));
    next = i + 1;
  }
  for (int k = next; k < n; ++k) {
    if (k != i) b.recv_reduce(g.rank(k), c, now(i == 1 && n == 2 ? 1 : k));
  }
}

void direct_two_phase_all_reduce(Builder& b, const Group& g, ChunkRange c, Completes completes) {
  const std::vector<Part> parts = equal_parts(c, g.size());
  direct_reduce_scatter(b, g, parts, completes);
  direct_all_gather(b, g, parts);
}

// Range by range: a second message to a peer comes only after the first messages to all.
void direct_reduce_scatter(Builder& b, const Group& g, const std::vector<Part>& parts, Completes completes) {
  const int n = g.size();
  const int i = g.index();
  const auto part = [&](int k) -> const Part& { return parts[static_cast<std::size_t>(g.wrap(k))]; };
  for (std::size_t q = 0; q < parts.front().size(); ++q) {
    for (int k = 1; k < n; ++k) b.send(g.rank(i + k), part(i + k)[q]);
    for (int k = 1; k < n; ++k) b.recv_reduce(g.rank(i - k), part(i)[q], completes_if(k == n - 1, completes));
  }
}

void direct_all_gather(Builder& b, const Group& g, const std::vector<Part>& parts) {
  const int n = g.size();
  const int i = g.index();
  const auto part = [&](int k) -> const Part& { return parts[static_cast<std::size_t>(g.wrap(k))]; };
  for (std::size_t q = 0; q < parts.front().size(); ++q) {
    for (int k = 1; k < n; ++k) b.send(g.rank(i + k), part(i)[q]);
    for (int k = 1; k < n; ++k) b.recv(g.rank(i - k), part(i - k)[q]);
  }
}

void direct_broadcast(Builder& b, const Group& g, int root, ChunkRange c) {
  if (g.index() != root) return b.recv(g.rank(root), c);
  for (int k = 1; k < g.size(); ++k) b.send(g.rank(root + k), c);
}

void direct_reduce(Builder& b, const Group& g, int root, ChunkRange c, Completes completes) {
  if (g.index() != root) return b.send(g.rank(root), c);
  for (int k = 1; k < g.size(); ++k) b.recv_reduce(g.rank(root + k), c, completes_if(k == g.size() - 1, completes));
}

void direct_gather(Builder& b) {
  const schedule::Shape& shape = b.shape();
  if (b.rank() != shape.root) return b.send(shape.root, shape.held(Holds::kOwnBlock, b.rank()));
  for (int k = 1; k < shape.ranks; ++k) {
    const int peer = (shape.root + k) % shape.ranks;
    b.recv(peer, shape.held(Holds::kOwnBlock, peer));
  }
}

void direct_scatter(Builder& b) {
  const schedule::Shape& shape = b.shape();
  if (b.rank() != shape.root) return b.recv(shape.root, shape.held(Holds::kOwnBlock, b.rank()));
  for (int k = 1; k < shape.ranks; ++k) {
    const int peer = (shape.root + k) % shape.ranks;
    b.send(peer, shape.held(Holds::kOwnBlock, peer));
  }
}

void direct_all_to_all(Builder& b) {
  const int n = b.shape().ranks;
  const int me = b.rank();
  const std::uint32_t parts = b.shape().chunks_per_block();
  const auto block = [&](int rank) { return static_cast<std::uint32_t>(rank) * parts; };
  for (int k = 1; k < n; ++k) b.send_from((me + k) % n, {Buffer::kInput, block((me + k) % n)}, parts);
  b.copy({Buffer::kInput, block(me)}, {Buffer::kOutput, block(me)}, parts);
  for (int k = 1; k < n; ++k) b.recv_into((me + n - k) % n, {Buffer::kOutput, block((me + n - k) % n)}, parts);
}

}  // namespace tutti::internal::algorithms
