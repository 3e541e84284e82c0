// One call, bound to a plan and to data: a few pointers and sizes, no allocation.
//
// Addresses. A chunk begins at buffers[b].base + Layout offset (see schedule/layout.h). The caller therefore shifts the
// base of a buffer that contains only one block: for reduce-scatter and scatter, the output's base is recvbuff - rank *
// block bytes; for all-gather and gather, the input's base is sendbuff - rank * block bytes. If there is a chunk table,
// it has the offsets; for chunks in separate memory it has the addresses, and the bases are null.
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

// For a call whose chunks have different sizes. All that it refers to outlives the operation.
struct ChunkTable {
  schedule::ChunkPlaces places{};
  // By Buffer, then chunk: the fingerprint of a chunk that is sent from or received into that buffer. Null: the
  // operation's.
  std::array<const transport::Fingerprint*, schedule::kBuffers> fingerprints{};
  // By Buffer, then chunk: the separate memory of the chunk. Null: one buffer contains all.
  std::array<const transport::Source*, schedule::kBuffers> sources{};
  std::size_t largest = 0;  // bytes of the largest chunk that this rank knows. If a lane has more than one step, all
                            // ranks know all chunks
};

struct LocatedSteps;

struct Operation {
  alignas(32) transport::Fingerprint fingerprint;  // in one cache line: it is copied into every message
  const Plan* plan = nullptr;
  transport::Source buffers[schedule::kBuffers];  // by schedule::Buffer; scratch may be null if unused
  std::size_t block_elements = 0;                 // elements of one block (of the whole vector if one block)
  std::size_t element_bytes = 1;                  // unit that is never cut
  const reduction::Kernels* kernels = nullptr;    // null if no kernels reduce: nothing does, or `user`
  std::size_t divisor = 0;                        // for an average; 0: none
  std::size_t bytes = 0;                          // of the whole vector
  transport::Reading reading{};                   // for its sends, if the plan does not allow reading already
  const ChunkTable* table = nullptr;              // null: block_elements determines the chunks' positions
  const reduction::UserOperator* user = nullptr;  // combines instead of kernels
  int datatype = 0;                               // the datatype that `user` receives
  bool odd_elements = false;                      // element_bytes is not a power of two; only if `user` combines
  const LocatedSteps* located = nullptr;          // CpuExecutor::locate() of this object; null: the executor locates
                                                  // the steps each time

  [[nodiscard]] bool in_place() const {
    if (table != nullptr && (table->sources[0] != nullptr || table->sources[1] != nullptr)) return false;
    return buffers[static_cast<std::size_t>(schedule::Buffer::kInput)].base ==
           buffers[static_cast<std::size_t>(schedule::Buffer::kOutput)].base;
  }
  [[nodiscard]] bool combines() const { return kernels != nullptr || user != nullptr; }

  // The whole elements in `size` bytes, in bytes and as a number. Every path uses these, so they rarely divide.
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

// The offsets of a step's bytes in its two buffers.
struct StepOffsets {
  std::size_t source = 0;  // equals `target` if the step has no source, and the other way round
  std::size_t target = 0;  // of the target, also of the operand
  [[nodiscard]] StepOffsets after(std::size_t bytes) const { return {source + bytes, target + bytes}; }
};

// A step of the in-order program with the position of its bytes in the operation's buffers. The buffers may change
// before it runs.
struct LocatedStep {
  transport::SendLane* send = nullptr;        // if it sends
  transport::RecvLane* recv = nullptr;        // if it receives; local steps do neither
  const transport::Source* source = nullptr;  // if it sends or combines
  const transport::Source* target = nullptr;  // if it receives
  StepOffsets at;
  std::size_t bytes = 0;     // not 0
  std::size_t elements = 0;  // of a combination by kernels
  bool combines = false;     // combines the received data with the source
  bool divides = false;      // divides after that
  const InOrderStep* step = nullptr;
};

// The in-order program of one operation, without steps of no bytes.
struct LocatedSteps {
  std::vector<LocatedStep> steps;
  // Whether all messages are short, all lanes have lines (transport/lines.h), and kernels combine.
  bool all_short = false;
};

}  // namespace tutti::internal::executor
