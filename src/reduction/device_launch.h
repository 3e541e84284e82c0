// What kernels need to know of the current device. Only for nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include "reduction/device_operators.h"

namespace tutti::internal::reduction {

// Of its multiprocessors; 0 if that cannot be found out.
inline unsigned multiprocessors() {
  int device = 0;
  int count = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
  return known ? static_cast<unsigned>(count) : 0;
}

// Thread blocks of a kernel that run at the same time; 0 if that cannot be found out.
template <class Argument>
unsigned most_resident_blocks(void (*kernel)(Argument)) {
  int each = 0;
  const bool known = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, kDeviceThreads, 0) == cudaSuccess;
  return known ? multiprocessors() * static_cast<unsigned>(each) : 0;
}

}  // namespace tutti::internal::reduction
