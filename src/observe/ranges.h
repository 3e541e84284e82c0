// Ranges of NVTX (NVIDIA Tools Extension) for the operations, in the domain "tutti", if a tool such as Nsight Systems
// is attached to the process. The tool starts the process with NVTX_INJECTION64_PATH. A library that was built without
// the headers of NVTX 3 has no ranges.
#pragma once

#include <cstdint>

namespace tutti::internal::observe {

// Threads: any.
class Ranges {
 public:
  // Null: no tool is attached. The process decides this once, in the first call.
  static const Ranges* attached();
  virtual ~Ranges() = default;

  // kind: as in measures.h. The range may end in another thread.
  [[nodiscard]] virtual std::uint64_t begin(int kind, std::uint64_t bytes) const = 0;
  virtual void end(std::uint64_t range) const = 0;
};

}  // namespace tutti::internal::observe
