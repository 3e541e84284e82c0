// One collective call, and how it becomes an operation of the executor.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/copy.h"
#include "base/types.h"
#include "calls/operators.h"
#include "calls/varying.h"
#include "executor/operation.h"
#include "memory/region.h"
#include "reduction/reduction.h"

namespace tutti::internal {

// The caller (api/) has checked the arguments. Buffers are as in the C API.
struct Call {
  Collective collective = Collective::kBarrier;
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  const VaryingCounts* varying = nullptr;  // for different counts of blocks; `count` is then this rank's
  const CustomOperator* custom = nullptr;  // the operator, if it is user-defined
  Opaque opaque{};                         // the datatype, if it is user-defined
  std::size_t whole_count = 0;             // of the call that this is a part of, if it is one; ranks compare it
  bool barrier_only = false;               // a barrier that only compares the call; the data takes another path
};

inline std::size_t element_bytes_of(const Call& call) {
  return size_of(call.type, call.opaque);
}

// The order in which operands must be combined.
inline schedule::Order order_of(const Call& call) {
  return call.op == ReduceOp::kUserOrdered ? schedule::Order::kRanks : schedule::Order::kAny;
}

// The resources with which a call runs.
struct Setting {
  std::size_t rank = 0;
  std::size_t ranks = 1;
  const void* scratch = nullptr;  // scratch_bytes() bytes, if the plan uses scratch
};

// Zero copy never sends smaller buffers, so their region is not looked up.
inline constexpr std::size_t kLookUpBytes = 4096;

// A caller's buffer as the executor addresses it. `shift_bytes`: offset of the buffer in the vector (see
// executor/operation.h).
inline transport::Source bind_buffer(const void* base, std::size_t bytes, std::size_t shift_bytes) {
  transport::Source source;
  source.base = reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(base) - shift_bytes);
  source.size = shift_bytes + bytes;
  source.begin = shift_bytes;
  if (bytes >= kLookUpBytes) {
    const memory::RegionRegistry::Location location = memory::RegionRegistry::instance().find(base, bytes);
    source.region = location.region;
    source.region_offset = location.offset - shift_bytes;  // may wrap: see Source
  }
  return source;
}

// Scratch is divided like the blocks of the vector.
inline std::size_t scratch_bytes(const Call& call, const executor::Plan& plan) {
  const std::size_t parts = plan.schedule.shape.chunks_per_block();
  return (plan.schedule.scratch_chunks + parts - 1) / parts * call.count * element_bytes_of(call);
}

inline std::size_t scratch_bytes(const VaryingBlocks& blocks, const executor::Plan& plan) {
  return plan.schedule.scratch_chunks > 0 ? blocks.extent(schedule::Buffer::kInput) : 0;
}

// Whether no rank has anything to move.
inline bool is_empty(const Call& call) {
  return call.count == 0 && call.varying == nullptr && has_data(call.collective);
}

// Whether the input must be copied first: the call is in place and its schedules do not support that, or the input is
// multiplied before it is added.
inline bool needs_copy(const Call& call) {
  return (call.send == call.recv && !input_is_output(call.collective)) || call.op == ReduceOp::kPreMulSum;
}
// Makes that copy. `bytes`: of the whole vector.
inline void copy_input(const Call& call, std::byte* target, std::size_t bytes) {
  const auto* const source = static_cast<const std::byte*>(call.send);
  if (call.op != ReduceOp::kPreMulSum) return copy_bytes(target, source, bytes);
  reduction::scale(call.type, target, source, call.custom->factor(), bytes / size_of(call.type));
}

inline const reduction::Kernels* kernels_of(const Call& call) {
  if (!combines(call.collective)) return nullptr;
  if (call.op == ReduceOp::kUser || call.op == ReduceOp::kUserOrdered) return nullptr;
  const ReduceOp op = call.op == ReduceOp::kPreMulSum ? ReduceOp::kSum : call.op;
  return &reduction::kernels(call.type, op);
}

inline const reduction::UserOperator* user_of(const Call& call) {
  return call.custom != nullptr ? call.custom->user.get() : nullptr;
}
inline int datatype_of(const Call& call) {
  return call.type == DataType::kOpaque ? call.opaque.handle : public_value(call.type);
}
// The size of the unit that the executor must not cut. Opaque elements that are only moved may be cut anywhere.
inline std::size_t uncut_bytes_of(const Call& call) {
  return call.type == DataType::kOpaque && !combines(call.collective) ? 1 : element_bytes_of(call);
}
inline std::size_t divisor_of(const Call& call, const Setting& setting) {
  return combines(call.collective) && call.op == ReduceOp::kAvg ? setting.ranks : 0;
}

// Sets every field, so that an earlier call has no influence on this one. `bytes`: of the whole vector.
inline executor::Operation bind_call(const Call& call, const executor::Plan& plan,
                                     const transport::Fingerprint& fingerprint, std::size_t bytes,
                                     const Setting& setting) {
  const std::size_t element_bytes = uncut_bytes_of(call);
  const std::size_t block_bytes = call.count * element_bytes_of(call);
  const std::size_t own_block = setting.rank * block_bytes;
  const bool gathers = gives_own_block(call.collective);
  const bool scatters = gets_own_block(call.collective);
  static_assert(static_cast<int>(schedule::Buffer::kInput) == 0 && static_cast<int>(schedule::Buffer::kOutput) == 1 &&
                static_cast<int>(schedule::Buffer::kScratch) == 2 && schedule::kBuffers == 3);
  return {.fingerprint = fingerprint,
          .plan = &plan,
          .buffers = {bind_buffer(call.send, gathers ? block_bytes : bytes, gathers ? own_block : 0),
                      bind_buffer(call.recv, scatters ? block_bytes : bytes, scatters ? own_block : 0),
                      plan.schedule.scratch_chunks > 0 ? bind_buffer(setting.scratch, scratch_bytes(call, plan), 0)
                                                       : transport::Source{}},
          .block_elements = element_bytes == 1 ? block_bytes : call.count,
          .element_bytes = element_bytes,
          .kernels = kernels_of(call),
          .divisor = divisor_of(call, setting),
          .bytes = bytes,
          .table = nullptr,
          .user = user_of(call),
          .datatype = datatype_of(call),
          .odd_elements = !std::has_single_bit(element_bytes)};
}

// The same for a call whose blocks have different counts. `blocks` has their positions and must outlive the operation.
inline executor::Operation bind_call(const Call& call, const executor::Plan& plan,
                                     const transport::Fingerprint& fingerprint, VaryingBlocks& blocks,
                                     const Setting& setting) {
  using schedule::Buffer;
  const std::size_t element_bytes = uncut_bytes_of(call);
  if (!counts_are_common(call.collective)) blocks.tell_counts(fingerprint, call);
  const auto bind = [&](const void* base, Buffer buffer, bool holds_own_block) {
    const schedule::ByteRange& own = blocks.own(buffer);
    return holds_own_block ? bind_buffer(base, own.size, own.begin) : bind_buffer(base, blocks.extent(buffer), 0);
  };
  return {.fingerprint = fingerprint,
          .plan = &plan,
          .buffers = {bind(call.send, Buffer::kInput, gives_own_block(call.collective)),
                      bind(call.recv, Buffer::kOutput, gets_own_block(call.collective)),
                      bind_buffer(setting.scratch, scratch_bytes(blocks, plan), 0)},
          .block_elements = 0,
          .element_bytes = element_bytes,
          .kernels = kernels_of(call),
          .divisor = divisor_of(call, setting),
          .bytes = blocks.bytes(),
          .table = &blocks.table(),
          .user = user_of(call),
          .datatype = datatype_of(call),
          .odd_elements = !std::has_single_bit(element_bytes)};
}

}  // namespace tutti::internal
