#include "memory/cuda_export.h"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "memory/memory_monitor.h"

namespace tutti::internal::memory {
namespace {

Status cuda_error(std::string message) {
  return Status(Code::kUnhandledCudaError, std::move(message));
}

}  // namespace

Status CudaExport::id_of(std::uint64_t address, std::uint64_t* id) const {
  return driver_.check(driver_.pointer_attribute(id, CudaDriver::kPointerBufferId, address),
                       "asking for the allocation of device memory");
}

Status CudaExport::find(std::uint64_t address, CudaAllocation* allocation) const {
  CudaDriver::Address base = 0;
  if (Status s =
          driver_.check(driver_.address_range(&base, &allocation->bytes, address), "asking for the extent of memory");
      !s.is_ok()) {
    return s;
  }
  allocation->begin = base;
  return id_of(base, &allocation->id);
}

Status CudaExport::exportable(const CudaAllocation& allocation) const {
  unsigned type = 0;
  if (Status s = driver_.check(driver_.pointer_attribute(&type, CudaDriver::kPointerMemoryType, allocation.begin),
                               "asking for the kind of memory");
      !s.is_ok()) {
    return s;
  }
  unsigned managed = 0;
  (void)driver_.pointer_attribute(&managed, CudaDriver::kPointerIsManaged, allocation.begin);
  if (type != CudaDriver::kMemoryTypeDevice || managed != 0) return cuda_error("it is not the memory of a GPU");
  if (driver_.handle_for_range == nullptr)
    return cuda_error("GPUDirect by dmabuf needs the driver of CUDA 11.7 or later");
  int ordinal = 0;
  int device = 0;
  int supported = 0;
  Status s = driver_.check(driver_.pointer_attribute(&ordinal, CudaDriver::kPointerDevice, allocation.begin),
                           "asking for the GPU");
  if (s.is_ok()) s = driver_.check(driver_.device_get(&device, ordinal), "asking for the GPU");
  if (s.is_ok()) {
    s = driver_.check(driver_.device_attribute(&supported, CudaDriver::kDmabufSupported, device),
                      "asking whether the GPU can export memory");
  }
  if (!s.is_ok()) return s;
  if (supported == 0) {
    return cuda_error(fmt::format(
        "GPU {} cannot export memory as a dmabuf (this needs the open kernel modules of the NVIDIA driver)", ordinal));
  }
  return {};
}

Status CudaExport::export_dmabuf(const CudaAllocation& allocation, UniqueFd* buffer, std::uint64_t* offset) const {
  // The driver exports whole pages of the host; small allocations share them.
  const std::uint64_t page = MemoryMonitor::page_bytes();
  const std::uint64_t first = allocation.begin / page * page;
  const std::uint64_t end = (allocation.begin + allocation.bytes + page - 1) / page * page;
  int exported = -1;
  if (Status s = driver_.check(driver_.handle_for_range(&exported, first, end - first, CudaDriver::kHandleDmabuf, 0),
                               "exporting device memory as a dmabuf");
      !s.is_ok()) {
    return s;
  }
  *buffer = UniqueFd(exported);
  *offset = allocation.begin - first;
  // Memory that does not know this has no copies that return early.
  const unsigned synchronous = 1;
  (void)driver_.set_pointer_attribute(&synchronous, CudaDriver::kPointerSynchronous, allocation.begin);
  return {};
}

}  // namespace tutti::internal::memory
