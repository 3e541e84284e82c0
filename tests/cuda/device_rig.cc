#include "device_rig.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace tutti::internal::test {
namespace {

constexpr int kSkipped = 77;  // Meson's

bool all_done(std::span<const DeviceStreamOwner> streams) {
  for (const DeviceStreamOwner& stream : streams) {
    const cudaError_t error = cudaStreamQuery(stream.get());
    if (error == cudaErrorNotReady) return false;
    must(error, "a kernel");
  }
  return true;
}

}  // namespace

bool require_device() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaErrorNoDevice && error != cudaErrorInsufficientDriver) return true;
  std::fprintf(stderr, "skipped: there is no CUDA device here (%s)\n", cudaGetErrorString(error));
  std::exit(kSkipped);
}

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
