// Host memory through which bytes of a GPU pass where RDMA devices cannot reach the GPU's own (device_memory.h says
// when). Page-locked by the CUDA driver, so that copies to and from it run by themselves; to RDMA devices it is
// ordinary memory, registered by its owner.
//
// A copy is asked for and has a number; copies are done in the order of their numbers. Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "memory/cuda_driver.h"

namespace tutti::internal::memory {

class PinnedStaging {
 public:
  // `bytes` for the GPU with this ordinal. `stream`: where copies are ordered among the caller's own work on it, null
  // for a stream of its own. The driver, and the stream, outlive it. kUnhandledCudaError.
  static Result<std::unique_ptr<PinnedStaging>> make(const CudaDriver& driver, int ordinal, std::size_t bytes,
                                                     CudaDriver::Stream stream = nullptr);
  // Waits for the copies.
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  // All of it: what RDMA devices send from and write to.
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }

  // Begin a copy of n bytes between memory()[offset] and device memory. *number is the copy's, 0 if too many are
  // under way: then ask again after done() has grown. kInvalidArgument beyond the end; kUnhandledCudaError.
  Status from_device(std::size_t offset, const std::byte* device, std::size_t n, std::uint64_t* number);
  Status to_device(std::byte* device, std::size_t offset, std::size_t n, std::uint64_t* number);
  // Copies up to this number are done. Does not wait. kUnhandledCudaError if one has failed.
  Status done(std::uint64_t* number);

  static constexpr std::size_t kMostCopies = 64;

 private:
  explicit PinnedStaging(const CudaDriver& driver) : driver_(driver) {}
  Status prepare(int ordinal, std::size_t bytes, CudaDriver::Stream stream);
  Status copy(CudaDriver::Address to, CudaDriver::Address from, std::size_t offset, std::size_t n,
              std::uint64_t* number);

  const CudaDriver& driver_;
  int device_ = -1;
  CudaDriver::Context context_ = nullptr;
  CudaDriver::Stream stream_ = nullptr;
  bool own_stream_ = false;
  std::span<std::byte> memory_;
  // Copy i ends with event i modulo their number.
  std::array<CudaDriver::Event, kMostCopies> events_{};
  std::uint64_t begun_ = 0;
  std::uint64_t done_ = 0;
};

}  // namespace tutti::internal::memory
