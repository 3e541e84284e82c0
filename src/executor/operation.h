// One call, bound to a plan and to data: a few pointers and sizes, no allocation.
//
// Addresses. A chunk begins at buffers[b].base + Layout offset (see schedule/layout.h). The caller therefore shifts the
// base of a buffer that holds only one block: for reduce-scatter and scatter, the output's base is recvbuff - rank *
// block bytes; for all-gather and gather, the input's base is sendbuff - rank * block bytes.
//
// Threads: bound and run by the one thread that runs the communicator's operations.
#pragma once

#include <bit>
#include <cstddef>

#include "executor/fingerprint.h"
#include "executor/plan.h"
#include "reduction/reduction.h"
#include "schedule/layout.h"
#include "transport/transport.h"

namespace tutti::internal::executor {

struct Operation {
  alignas(32) transport::Fingerprint fingerprint;  // in one cache line: it is copied into every message
  const Plan* plan = nullptr;
  transport::Source buffers[schedule::kBuffers];  // by schedule::Buffer; scratch may be null if unused
  std::size_t block_elements = 0;                 // elements of one block (of the whole vector if one block)
  std::size_t element_bytes = 1;                  // a power of two
  const reduction::Kernels* kernels = nullptr;    // null where nothing is reduced
  std::size_t divisor = 0;                        // of an average; 0: none

  // Of the whole vector.
  [[nodiscard]] std::size_t bytes() const { return block_elements * element_bytes * plan->schedule.shape.blocks; }
  // The whole elements among `bytes`, in bytes and in number. No division: these are on every path.
  [[nodiscard]] std::size_t whole(std::size_t bytes) const { return bytes & ~(element_bytes - 1); }
  [[nodiscard]] std::size_t elements(std::size_t bytes) const {
    return bytes >> static_cast<unsigned>(std::countr_zero(element_bytes));
  }
};

}  // namespace tutti::internal::executor
