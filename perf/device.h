// A rank's CUDA device: a stream for its calls, and memory.
#pragma once

#include <cstddef>
#include <memory>

#include "base/status.h"
#include "memory/cuda_device.h"

namespace tutti::internal::perf {

class Device {
 public:
  // `number`: of any rank; devices are taken in turn.
  static Result<std::unique_ptr<Device>> open(int number);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // "cuda:1"
  [[nodiscard]] std::string name() const { return memory::name_of_device(device_->ordinal()); }
  [[nodiscard]] void* stream() const { return stream_; }
  // Until all that is in the stream has ended.
  Status synchronize() const;

  Result<std::byte*> allocate(std::size_t bytes) const;
  void free(std::byte* address) const;
  // Any direction; returns when it is done.
  Status copy(std::byte* to, const std::byte* from, std::size_t bytes) const;

 private:
  Device() = default;

  const memory::CudaDevice* device_ = nullptr;
  memory::CudaDriver::Stream stream_ = nullptr;
};

}  // namespace tutti::internal::perf
