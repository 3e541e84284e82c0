#include <cuda_runtime_api.h>

#include <algorithm>

#include "reduction/device_operators.h"
#include "reduction/device_reduction.h"

namespace tutti::internal::reduction {
namespace {

constexpr unsigned kThreads = kDeviceThreads;
// Blocks for each multiprocessor: as many as are resident.
constexpr unsigned kBlocksEach = 4;

// Multiprocessors of the current device; 0 if unknown.
unsigned multiprocessors() {
  int device = 0;
  int count = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
  return known ? static_cast<unsigned>(count) : 0;
}

template <DataType type>
__global__ void __launch_bounds__(kThreads) reduce(DeviceReduction r) {
  const Crew crew{std::size_t{blockIdx.x} * kThreads + threadIdx.x, std::size_t{gridDim.x} * kThreads};
  produce_with<type>(r.op, crew, r.divisor, r.in.data(), r.inputs, r.out.data(), r.outputs, r.count);
}

}  // namespace

int reduce_on_device(const DeviceReduction& reduction, DeviceStream stream) {
  if (reduction.count == 0) return cudaSuccess;
  DeviceReduction own = reduction;
  const TypedOperator code = own_code(reduction.type, reduction.op);
  own.type = code.type;
  own.op = code.op;
  const std::size_t each = std::max<std::size_t>(1, kPackBytes / size_of(own.type)) * kThreads;
  const std::size_t wanted = (own.count + each - 1) / each;
  const auto blocks =
      static_cast<unsigned>(std::min<std::size_t>(wanted, std::max(1u, kBlocksEach * multiprocessors())));
  with_type(own.type, [&]<DataType type>() { reduce<type><<<blocks, kThreads, 0, stream>>>(own); });
  return cudaGetLastError();
}

}  // namespace tutti::internal::reduction
