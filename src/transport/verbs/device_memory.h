// Memory of a GPU that RDMA devices read and write by themselves, without a copy in host memory (GPUDirect RDMA).
//
// The CUDA driver exports an allocation as a dmabuf, which the RDMA driver maps. An allocation is registered whole
// and stays so while it exists. Every allocation has an id of its own (CU_POINTER_ATTRIBUTE_BUFFER_ID), so that an
// address which was freed and given out again is noticed. Where anything of this is missing, find() says what, and
// bytes pass through memory of the host (device/plan.h).
//
// Threads: one at a time, as the communicator that owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "memory/cuda_driver.h"
#include "memory/registration.h"
#include "transport/verbs/device.h"
#include "transport/verbs/library.h"

namespace tutti::internal::transport::verbs {

class DeviceMemory {
 public:
  // `domains`: of the rank's RDMA devices, in RdmaContext's order, at most kMaxRails; they and the libraries outlive
  // it.
  DeviceMemory(const Library& library, const memory::CudaDriver& driver, std::vector<ibv_pd*> domains);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // No operation is under way: deregisters what has been freed. What find() has returned is not used again.
  void begin_operation();

  // *keys cover [begin, begin + bytes) of device memory, for local reads and writes and remote writes, valid
  // until the next begin_operation(). As with host memory, addresses for the RDMA device are the program's own.
  // kUnhandledCudaError if it is no device memory, does not lie in one allocation or the driver cannot export it,
  // kSystemError if an RDMA device cannot map it. The reason for an allocation is remembered while that lives.
  Status find(const std::byte* begin, std::size_t bytes, const memory::RdmaKeys** keys);

  // For tests and statistics: allocations that are registered.
  [[nodiscard]] std::size_t registered() const;

 private:
  struct Allocation {
    std::size_t bytes = 0;
    std::uint64_t id = 0;
    memory::RdmaKeys keys;
    std::vector<Owned<ibv_mr>> regions;
    Status why_not;
  };
  // By first address.
  using Allocations = std::map<memory::CudaDriver::Address, Allocation>;

  // The id of the allocation that an address lies in.
  Status id_of(memory::CudaDriver::Address address, std::uint64_t* id) const;
  Status enter(memory::CudaDriver::Address address, Allocations::iterator* entered);
  Status export_and_map(memory::CudaDriver::Address begin, Allocation* allocation) const;
  [[nodiscard]] Status exportable(memory::CudaDriver::Address address) const;

  const Library& library_;
  const memory::CudaDriver& driver_;
  const std::vector<ibv_pd*> domains_;
  Allocations allocations_;
  std::uint64_t operation_ = 0;
};

}  // namespace tutti::internal::transport::verbs
