// Regions of the two sides of a pair: see pair.h.
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "base/memfd.h"
#include "memory/region.h"
#include "transport/shm/pair.h"

namespace tutti::internal::transport::shm {

using memory::RegionRegistry;

MappedRegion::~MappedRegion() {
  ::munmap(base_, bytes_);
}

Result<std::byte*> MappedRegion::at(const ZcopyDescriptor& descriptor) const {
  if (descriptor.offset > bytes_ || descriptor.bytes > bytes_ - descriptor.offset) {
    return Status::remote("protocol error: a descriptor of memory outside its region");
  }
  return base_ + descriptor.offset;
}

void Pair::forget_freed() {
  const auto& registry = RegionRegistry::instance();
  const std::uint64_t now = registry.generation();
  if (now == generation_.load(std::memory_order_relaxed)) return;
  generation_.store(now, std::memory_order_relaxed);
  for (auto it = announced_.begin(); it != announced_.end();) {
    if (registry.exists(*it)) {
      ++it;
      continue;
    }
    send_in_order({PairMessageKind::kForget, Turns::kNone, *it, 0});
    it = announced_.erase(it);
  }
}

bool Pair::announce(std::uint64_t region) {
  const MutexLock lock(mutex_);
  forget_freed();
  if (announced_.contains(region)) return true;
  std::size_t bytes = 0;
  const UniqueFd fd = RegionRegistry::instance().duplicate_fd(region, &bytes);
  send_rest();
  if (!fd.valid() || !unsent_.empty() || !send({PairMessageKind::kAnnounce, Turns::kNone, region, bytes}, fd.get()))
    return false;
  announced_.insert(region);
  return true;
}

Status Pair::apply_region(const PairMessage& message, UniqueFd fd) {
  if (message.kind == PairMessageKind::kForget) {
    mapped_.erase(message.number);
    forgotten_.fetch_add(1, std::memory_order_release);
    return {};
  }
  struct stat info {};
  if (message.number == 0 || !fd.valid() || ::fstat(fd.get(), &info) != 0 ||
      static_cast<std::uint64_t>(info.st_size) < message.place || !cannot_shrink(fd.get()) ||
      mapped_.contains(message.number)) {
    return Status::remote("protocol error: an unexpected message about a region");
  }
  void* p = ::mmap(nullptr, message.place, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) return map_error("mapping the peer's memory", errno);
  mapped_[message.number] = std::make_shared<const MappedRegion>(static_cast<std::byte*>(p), message.place);
  return {};
}

Result<std::shared_ptr<const MappedRegion>> Pair::region(std::uint64_t number) {
  const MutexLock lock(mutex_);
  auto at = mapped_.find(number);
  if (at == mapped_.end()) {
    // The region was announced on the socket before the descriptor was published.
    receive_all();
    at = mapped_.find(number);
  }
  if (at != mapped_.end()) return at->second;
  if (!region_failure_.is_ok()) return region_failure_;
  return failure_.is_ok() ? Status::remote("protocol error: a descriptor of a region that was not announced")
                          : failure_;
}

}  // namespace tutti::internal::transport::shm
