#include "calls/varying.h"

#include <algorithm>

#include "base/collectives.h"
#include "calls/call.h"

namespace tutti::internal {

using schedule::Buffer;
using schedule::ByteRange;

VaryingCounts known_counts(const Call& call, int rank) {
  const CollectiveInfo& info = info_of(call.collective);
  const auto has_blocks = [&](Holds holds) { return holds != Holds::kOwnBlock && has_any(holds, rank, call.root); };
  return {has_blocks(info.input) ? call.varying->send : BlockCounts(),
          has_blocks(info.output) ? call.varying->recv : BlockCounts()};
}

VaryingCopy::VaryingCopy(const Call& call, int ranks, int rank) {
  const VaryingCounts counts = known_counts(call, rank);
  const auto n = static_cast<std::size_t>(ranks);
  storage_.reserve(4 * n);  // earlier copies must not move
  const auto copy = [&](const std::size_t* array) -> const std::size_t* {
    if (array == nullptr) return nullptr;
    storage_.insert(storage_.end(), array, array + n);
    return storage_.data() + storage_.size() - n;
  };
  counts_ = {{copy(counts.send.counts), copy(counts.send.displacements)},
             {copy(counts.recv.counts), copy(counts.recv.displacements)}};
}

PairBytes pair_bytes(const Call& call, int ranks, int rank) {
  const CollectiveInfo& info = info_of(call.collective);
  const VaryingCounts counts = known_counts(call, rank);
  const std::uint64_t element_bytes = element_bytes_of(call);
  const auto fill = [&](std::vector<std::uint64_t>& bytes, const BlockCounts& blocks, Holds holds) {
    bytes.resize(static_cast<std::size_t>(ranks));
    for (std::size_t r = 0; blocks.counts != nullptr && r < bytes.size(); ++r) {
      bytes[r] = blocks.counts[r] * element_bytes;
    }
    if (holds == Holds::kOwnBlock) bytes[static_cast<std::size_t>(call.root)] = call.count * element_bytes;
  };
  PairBytes pairs;
  fill(pairs.sends, counts.send, info.input);
  fill(pairs.receives, counts.recv, info.output);
  return pairs;
}

std::uint64_t hash_of_counts(const Call& call, int ranks) {
  if (!counts_are_common(call.collective)) return 0;
  const std::size_t* const counts =
      call.varying->send.counts != nullptr ? call.varying->send.counts : call.varying->recv.counts;
  std::uint64_t hash = static_cast<std::uint64_t>(ranks);
  for (int r = 0; r < ranks; ++r) {
    hash = (hash ^ counts[r]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

void VaryingBlocks::fill(Buffer buffer, const BlockCounts& blocks, std::size_t element_bytes) {
  const auto b = static_cast<std::size_t>(buffer);
  Places& places = places_[b];
  places.resize(ranks_);
  std::size_t packed = 0;
  for (std::size_t r = 0; r < ranks_; ++r) {
    const std::size_t size = blocks.counts[r] * element_bytes;
    const std::size_t begin = blocks.displacements != nullptr ? blocks.displacements[r] * element_bytes : packed;
    places[r] = {begin, size};
    packed += size;
    if (size == 0) continue;
    table_.largest = std::max(table_.largest, size);
    extent_[b] = std::max(extent_[b], begin + size);
  }
  bytes_ = std::max(bytes_, packed);
  table_.places[b] = places.data();
}

// The entries of the other ranks are never read.
void VaryingBlocks::fill_own(Buffer buffer, std::size_t bytes) {
  const auto b = static_cast<std::size_t>(buffer);
  places_[b].resize(ranks_);
  places_[b][rank_] = {0, bytes};
  bytes_ = table_.largest = extent_[b] = bytes;
  table_.places[b] = places_[b].data();
}

void VaryingBlocks::use(Buffer buffer, Buffer other) {
  const auto from = static_cast<std::size_t>(other);
  table_.places[static_cast<std::size_t>(buffer)] = table_.places[from];
  extent_[static_cast<std::size_t>(buffer)] = extent_[from];
}

void VaryingBlocks::lay_out(const Call& call, int ranks, int rank) {
  ranks_ = static_cast<std::size_t>(ranks);
  rank_ = static_cast<std::size_t>(rank);
  bytes_ = 0;
  extent_ = {};
  table_ = {};
  const std::size_t element_bytes = element_bytes_of(call);
  const VaryingCounts counts = known_counts(call, rank);
  if (counts.send.counts != nullptr) fill(Buffer::kInput, counts.send, element_bytes);
  if (counts.recv.counts != nullptr) fill(Buffer::kOutput, counts.recv, element_bytes);
  // If one buffer's blocks are known, the other's are too: both are parts of one vector, with the same coordinates.
  if (counts.send.counts == nullptr && counts.recv.counts == nullptr) {
    fill_own(Buffer::kInput, call.count * element_bytes);
    use(Buffer::kOutput, Buffer::kInput);
  } else if (counts.send.counts == nullptr) {
    use(Buffer::kInput, Buffer::kOutput);
  } else if (counts.recv.counts == nullptr) {
    use(Buffer::kOutput, Buffer::kInput);
  }
  use(Buffer::kScratch, Buffer::kInput);
}

void VaryingBlocks::tell_counts(const transport::Fingerprint& fingerprint, const Call& call) {
  const std::size_t element_bytes = element_bytes_of(call);
  for (const Buffer buffer : {Buffer::kInput, Buffer::kOutput}) {
    const auto b = static_cast<std::size_t>(buffer);
    const ByteRange* const places = table_.places[b];
    std::vector<transport::Fingerprint>& fingerprints = fingerprints_[b];
    fingerprints.assign(ranks_, fingerprint);
    for (std::size_t r = 0; r < ranks_; ++r) {
      executor::set_count(&fingerprints[r],
                          executor::count_with_element_bytes(call.opaque, places[r].size / element_bytes));
    }
    table_.fingerprints[b] = fingerprints.data();
  }
}

}  // namespace tutti::internal
