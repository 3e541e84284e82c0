#include "memory/region.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "base/first_use.h"
#include "base/log.h"
#include "base/memfd.h"

namespace tutti::internal::memory {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kEntries = 16;  // of the first table

// No warning: if a job needs such memory, it logs a warning when it joins.
void note(const Status& refused) {
  static std::atomic<bool> noted{false};
  if (noted.exchange(true)) return;
  log::info(
      fmt::format("tuttiMemAlloc returns memory that peers cannot map, because the system refuses shared memory: {}. "
                  "Messages from it are copied as from other memory",
                  refused.message()));
}

// Not when it is first used: a child that another thread forks just then could not use it.
[[maybe_unused]] const RegionRegistry& registry_made_at_load = RegionRegistry::instance();

}  // namespace

RegionRegistry& RegionRegistry::instance() {
  // Never destroyed: user code may free memory during static destruction.
  static constinit FirstUse<RegionRegistry, Surplus::kKept> registry;
  return registry.get([] { return RegionRegistry(); });
}

Result<void*> RegionRegistry::allocate(std::size_t bytes) {
  if (bytes > SIZE_MAX / 2)
    return Status::invalid_argument(
        fmt::format("cannot allocate {} bytes: an object has at most {}", bytes, SIZE_MAX / 2));
  const std::size_t rounded = (bytes + kPage - 1) / kPage * kPage;
  auto made = make_memfd("tutti-memory", rounded);
  // A temporary lack of descriptors or memory is not a refusal.
  if (!made.is_ok() && made.status().is_exhaustion()) return made.status();
  if (!made.is_ok()) note(made.status());
  UniqueFd fd = made.is_ok() ? std::move(*made) : UniqueFd();
  const int kind = fd.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* p = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, kind, fd.get(), 0);
  if (p == MAP_FAILED) return map_error("mapping memory", errno);
  // Fewer page faults and TLB misses if the system allows huge pages for shared memory.
  (void)::madvise(p, rounded, MADV_HUGEPAGE);
  const MutexLock lock(mutex_);
  const Status kept = guarded([&] {
    mutex_.assert_held();
    prepare();
    regions_.emplace(static_cast<const std::byte*>(p), Region{next_id_++, rounded, std::move(fd)});
    return Status();
  });
  if (!kept.is_ok()) {
    ::munmap(p, rounded);
    return kept;
  }
  publish();
  return p;
}

Status RegionRegistry::free(void* address) {
  std::size_t bytes = 0;
  {
    const MutexLock lock(mutex_);
    const auto it = regions_.find(static_cast<const std::byte*>(address));
    if (it == regions_.end()) return Status::invalid_argument("the address was not returned by tuttiMemAlloc");
    bytes = it->second.bytes;
    regions_.erase(it);
    publish();
    generation_.fetch_add(1, std::memory_order_acq_rel);
  }
  ::munmap(address, bytes);
  return {};
}

void RegionRegistry::prepare() {
  Table& table = tables_[(version_.load(std::memory_order_relaxed) + 1) % 2];
  const std::size_t needed = regions_.size() + 1;
  if (!table.storage.empty() && table.storage.back().size() >= needed) return;
  table.storage.emplace_back(std::max(kEntries, 2 * needed));
}

void RegionRegistry::publish() {
  const std::uint64_t next = version_.load(std::memory_order_relaxed) + 1;
  // After a free() it has room, because its last contents differ by at most one region from the previous regions_.
  Table& table = tables_[next % 2];
  // A thread that reads the following stores also sees that version_ has changed.
  std::atomic_thread_fence(std::memory_order_release);
  std::size_t shared = 0;
  if (!table.storage.empty()) {
    RegionRange* entry = table.storage.back().data();
    // Release: a thread that reads this pointer sees the entries, even if it has read an older count.
    table.entries.store(entry, std::memory_order_release);
    for (const auto& [base, region] : regions_) {
      if (!region.fd.valid()) continue;
      entry->base.store(base, std::memory_order_relaxed);
      entry->bytes.store(region.bytes, std::memory_order_relaxed);
      entry->id.store(region.id, std::memory_order_relaxed);
      ++entry;
      ++shared;
    }
  }
  table.count.store(shared, std::memory_order_release);
  version_.store(next, std::memory_order_release);
}

RegionRegistry::Location RegionRegistry::search(const Table& table, const std::byte* address, std::size_t bytes) {
  // Reads in this order, and publish() writes in the reverse order: tables only grow, so `end` is within a table that
  // is read later.
  std::size_t end = table.count.load(std::memory_order_acquire);
  const RegionRange* const entries = table.entries.load(std::memory_order_acquire);
  std::size_t begin = 0;
  // The last region that does not begin after the address.
  while (begin != end) {
    const std::size_t middle = begin + (end - begin) / 2;
    if (std::less_equal<>()(entries[middle].base.load(std::memory_order_relaxed), address)) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  if (begin == 0) return {};
  const RegionRange& entry = entries[begin - 1];
  const auto offset = static_cast<std::size_t>(address - entry.base.load(std::memory_order_relaxed));
  const std::size_t size = entry.bytes.load(std::memory_order_relaxed);
  if (offset > size || bytes > size - offset) return {};
  return {entry.id.load(std::memory_order_relaxed), offset};
}

RegionRegistry::Location RegionRegistry::find(const void* address, std::size_t bytes) const {
  for (;;) {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    const Location location = search(tables_[version % 2], static_cast<const std::byte*>(address), bytes);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (version_.load(std::memory_order_relaxed) == version) [[likely]]
      return location;
  }
}

UniqueFd RegionRegistry::duplicate_fd(std::uint64_t region, std::size_t* bytes) const {
  const MutexLock lock(mutex_);
  for (const auto& [base, r] : regions_) {
    if (r.id != region) continue;
    *bytes = r.bytes;
    return UniqueFd(::fcntl(r.fd.get(), F_DUPFD_CLOEXEC, 0));
  }
  return {};
}

bool RegionRegistry::exists(std::uint64_t region) const {
  const MutexLock lock(mutex_);
  return std::any_of(regions_.begin(), regions_.end(), [&](const auto& entry) { return entry.second.id == region; });
}

}  // namespace tutti::internal::memory
