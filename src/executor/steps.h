// How a step of an operation handles bytes: their position, and how they are combined, stored and copied.
//
// Threads: the one that runs the operation.
#pragma once

#include <cstddef>

#include "base/copy.h"
#include "base/status.h"
#include "executor/operation.h"

namespace tutti::internal::executor {

struct StepBytes {
  StepOffsets at;
  std::size_t size = 0;
};

// The bytes of a step, for a whole operation or for a slice of it.
inline StepBytes locate(const schedule::Layout& layout, const schedule::Step& s) {
  const schedule::ByteRange r = layout.bytes(s.target_range());
  const bool elsewhere = s.source_chunk != s.target_chunk;
  return {{elsewhere ? layout.begin(s.source_chunk) : r.begin, r.begin}, r.size};
}
inline StepBytes locate(const schedule::TableLayout& layout, const schedule::Step& s) {
  if (s.kind == schedule::StepKind::kSend) {
    const schedule::ByteRange r = layout.bytes(s.source, s.source_chunk);
    return {{r.begin, r.begin}, r.size};
  }
  const schedule::ByteRange r = layout.bytes(s.target, s.target_chunk);
  const bool has_source = schedule::reads_source(s.kind);
  return {{has_source ? layout.bytes(s.source, s.source_chunk).begin : r.begin, r.begin}, r.size};
}

// The memory of a chunk as the transport gets it.
inline const transport::Source& source_of(const Operation& op, schedule::Buffer buffer, std::uint32_t chunk) {
  const auto b = static_cast<std::size_t>(buffer);
  if (op.table == nullptr || op.table->sources[b] == nullptr) [[likely]]
    return op.buffers[b];
  return op.table->sources[b][chunk];
}
// The fingerprint of the data of a step that sends or receives.
inline const transport::Fingerprint& fingerprint_of(const Operation& op, const schedule::Step& s) {
  if (op.table == nullptr) [[likely]]
    return op.fingerprint;
  const bool sends = s.kind == schedule::StepKind::kSend;
  const auto* const of_chunks = op.table->fingerprints[static_cast<std::size_t>(sends ? s.source : s.target)];
  return of_chunks == nullptr ? op.fingerprint : of_chunks[sends ? s.source_chunk : s.target_chunk];
}

inline std::byte* target_at(const Operation& op, const schedule::Step& s, const StepOffsets& at) {
  return const_cast<std::byte*>(op.buffers[static_cast<int>(s.target)].base) + at.target;
}
inline const std::byte* source_at(const Operation& op, const schedule::Step& s, const StepOffsets& at) {
  return op.buffers[static_cast<int>(s.source)].base + at.source;
}
inline const std::byte* operand_at(const Operation& op, const schedule::Step& s, const StepOffsets& at) {
  return op.buffers[static_cast<int>(s.operand)].base + at.target;
}

void combine_by_user(const Operation& op, const schedule::Step& s, std::byte* target, const std::byte* local,
                     const std::byte* received, std::size_t bytes);

// target = local (op) received, or in the reverse order if the step says so; then the division, if this step completes
// an average. The kernels give the same result for both orders.
inline void combine(const Operation& op, const schedule::Step& s, std::byte* target, const std::byte* local,
                    const std::byte* received, std::size_t bytes, bool streaming) {
  if (op.kernels == nullptr) [[unlikely]]
    return combine_by_user(op, s, target, local, received, bytes);
  const std::size_t count = op.elements(bytes);
  if (streaming) {
    op.kernels->combine_streaming(target, local, received, count);
  } else {
    op.kernels->combine(target, local, received, count);
  }
  if (s.final && op.divisor > 1) op.kernels->finish(target, count, op.divisor);
}

// What a receiving step does with the received data.
inline void store(const Operation& op, const schedule::Step& s, const StepOffsets& at, const std::byte* received,
                  std::size_t bytes, bool streaming) {
  std::byte* target = target_at(op, s, at);
  if (s.kind == schedule::StepKind::kRecvReduce) {
    // An average is divided in place right after: then the target should stay in the cache.
    combine(op, s, target, source_at(op, s, at), received, bytes, streaming && op.divisor == 0);
  } else if (target == received) {
    return;  // a direct put: the sender has written it to the target
  } else if (streaming) {
    copy_streaming(target, received, bytes);
  } else {
    copy_bytes(target, received, bytes);
  }
}

void run_local(const Operation& op, const schedule::Step& s, const StepOffsets& at, std::size_t bytes, bool streaming);

// The error if the step's peer sent data that does not belong to this operation. *unexplained: the error does not say
// what the peer calls differently.
Status mismatch_at(const Operation& op, const schedule::Step& step, const transport::Fingerprint& theirs,
                   bool* unexplained);

}  // namespace tutti::internal::executor
