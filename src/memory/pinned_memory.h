// Page-locked memory of the host, which CUDA devices copy to and from by themselves. Process-wide.
//
// It is of regions (region.h), so that peers on this machine can read it in place. It is never unlocked: the driver
// waits for all of a device's streams before it does that, and streams may wait for what only a later call brings. So a
// block that is given back serves others.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "base/status.h"
#include "os/mutex.h"

namespace tutti::internal::memory {

class CudaDevice;

class PinnedMemory {
 public:
  struct Block {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };

  static PinnedMemory& instance();

  // At least so many bytes: a power of two. `device`: any, as all can reach it. Any thread.
  Result<Block> take(std::size_t bytes, const CudaDevice& device);
  // What no device copies to or from any more. Any thread.
  void give_back(const Block& block) noexcept;

 private:
  Mutex mutex_;
  std::array<std::vector<Block>, 64> spare_ TUTTI_GUARDED_BY(mutex_);  // by the logarithm of their bytes
};

}  // namespace tutti::internal::memory
