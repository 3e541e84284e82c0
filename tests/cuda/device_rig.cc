#include "device_rig.h"

#include <cstdio>
#include <cstdlib>

namespace tutti::internal::test {
namespace {

constexpr int kSkipped = 77;  // Meson's

}  // namespace

bool require_device() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaErrorNoDevice && error != cudaErrorInsufficientDriver) return true;
  std::fprintf(stderr, "skipped: there is no CUDA device here (%s)\n", cudaGetErrorString(error));
  std::exit(kSkipped);
}

}  // namespace tutti::internal::test
