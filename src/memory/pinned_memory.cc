#include "memory/pinned_memory.h"

#include <algorithm>
#include <bit>

#include "base/first_use.h"
#include "memory/cuda_device.h"
#include "memory/region.h"

namespace tutti::internal::memory {
namespace {

constexpr std::size_t kLeastBytes = std::size_t{64} << 10;

std::size_t log2_of(std::size_t bytes) {
  return static_cast<std::size_t>(std::bit_width(bytes) - 1);
}

}  // namespace

PinnedMemory& PinnedMemory::instance() {
  static constinit FirstUse<PinnedMemory> pinned;
  return pinned.get([] { return PinnedMemory(); });
}

Result<PinnedMemory::Block> PinnedMemory::take(std::size_t bytes, const CudaDevice& device) {
  if (bytes > SIZE_MAX / 4) return Status::invalid_argument("no memory has this many bytes");
  const std::size_t rounded = std::bit_ceil(std::max(bytes, kLeastBytes));
  {
    const MutexLock lock(mutex_);
    std::vector<Block>& spare = spare_[log2_of(rounded)];
    if (!spare.empty()) {
      const Block block = spare.back();
      spare.pop_back();
      return block;
    }
  }
  auto memory = RegionRegistry::instance().allocate(rounded);
  if (!memory.is_ok()) return memory.status();
  if (Status s = device.pin(*memory, rounded); !s.is_ok()) {
    (void)RegionRegistry::instance().free(*memory);
    return s;
  }
  return Block{static_cast<std::byte*>(*memory), rounded};
}

// If there is no memory for the list entry, the block is lost.
void PinnedMemory::give_back(const Block& block) noexcept {
  if (block.memory == nullptr) return;
  (void)guarded([&] {
    const MutexLock lock(mutex_);
    spare_[log2_of(block.bytes)].push_back(block);
    return Status();
  });
}

}  // namespace tutti::internal::memory
