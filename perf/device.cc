#include "device.h"

#include <utility>

namespace tutti::internal::perf {

using memory::CudaCurrent;
using memory::CudaDriver;

Result<std::unique_ptr<Device>> Device::open(int number) {
  auto driver = CudaDriver::load();
  if (!driver.is_ok()) return driver.status();
  int count = 0;
  if (Status s = (*driver)->check((*driver)->device_count(&count), "counting the CUDA devices"); !s.is_ok()) return s;
  if (count == 0) return Status(Code::kUnhandledCudaError, "there is no CUDA device");
  std::unique_ptr<Device> made(new Device);
  auto device = memory::CudaDevice::get(number % count);
  if (!device.is_ok()) return device.status();
  made->device_ = *device;
  const CudaCurrent current = made->device_->use();
  const auto stream = (*driver)->stream_create(&made->stream_, CudaDriver::kStreamNonBlocking, 0);
  if (Status s = (*driver)->check(stream, "making a stream"); !s.is_ok()) return s;
  return made;
}

Device::~Device() {
  if (stream_ == nullptr) return;
  const CudaCurrent current = device_->use();
  (void)device_->driver().stream_destroy(stream_);
}

Status Device::synchronize() const {
  const CudaCurrent current = device_->use();
  return device_->driver().check(device_->driver().stream_synchronize(stream_), "waiting for the stream");
}

Result<std::byte*> Device::allocate(std::size_t bytes) const {
  const CudaCurrent current = device_->use();
  CudaDriver::Address address = 0;
  const auto made = device_->driver().device_alloc(&address, bytes);
  if (Status s = device_->driver().check(made, "memory of the device"); !s.is_ok()) return s;
  return reinterpret_cast<std::byte*>(address);
}

void Device::free(std::byte* address) const {
  const CudaCurrent current = device_->use();
  (void)device_->driver().device_free(reinterpret_cast<CudaDriver::Address>(address));
}

Status Device::copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
  const CudaCurrent current = device_->use();
  const auto copied = device_->driver().copy_async(reinterpret_cast<CudaDriver::Address>(to),
                                                   reinterpret_cast<CudaDriver::Address>(from), bytes, stream_);
  if (Status s = device_->driver().check(copied, "copying"); !s.is_ok()) return s;
  return synchronize();
}

}  // namespace tutti::internal::perf
