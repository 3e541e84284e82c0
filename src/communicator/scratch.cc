#include "communicator/scratch.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "memory/region.h"
#include "transport/shm/link.h"

namespace tutti::internal {
namespace {

using memory::RegionRegistry;

constexpr std::size_t kLeastBytes = 512;
constexpr std::align_val_t kAlignment{64};

// Longer buffers are in the region registry, so that peers can read them in place; the registry keeps a descriptor for
// each.
bool is_region(std::size_t bytes) {
  return bytes >= transport::shm::kZcopyBytes;
}

}  // namespace

Status Scratch::grow(std::size_t bytes) {
  if (memory_ != nullptr && bytes <= bytes_) return {};
  free();
  const std::size_t grown = std::bit_ceil(std::max(bytes, kLeastBytes));
  if (is_region(grown)) {
    auto memory = RegionRegistry::instance().allocate(grown);
    if (!memory.is_ok()) return memory.status();
    memory_ = static_cast<std::byte*>(*memory);
  } else {
    memory_ = static_cast<std::byte*>(::operator new(grown, kAlignment));
  }
  bytes_ = grown;
  return {};
}

void Scratch::free() {
  std::byte* const memory = std::exchange(memory_, nullptr);
  const std::size_t bytes = std::exchange(bytes_, 0);
  if (memory == nullptr) return;
  if (is_region(bytes)) {
    (void)RegionRegistry::instance().free(memory);
  } else {
    ::operator delete(memory, kAlignment);
  }
}

}  // namespace tutti::internal
