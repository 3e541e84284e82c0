#include "transport/verbs/device_memory.h"

#include <fmt/core.h>

#include <cerrno>
#include <string>
#include <utility>

#include "memory/memory_monitor.h"
#include "os/unique_fd.h"

namespace tutti::internal::transport::verbs {
namespace {

// What was freed is still held by its registration: so often it is looked for.
constexpr std::uint64_t kSweepOperations = 64;

Status cuda_error(std::string message) {
  return Status(Code::kUnhandledCudaError, std::move(message));
}

}  // namespace

DeviceMemory::DeviceMemory(const Library& library, const memory::CudaDriver& driver, std::vector<ibv_pd*> domains)
    : library_(library), driver_(driver), domains_(std::move(domains)) {}

void DeviceMemory::begin_operation() {
  if (++operation_ % kSweepOperations != 0) return;
  for (auto allocation = allocations_.begin(); allocation != allocations_.end();) {
    std::uint64_t id = 0;
    const bool same = id_of(allocation->first, &id).is_ok() && id == allocation->second.id;
    allocation = same ? std::next(allocation) : allocations_.erase(allocation);
  }
}

Status DeviceMemory::id_of(memory::CudaDriver::Address address, std::uint64_t* id) const {
  return driver_.check(driver_.pointer_attribute(id, memory::CudaDriver::kPointerBufferId, address),
                       "asking for the allocation of device memory");
}

Status DeviceMemory::find(const std::byte* begin, std::size_t bytes, const memory::RdmaKeys** keys) {
  *keys = nullptr;
  const auto address = reinterpret_cast<memory::CudaDriver::Address>(begin);
  std::uint64_t id = 0;
  if (Status s = id_of(address, &id); !s.is_ok()) return s;
  auto at = allocations_.upper_bound(address);
  if (at != allocations_.begin()) --at;
  const bool known =
      at != allocations_.end() && at->first <= address && address - at->first < at->second.bytes && at->second.id == id;
  if (!known) {
    if (Status s = guarded([&] { return enter(address, &at); }); !s.is_ok()) return s;
  }
  const Allocation& allocation = at->second;
  if (!allocation.why_not.is_ok()) return allocation.why_not;
  if (bytes > allocation.bytes - (address - at->first)) {
    return cuda_error(fmt::format("device memory of {} bytes does not lie in one allocation", bytes));
  }
  *keys = &allocation.keys;
  return {};
}

// Finds out which allocation an address lies in, and registers it in the place of those that were there before.
Status DeviceMemory::enter(memory::CudaDriver::Address address, Allocations::iterator* entered) {
  Allocation made;
  memory::CudaDriver::Address base = 0;
  if (Status s = driver_.check(driver_.address_range(&base, &made.bytes, address), "asking for the extent of memory");
      !s.is_ok()) {
    return s;
  }
  if (Status s = id_of(base, &made.id); !s.is_ok()) return s;
  auto old = allocations_.upper_bound(base);
  if (old != allocations_.begin() && std::prev(old)->first + std::prev(old)->second.bytes > base) --old;
  while (old != allocations_.end() && old->first < base + made.bytes) old = allocations_.erase(old);
  made.why_not = exportable(base);
  if (made.why_not.is_ok()) made.why_not = export_and_map(base, &made);
  *entered = allocations_.emplace(base, std::move(made)).first;
  return {};
}

Status DeviceMemory::exportable(memory::CudaDriver::Address address) const {
  unsigned type = 0;
  if (Status s = driver_.check(driver_.pointer_attribute(&type, memory::CudaDriver::kPointerMemoryType, address),
                               "asking for the kind of memory");
      !s.is_ok()) {
    return s;
  }
  unsigned managed = 0;
  (void)driver_.pointer_attribute(&managed, memory::CudaDriver::kPointerIsManaged, address);
  if (type != memory::CudaDriver::kMemoryTypeDevice || managed != 0)
    return cuda_error("it is no memory of a GPU's own");
  if (library_.reg_dmabuf_mr == nullptr) {
    return Status(Code::kSystemError, "GPUDirect needs ibv_reg_dmabuf_mr: rdma-core 34 or later");
  }
  if (driver_.handle_for_range == nullptr)
    return cuda_error("GPUDirect by dmabuf needs the driver of CUDA 11.7 or later");
  int ordinal = 0;
  int device = 0;
  int supported = 0;
  Status s = driver_.check(driver_.pointer_attribute(&ordinal, memory::CudaDriver::kPointerDevice, address),
                           "asking for the GPU");
  if (s.is_ok()) s = driver_.check(driver_.device_get(&device, ordinal), "asking for the GPU");
  if (s.is_ok()) {
    s = driver_.check(driver_.device_attribute(&supported, memory::CudaDriver::kDmabufSupported, device),
                      "asking whether the GPU can export memory");
  }
  if (!s.is_ok()) return s;
  if (supported == 0) {
    return cuda_error(fmt::format(
        "GPU {} cannot export memory as a dmabuf (this needs the open kernel modules of the NVIDIA driver)", ordinal));
  }
  return {};
}

Status DeviceMemory::export_and_map(memory::CudaDriver::Address begin, Allocation* allocation) const {
  // The driver exports whole pages of the host; small allocations share them.
  const memory::CudaDriver::Address page = memory::MemoryMonitor::page_bytes();
  const memory::CudaDriver::Address first = begin / page * page;
  const memory::CudaDriver::Address end = (begin + allocation->bytes + page - 1) / page * page;
  int exported = -1;
  if (Status s =
          driver_.check(driver_.handle_for_range(&exported, first, end - first, memory::CudaDriver::kHandleDmabuf, 0),
                        "exporting device memory as a dmabuf");
      !s.is_ok()) {
    return s;
  }
  // The registrations keep the buffer when the descriptor is closed.
  const UniqueFd buffer(exported);
  // Copies that return early would race with the RDMA device; memory that does not know this has none of those.
  const unsigned synchronous = 1;
  (void)driver_.set_pointer_attribute(&synchronous, memory::CudaDriver::kPointerSynchronous, begin);
  for (std::size_t rail = 0; rail < domains_.size() && rail < kMaxRails; ++rail) {
    ibv_mr* const region = library_.reg_dmabuf_mr(domains_[rail], begin - first, allocation->bytes, begin, buffer.get(),
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
