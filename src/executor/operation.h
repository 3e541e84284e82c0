// One call, bound to a plan and to data: a few pointers and sizes, no allocation.
//
// Addresses. A chunk begins at buffers[b].base + Layout offset (see schedule/layout.h). The caller therefore shifts the
// base of a buffer that holds only one block: for reduce-scatter and scatter, the output's base is recvbuff - rank *
// block bytes; for all-gather and gather, the input's base is sendbuff - rank * block bytes. Where chunks have a table,
// it holds the offsets; of chunks in memory of their own, the addresses, and the bases are null.
//
// Threads: bound and run by the one thread that runs the communicator's operations.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <vector>

#include "executor/fingerprint.h"
#include "executor/plan.h"
#include "reduction/reduction.h"
#include "reduction/user_operator.h"
#include "schedule/layout.h"
#include "transport/transport.h"

namespace tutti::internal::executor {

// Of a call whose chunks have sizes of their own. All that it refers to outlives the operation.
struct ChunkTable {
  schedule::ChunkPlaces places{};
  // By Buffer, then chunk: what travels with the chunk that is sent from there or received to there. Null: the
  // operation's own.
  std::array<const transport::Fingerprint*, schedule::kBuffers> fingerprints{};
  // By Buffer, then chunk: where the chunk is memory of its own. Null: one buffer holds all.
  std::array<const transport::Source*, schedule::kBuffers> sources{};
  std::size_t largest = 0;  // bytes of the largest chunk, as far as this rank knows. Where a lane has more than one
                            // step, all ranks know all chunks
};

struct LocatedSteps;

struct Operation {
  alignas(32) transport::Fingerprint fingerprint;  // in one cache line: it is copied into every message
  const Plan* plan = nullptr;
  transport::Source buffers[schedule::kBuffers];  // by schedule::Buffer; scratch may be null if unused
  std::size_t block_elements = 0;                 // elements of one block (of the whole vector if one block)
  std::size_t element_bytes = 1;                  // what is never cut
  const reduction::Kernels* kernels = nullptr;    // null where nothing is reduced, or by `user`
  std::size_t divisor = 0;                        // of an average; 0: none
  std::size_t bytes = 0;                          // of the whole vector
  transport::Reading reading{};                   // of what it sends, if that is more than the plan says
  const ChunkTable* table = nullptr;              // null: block_elements says where chunks lie
  const reduction::UserOperator* user = nullptr;  // what combines instead of kernels
  int datatype = 0;                               // as `user` is told
  bool odd_elements = false;                      // element_bytes is no power of two; only where `user` combines
  const LocatedSteps* located = nullptr;          // CpuExecutor::locate() of this very object; null: the executor
                                                  // locates them each time

  [[nodiscard]] bool in_place() const {
    if (table != nullptr && (table->sources[0] != nullptr || table->sources[1] != nullptr)) return false;
    return buffers[static_cast<std::size_t>(schedule::Buffer::kInput)].base ==
           buffers[static_cast<std::size_t>(schedule::Buffer::kOutput)].base;
  }
  [[nodiscard]] bool combines() const { return kernels != nullptr || user != nullptr; }

  // The whole elements among `size` bytes, in bytes and in number. These are on every path, and seldom divide.
  [[nodiscard]] std::size_t whole(std::size_t size) const {
    if (odd_elements) [[unlikely]]
      return size - size % element_bytes;
    return size & ~(element_bytes - 1);
  }
  // At least one.
  [[nodiscard]] std::size_t whole_piece(std::size_t size) const { return whole(std::max(size, element_bytes)); }
  // REQUIRES: kernels combine.
  [[nodiscard]] std::size_t elements(std::size_t size) const {
    return size >> static_cast<unsigned>(std::countr_zero(element_bytes));
  }
};

// Where a step's bytes lie in its two buffers.
struct StepOffsets {
  std::size_t source = 0;  // as the target's where a step has no source, and so the other way round
  std::size_t target = 0;  // the operand's too
  [[nodiscard]] StepOffsets after(std::size_t bytes) const { return {source + bytes, target + bytes}; }
};

// A step of the in-order program and where its bytes lie in the operation's buffers, which may be others by the time
// that it runs.
struct LocatedStep {
  transport::SendLane* send = nullptr;        // if it sends
  transport::RecvLane* recv = nullptr;        // if it receives; local steps do neither
  const transport::Source* source = nullptr;  // if it sends or combines
  const transport::Source* target = nullptr;  // if it receives
  StepOffsets at;
  std::size_t bytes = 0;     // not 0
  std::size_t elements = 0;  // of a combination by kernels
  bool combines = false;     // what it receives with the source
  bool divides = false;      // after that
  const InOrderStep* step = nullptr;
};

// The in-order program of one operation, steps without bytes left out.
struct LocatedSteps {
  std::vector<LocatedStep> steps;
  // Whether all messages are short ones of lanes that have lines (transport/lines.h), and kernels combine.
  bool all_short = false;
};

}  // namespace tutti::internal::executor
