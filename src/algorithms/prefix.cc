#include "algorithms/prefix.h"

namespace tutti::internal::algorithms {
namespace {

using At = Builder::At;

ChunkRange vector_of(const Builder& b) {
  return {0, b.shape().chunks};
}

// The position of chunk c. Scratch holds two vectors: the one that this member sends on, and then the last received
// one.
At input(std::uint32_t c) {
  return {Buffer::kInput, c};
}
At output(std::uint32_t c) {
  return {Buffer::kOutput, c};
}
At to_send_on(std::uint32_t c) {
  return {Buffer::kScratch, c};
}
At received(const Builder& b, std::uint32_t c) {
  return {Buffer::kScratch, b.shape().chunks + c};
}

// Receives the value for the output. If a combination is to be sent on, the input is still needed after that; in place,
// input and output are one, so the value waits in scratch.
void receive_first(Builder& b, int from, bool sends_on, ChunkRange c) {
  if (!sends_on) return b.recv_into(from, output(c.first), c.count);
  b.recv_into(from, received(b, c.first), c.count);
  b.reduce(received(b, c.first), Buffer::kInput, to_send_on(c.first), c.count);
}

}  // namespace

void doubling_scan(Builder& b) {
  const int n = b.shape().ranks;
  for (int distance = 1; distance < n; distance *= 2) {
    if (b.rank() + distance < n) b.send(b.rank() + distance, vector_of(b));
    if (b.rank() >= distance) b.recv_reduce(b.rank() - distance, vector_of(b));
  }
}

void chain_scan(Builder& b) {
  for (std::uint32_t c = 0; c < b.shape().chunks; ++c) {
    if (b.rank() > 0) b.recv_reduce(b.rank() - 1, {c, 1});
    if (b.rank() + 1 < b.shape().ranks) b.send(b.rank() + 1, {c, 1});
  }
}

void doubling_exscan(Builder& b) {
  const int n = b.shape().ranks;
  const int me = b.rank();
  const std::uint32_t chunks = b.shape().chunks;
  for (int distance = 1; distance < n; distance *= 2) {
    if (me + distance < n) b.send_from(me + distance, distance == 1 || me == 0 ? input(0) : to_send_on(0), chunks);
    if (me < distance) continue;
    const int from = me - distance;
    const bool sends_on = me + 2 * distance < n;
    if (distance == 1) {
      receive_first(b, from, sends_on, vector_of(b));
      if (sends_on) b.copy(received(b, 0), output(0), chunks);
      continue;
    }
    b.recv_into(from, received(b, 0), chunks);
    if (sends_on) b.reduce(received(b, 0), Buffer::kScratch, to_send_on(0), chunks);
    b.reduce(received(b, 0), Buffer::kOutput, output(0), chunks);
  }
}

void chain_exscan(Builder& b) {
  const int me = b.rank();
  const bool sends_on = me + 1 < b.shape().ranks;
  for (std::uint32_t c = 0; c < b.shape().chunks; ++c) {
    if (me > 0) receive_first(b, me - 1, sends_on, {c, 1});
    if (!sends_on) continue;
    b.send_from(me + 1, me == 0 ? input(c) : to_send_on(c), 1);
    if (me > 0) b.copy(received(b, c), output(c), 1);
  }
}

}  // namespace tutti::internal::algorithms
