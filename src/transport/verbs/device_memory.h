// Memory of a GPU that RDMA devices read and write directly, without a copy in host memory (GPUDirect RDMA).
//
// The GPU's driver exports an allocation (memory/cuda_export.h), which the RDMA driver maps. An allocation is
// registered whole and stays so while it exists. If anything of this is missing, find() says what, and bytes pass
// through memory of the host (device/plan.h).
//
// Threads: one at a time, as the communicator that owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "memory/cuda_export.h"
#include "memory/registration.h"
#include "transport/verbs/device.h"
#include "transport/verbs/library.h"

namespace tutti::internal::transport::verbs {

class DeviceMemory {
 public:
  // `domains`: of the rank's RDMA devices, in RdmaContext's order, at most kMaxRails; they, the library and
  // what `exports` refers to outlive it.
  DeviceMemory(const Library& library, memory::CudaExport exports, std::vector<ibv_pd*> domains);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // No operation is in progress: deregisters freed memory. Earlier results of find() are not used again.
  void begin_operation();

  // *keys cover [begin, begin + bytes) of device memory, for local reads and writes and remote writes, valid until the
  // next begin_operation(). As with host memory, addresses for the RDMA device are the program's own.
  // kUnhandledCudaError if it is not device memory, is not in one allocation, or the driver cannot export it;
  // kSystemError if an RDMA device cannot map it. The error is stored as long as the allocation exists.
  Status find(const std::byte* begin, std::size_t bytes, const memory::RdmaKeys** keys);

  // For tests and statistics: allocations that are registered.
  [[nodiscard]] std::size_t registered() const;

 private:
  struct Allocation {
    memory::CudaAllocation memory;
    memory::RdmaKeys keys;
    std::vector<Owned<ibv_mr>> regions;
    Status why_not;
  };
  // By first address.
  using Allocations = std::map<std::uint64_t, Allocation>;

  Status enter(std::uint64_t address, Allocations::iterator* entered);
  Status export_and_map(Allocation* allocation) const;

  const Library& library_;
  const memory::CudaExport exports_;
  const std::vector<ibv_pd*> domains_;
  Allocations allocations_;
  std::uint64_t operation_ = 0;
};

}  // namespace tutti::internal::transport::verbs
