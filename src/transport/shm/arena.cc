#include "transport/shm/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/memfd.h"
#include "os/numa.h"
#include "transport/shm/fd_message.h"

namespace tutti::internal::transport::shm {
namespace {

// The smallest page size of a system. On arm64 pages may be 16 or 64 KiB.
constexpr std::size_t kPageBytes = 4096;
// The memory that smaller blocks share, as many as fit.
constexpr std::size_t kSlabBytes = 3 * kPageBytes;

// `of` is a power of two.
constexpr std::uint64_t next_multiple(std::uint64_t of, std::uint64_t n) {
  return (n + of - 1) & ~(of - 1);
}

}  // namespace

// Makes, grows and sends memory like an arena does.
Status try_shared_memory() {
  auto fd = make_growing_memfd("tutti-probe");
  if (!fd.is_ok()) return fd.status();
  if (Status s = grow_memfd(*fd, kExtentBytes); !s.is_ok()) return s;
  if (!cannot_shrink(fd->get())) return Status::system("reading the seals of shared memory", errno);
  void* const mapped = ::mmap(nullptr, kExtentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd->get(), 0);
  if (mapped == MAP_FAILED) return map_error("mapping shared memory", errno);
  ::munmap(mapped, kExtentBytes);
  return try_passing(fd->get());
}

Status probe_shared_memory() {
  // Not a guarded static: a forked child would wait for the thread that was initialising it. The result is never freed.
  static std::atomic<const Status*> known{nullptr};
  const Status* found = known.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  Status status = try_shared_memory();
  // A temporary lack of descriptors or memory is not a refusal: a later connection reports it if it persists.
  if (status.is_exhaustion()) return {};
  auto own = std::make_unique<const Status>(std::move(status));
  if (known.compare_exchange_strong(found, own.get())) return *own.release();
  return *found;
}

bool cannot_shrink(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

Result<Arena> Arena::create(std::size_t page_bytes) {
  auto fd = make_growing_memfd("tutti-lanes");
  if (!fd.is_ok()) return fd.status();
  if (page_bytes == 0) page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return Arena(std::move(*fd), page_bytes);
}

Arena::~Arena() {
  for (std::byte* const extent : extents_) ::munmap(extent, kExtentBytes);
}

Result<Arena::Block> Arena::take(std::size_t bytes, std::size_t alignment) {
  bytes = next_multiple(alignment, bytes);
  std::uint64_t offset = next_multiple(alignment, used_);
  if (offset / kExtentBytes != (offset + bytes - 1) / kExtentBytes) {
    offset = (offset / kExtentBytes + 1) * kExtentBytes;
  }
  const std::uint64_t extent = offset / kExtentBytes;
  if (Status s = grow_memfd(fd_, offset + bytes); !s.is_ok()) return s;
  if (extent == extents_.size()) {
    extents_.reserve(extents_.size() + 1);
    void* const p = ::mmap(nullptr, kExtentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(),
                           static_cast<off_t>(extent * kExtentBytes));
    if (p == MAP_FAILED) return map_error("mapping shared memory", errno);
    extents_.push_back(static_cast<std::byte*>(p));
  }
  used_ = offset + bytes;
  return Block{extents_[extent] + offset % kExtentBytes, offset};
}

// Its pages contain only slabs.
void Arena::prefer_own_node(const Block& slab) const {
  const std::size_t before = slab.offset % page_bytes_;
  prefer_node(slab.memory - before, before + kSlabBytes, node_);
}

Result<Arena::Block> Arena::allocate(std::size_t bytes) {
  std::vector<Block>& free = free_[bytes];
  if (free.empty()) {
    const bool pages = bytes % kPageBytes == 0;
    const std::size_t count = pages ? 1 : kSlabBytes / bytes;
    free.reserve(free.capacity() + count);  // for free()
    // The system changes whole pages only.
    auto taken = pages ? take(bytes, page_bytes_) : take(kSlabBytes, kPageBytes);
    if (!taken.is_ok()) return taken.status();
    if (!pages && node_ >= 0) prefer_own_node(*taken);
    for (std::size_t i = count; i-- > 0;) {
      const std::size_t at = (i + number_) % count * bytes;
      free.push_back({taken->memory + at, taken->offset + at});
    }
  }
  const Block block = free.back();
  free.pop_back();
  // If a peer touched the memory first, the system would allocate its page on the peer's NUMA node.
  if (bytes % kPageBytes != 0) std::memset(block.memory, 0, bytes);
  return block;
}

void Arena::free(const Block& block, std::size_t bytes) noexcept {
  if (bytes % kPageBytes != 0 || ::madvise(block.memory, bytes, MADV_REMOVE) != 0) {
    std::memset(block.memory, 0, bytes);
  }
  free_[bytes].push_back(block);
}

Result<ArenaView> ArenaView::open(UniqueFd fd) {
  if (!cannot_shrink(fd.get())) return Status::remote("protocol error: the peer's shared memory is not sealed");
  return ArenaView(std::move(fd));
}

ArenaView::~ArenaView() {
  for (const auto& [number, extent] : extents_) ::munmap(const_cast<std::byte*>(extent), kExtentBytes);
}

Result<const std::byte*> ArenaView::at(std::uint64_t offset, std::size_t bytes) {
  const std::uint64_t number = offset / kExtentBytes;
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) return Status::system("inspecting shared memory", errno);
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (offset > size || bytes > size - offset || number != (offset + bytes - 1) / kExtentBytes) {
    return Status::remote("protocol error: a place outside the peer's shared memory");
  }
  auto at = extents_.find(number);
  if (at == extents_.end()) {
    // This process does not write there. But a processor gets lines sooner from a page that it may write: all-reduce of
    // two processes 0.9 of the time at 8 bytes, 0.86 at 1 KiB.
    void* const p = ::mmap(nullptr, kExtentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(),
                           static_cast<off_t>(number * kExtentBytes));
    if (p == MAP_FAILED) return map_error("mapping the peer's shared memory", errno);
    at = extents_.emplace(number, static_cast<const std::byte*>(p)).first;
  }
  return at->second + offset % kExtentBytes;
}

}  // namespace tutti::internal::transport::shm
