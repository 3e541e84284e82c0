// Runs a plan on data. An Operation is one call, bound: a few pointers and sizes, no allocation.
//
// Addresses. A chunk's place is buffers[b].base + Layout offset, in one coordinate for all buffers (see
// schedule/layout.h). The caller therefore shifts the base of a buffer that holds only one block: for
// reduce-scatter, the output's base is recvbuff - rank * block bytes; for all-gather, the input's base
// is sendbuff - rank * block bytes.
#pragma once

#include <bit>
#include <cstddef>

#include "base/status.h"
#include "executor/fingerprint.h"
#include "executor/plan.h"
#include "executor/waiter.h"
#include "reduction/reduction.h"
#include "schedule/layout.h"
#include "transport/transport.h"

namespace tutti::internal::executor {

struct Operation {
  alignas(32) transport::Fingerprint print;  // in one cache line: it is copied into every message
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

// One per communicator and memory domain. run() is called by one thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;
  // Returns when this rank's part is complete and its buffers are free. After an error the links hold
  // half-finished streams: the communicator is failed.
  virtual Status run(const Operation& operation) = 0;
  // Whether run() has failed with a kMismatch that does not say what the peer calls differently.
  [[nodiscard]] bool unexplained() const { return unexplained_; }

 protected:
  bool unexplained_ = false;
};

// For host memory: the calling thread moves and combines the bytes. `waiter` outlives it.
std::unique_ptr<Executor> make_cpu_executor(Waiter& waiter);

}  // namespace tutti::internal::executor
