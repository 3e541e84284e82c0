// Allocations of a GPU's memory, as its driver knows them, and their export to devices of other kinds.
//
// Every allocation has an id of its own (CU_POINTER_ATTRIBUTE_BUFFER_ID), so that an address which was freed and given
// out again is noticed. The driver exports one as a dmabuf.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "memory/cuda_driver.h"
#include "os/unique_fd.h"

namespace tutti::internal::memory {

struct CudaAllocation {
  std::uint64_t begin = 0;  // an address
  std::size_t bytes = 0;
  std::uint64_t id = 0;
};

class CudaExport {
 public:
  // The driver outlives it.
  explicit CudaExport(const CudaDriver& driver) : driver_(driver) {}

  // These fail with kUnhandledCudaError, for example if the address is not in a GPU's memory.
  // The id of the allocation that contains the address, and the allocation.
  Status id_of(std::uint64_t address, std::uint64_t* id) const;
  Status find(std::uint64_t address, CudaAllocation* allocation) const;
  // Ok, or why an allocation cannot be exported.
  [[nodiscard]] Status exportable(const CudaAllocation& allocation) const;
  // *buffer: of whole pages, in which the allocation begins *offset bytes behind the first. Copies of it are
  // synchronous from then on: those that return early would race with the device that maps it.
  Status export_dmabuf(const CudaAllocation& allocation, UniqueFd* buffer, std::uint64_t* offset) const;

 private:
  const CudaDriver& driver_;
};

}  // namespace tutti::internal::memory
