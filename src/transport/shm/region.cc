#include "transport/shm/region.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

namespace tutti::transport::shm {
namespace {

constexpr std::size_t kPage = 4096;

// Not when it is first used, as another thread may fork just then.
[[maybe_unused]] const RegionRegistry& made_at_load = RegionRegistry::instance();

}  // namespace

RegionRegistry& RegionRegistry::instance() {
  // Never destroyed: user code may free memory during static destruction.
  static auto* registry = new RegionRegistry;
  return *registry;
}

Result<void*> RegionRegistry::allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2) return Status::invalid_argument("an allocation of " + std::to_string(bytes) + " bytes");
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  UniqueFd fd(::memfd_create("tutti-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::system("memfd_create", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(rounded)) != 0) return Status::system("sizing shared memory", errno);
  // Peers map it; a later shrink would kill them with SIGBUS.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Status::system("sealing shared memory", errno);
  }
  void* p = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) return Status::system("mapping shared memory", errno);
  // Fewer page faults and TLB misses where the system allows huge pages for shared memory.
  (void)::madvise(p, rounded, MADV_HUGEPAGE);
  const std::unique_lock lock(mutex_);
  const Status kept = guarded([&] {
    regions_.emplace(static_cast<const std::byte*>(p), Region{next_id_++, rounded, std::move(fd)});
    return Status();
  });
  if (!kept.is_ok()) {
    ::munmap(p, rounded);
    return kept;
  }
  count_.store(regions_.size(), std::memory_order_release);
  return p;
}

Status RegionRegistry::free(void* address) {
  std::size_t bytes = 0;
  {
    const std::unique_lock lock(mutex_);
    const auto it = regions_.find(static_cast<const std::byte*>(address));
    if (it == regions_.end()) return Status::invalid_argument("the address was not returned by tuttiMemAlloc");
    bytes = it->second.bytes;
    regions_.erase(it);
    count_.store(regions_.size(), std::memory_order_release);
    generation_.fetch_add(1, std::memory_order_acq_rel);
  }
  ::munmap(address, bytes);
  return {};
}

RegionRegistry::Place RegionRegistry::find(const void* address, std::size_t bytes) const {
  if (count_.load(std::memory_order_acquire) == 0) return {};
  const auto* p = static_cast<const std::byte*>(address);
  const std::shared_lock lock(mutex_);
  auto it = regions_.upper_bound(p);
  if (it == regions_.begin()) return {};
  --it;
  const auto offset = static_cast<std::size_t>(p - it->first);
  if (offset > it->second.bytes || bytes > it->second.bytes - offset) return {};
  return {it->second.id, offset};
}

UniqueFd RegionRegistry::duplicate_fd(std::uint64_t region, std::size_t* bytes) const {
  const std::shared_lock lock(mutex_);
  for (const auto& [base, r] : regions_) {
    if (r.id != region) continue;
    *bytes = r.bytes;
    return UniqueFd(::fcntl(r.fd.get(), F_DUPFD_CLOEXEC, 0));
  }
  return {};
}

bool RegionRegistry::exists(std::uint64_t region) const {
  const std::shared_lock lock(mutex_);
  return std::any_of(regions_.begin(), regions_.end(), [&](const auto& entry) { return entry.second.id == region; });
}

}  // namespace tutti::transport::shm
