#include "transport/shm/pair_regions.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/memfd.h"
#include "memory/region.h"
#include "transport/shm/arena.h"

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

void PairRegions::forget_freed() {
  for (auto it = announced_.begin(); it != announced_.end();) {
    if (RegionRegistry::instance().exists(*it)) {
      ++it;
      continue;
    }
    channel_.send({PairMessageKind::kForget, Turns::kNone, *it, 0});
    it = announced_.erase(it);
  }
}

bool PairRegions::announce(std::uint64_t region) {
  if (announced_.contains(region)) return true;
  std::size_t bytes = 0;
  const UniqueFd fd = RegionRegistry::instance().duplicate_fd(region, &bytes);
  channel_.send_rest();
  if (!fd.valid() || !channel_.all_sent() ||
      !channel_.try_send({PairMessageKind::kAnnounce, Turns::kNone, region, bytes}, fd.get()))
    return false;
  announced_.insert(region);
  return true;
}

Status PairRegions::apply(const PairMessage& message, UniqueFd fd) {
  if (message.kind == PairMessageKind::kForget) {
    mapped_.erase(message.number);
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

std::shared_ptr<const MappedRegion> PairRegions::find(std::uint64_t number) const {
  const auto at = mapped_.find(number);
  return at == mapped_.end() ? nullptr : at->second;
}

}  // namespace tutti::internal::transport::shm
