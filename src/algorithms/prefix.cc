#include "algorithms/prefix.h"

namespace tutti::internal::algorithms {
namespace {

using At = Builder::At;

ChunkRange vector_of(const Builder& b) {
  return {0, b.shape().chunks};
}

// Two vectors in scratch: what this member sends on, and behind that what it has received last.
At received(std::uint32_t chunks) {
  return {Buffer::kScratch, chunks};
}

constexpr At kInput{Buffer::kInput, 0};
constexpr At kOutput{Buffer::kOutput, 0};
constexpr At kToSendOn{Buffer::kScratch, 0};

// Receives what goes into the output. If anything is to be sent on, the input, with which it is combined for that, is
// needed after it has come, and in place the two are one: then it waits in scratch.
void receive_first(Builder& b, int from, bool sends_on) {
  const std::uint32_t chunks = b.shape().chunks;
  if (!sends_on) return b.recv_into(from, kOutput, chunks);
  b.recv_into(from, received(chunks), chunks);
  b.reduce(received(chunks), Buffer::kInput, kToSendOn, chunks);
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
  if (b.rank() > 0) b.recv_reduce(b.rank() - 1, vector_of(b));
  if (b.rank() + 1 < b.shape().ranks) b.send(b.rank() + 1, vector_of(b));
}

void doubling_exscan(Builder& b) {
  const int n = b.shape().ranks;
  const int me = b.rank();
  const std::uint32_t chunks = b.shape().chunks;
  for (int distance = 1; distance < n; distance *= 2) {
    if (me + distance < n) b.send_from(me + distance, distance == 1 || me == 0 ? kInput : kToSendOn, chunks);
    if (me < distance) continue;
    const int from = me - distance;
    const bool sends_on = me + 2 * distance < n;
    if (distance == 1) {
      receive_first(b, from, sends_on);
      if (sends_on) b.copy(received(chunks), kOutput, chunks);
      continue;
    }
    b.recv_into(from, received(chunks), chunks);
    if (sends_on) b.reduce(received(chunks), Buffer::kScratch, kToSendOn, chunks);
    b.reduce(received(chunks), Buffer::kOutput, kOutput, chunks);
  }
}

void chain_exscan(Builder& b) {
  const int n = b.shape().ranks;
  const int me = b.rank();
  const std::uint32_t chunks = b.shape().chunks;
  const bool sends_on = me + 1 < n;
  if (me > 0) receive_first(b, me - 1, sends_on);
  if (!sends_on) return;
  b.send_from(me + 1, me == 0 ? kInput : kToSendOn, chunks);
  if (me > 0) b.copy(received(chunks), kOutput, chunks);
}

}  // namespace tutti::internal::algorithms
