#include "device_rig.h"

#include <chrono>
#include <thread>

namespace tutti::internal::test {
namespace {

bool all_done(std::span<const DeviceStreamOwner> streams) {
  for (const DeviceStreamOwner& stream : streams) {
    const cudaError_t error = cudaStreamQuery(stream.get());
    if (error == cudaErrorNotReady) return false;
    must(error, "a kernel");
  }
  return true;
}

}  // namespace

bool finish(std::span<const DeviceStreamOwner> streams, const Control& control, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!all_done(streams)) {
    if (std::chrono::steady_clock::now() > end) {
      control.stop();
      must(cudaDeviceSynchronize(), "stopping kernels");
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

}  // namespace tutti::internal::test
