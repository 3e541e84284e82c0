// Page-locked memory of the host, which CUDA devices access directly for copies. Process-wide.
//
// It is allocated in regions (region.h), so that peers on this machine can read it in place. It is never unlocked: the
// driver would first wait for all of a device's streams, and streams may wait for a later call. So returned blocks are
// reused.
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

  // At least `bytes` bytes, a power of two. `device`: any, because all can access the memory. Any thread.
  Result<Block> take(std::size_t bytes, const CudaDevice& device);
  // REQUIRES: no device accesses the block any more. Any thread.
  void give_back(const Block& block) noexcept;

 private:
  Mutex mutex_;
  std::array<std::vector<Block>, 64> spare_ TUTTI_GUARDED_BY(mutex_);  // by the logarithm of their bytes
};

}  // namespace tutti::internal::memory
