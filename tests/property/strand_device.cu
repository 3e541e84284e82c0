// That nvcc takes the step function for devices: a thread block for each strand. It is compiled, not run.
#include <cuda/atomic>

#include "executor/strand.h"

namespace tutti::internal::executor {
namespace {

using DeviceCounter = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;

class DeviceMemory {
 public:
  __device__ bool reached(const FlatCounter& counter, std::uint64_t value) const {
    __shared__ bool has;
    if (threadIdx.x == 0) {
      has = DeviceCounter(const_cast<std::uint64_t&>(counter.value)).load(cuda::memory_order_acquire) >= value;
    }
    __syncthreads();
    const bool answer = has;
    __syncthreads();
    return answer;
  }
  __device__ void publish(FlatCounter& counter, std::uint64_t value) const {
    __syncthreads();
    if (threadIdx.x == 0) DeviceCounter(counter.value).store(value, cuda::memory_order_release);
  }
  __device__ FlatHeader load(const FlatHeader& header) const { return header; }
  __device__ void store(FlatHeader& header, const FlatHeader& value) const {
    if (threadIdx.x == 0) header = value;
  }
  __device__ void count(std::uint64_t& messages) const {
    __syncthreads();
    if (threadIdx.x == 0) ++messages;
    __syncthreads();
  }
  // Sums of float.
  __device__ void move(const Bytes& bytes) const {
    const auto at = [](const std::byte* memory, std::size_t i) { return reinterpret_cast<const float*>(memory)[i]; };
    for (std::size_t i = threadIdx.x; i < bytes.size / sizeof(float); i += blockDim.x) {
      float value = at(bytes.second != nullptr ? bytes.second : bytes.first, i);
      if (bytes.first != nullptr && bytes.second != nullptr) value += at(bytes.first, i);
      if (bytes.target != nullptr) reinterpret_cast<float*>(bytes.target)[i] = value;
      if (bytes.slot != nullptr) reinterpret_cast<float*>(bytes.slot)[i] = value;
    }
  }
};

__global__ void run_strands(const FlatCall* call, const volatile int* stop) {
  Strand strand(*call, blockIdx.x);
  DeviceMemory memory;
  for (;;) {
    const StrandState state = strand.advance(memory);
    if (state == StrandState::kDone || state == StrandState::kMismatch || *stop != 0) return;
  }
}

}  // namespace

void launch_strands(const FlatCall* call, unsigned strands, const int* stop) {
  run_strands<<<strands, 256>>>(call, stop);
}

}  // namespace tutti::internal::executor
