#include "transport/verbs/device_memory.h"

#include <fmt/core.h>

#include <cerrno>
#include <utility>

#include "os/unique_fd.h"

namespace tutti::internal::transport::verbs {
namespace {

// A registration keeps freed memory alive, so freed memory is searched for at this interval.
constexpr std::uint64_t kSweepOperations = 64;

}  // namespace

DeviceMemory::DeviceMemory(const Library& library, memory::CudaExport exports, std::vector<ibv_pd*> domains)
    : library_(library), exports_(exports), domains_(std::move(domains)) {}

void DeviceMemory::begin_operation() {
  if (++operation_ % kSweepOperations != 0) return;
  for (auto allocation = allocations_.begin(); allocation != allocations_.end();) {
    std::uint64_t id = 0;
    const bool same = exports_.id_of(allocation->first, &id).is_ok() && id == allocation->second.memory.id;
    allocation = same ? std::next(allocation) : allocations_.erase(allocation);
  }
}

Status DeviceMemory::find(const std::byte* begin, std::size_t bytes, const memory::RdmaKeys** keys) {
  *keys = nullptr;
  const auto address = reinterpret_cast<std::uint64_t>(begin);
  std::uint64_t id = 0;
  if (Status s = exports_.id_of(address, &id); !s.is_ok()) return s;
  auto at = allocations_.upper_bound(address);
  if (at != allocations_.begin()) --at;
  const bool known = at != allocations_.end() && at->first <= address &&
                     address - at->first < at->second.memory.bytes && at->second.memory.id == id;
  if (!known) {
    if (Status s = guarded([&] { return enter(address, &at); }); !s.is_ok()) return s;
  }
  const Allocation& allocation = at->second;
  if (!allocation.why_not.is_ok()) return allocation.why_not;
  if (bytes > allocation.memory.bytes - (address - at->first)) {
    return Status(Code::kUnhandledCudaError,
                  fmt::format("device memory of {} bytes does not lie in one allocation", bytes));
  }
  *keys = &allocation.keys;
  return {};
}

// Finds out which allocation an address lies in, and registers it in the place of those that were there before.
Status DeviceMemory::enter(std::uint64_t address, Allocations::iterator* entered) {
  Allocation made;
  if (Status s = exports_.find(address, &made.memory); !s.is_ok()) return s;
  const std::uint64_t begin = made.memory.begin;
  auto old = allocations_.upper_bound(begin);
  if (old != allocations_.begin() && std::prev(old)->first + std::prev(old)->second.memory.bytes > begin) --old;
  while (old != allocations_.end() && old->first < begin + made.memory.bytes) old = allocations_.erase(old);
  made.why_not = exports_.exportable(made.memory);
  if (made.why_not.is_ok()) made.why_not = export_and_map(&made);
  *entered = allocations_.emplace(begin, std::move(made)).first;
  return {};
}

Status DeviceMemory::export_and_map(Allocation* allocation) const {
  if (library_.reg_dmabuf_mr == nullptr) {
    return Status(Code::kSystemError, "GPUDirect needs ibv_reg_dmabuf_mr: rdma-core 34 or later");
  }
  const memory::CudaAllocation& memory = allocation->memory;
  // The registrations keep the buffer when the descriptor is closed.
  UniqueFd buffer;
  std::uint64_t offset = 0;
  if (Status s = exports_.export_dmabuf(memory, &buffer, &offset); !s.is_ok()) return s;
  for (std::size_t rail = 0; rail < domains_.size() && rail < kMaxRails; ++rail) {
    ibv_mr* const region = library_.reg_dmabuf_mr(domains_[rail], offset, memory.bytes, memory.begin, buffer.get(),
                                                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (region == nullptr) {
      const int error = errno;
      allocation->regions.clear();
      return Status::system(fmt::format("RDMA device {} cannot map a GPU's memory (ibv_reg_dmabuf_mr)", rail), error);
    }
    allocation->regions.emplace_back(region, library_.dereg_mr);
    allocation->keys.lkeys[rail] = region->lkey;
    allocation->keys.rkeys[rail] = region->rkey;
  }
  return {};
}

std::size_t DeviceMemory::registered() const {
  std::size_t count = 0;
  for (const auto& [begin, allocation] : allocations_) count += allocation.why_not.is_ok() ? 1 : 0;
  return count;
}

}  // namespace tutti::internal::transport::verbs
