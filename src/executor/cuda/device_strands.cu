#include <cuda_runtime_api.h>

#include <cuda/atomic>

#include "executor/cuda/device_strands.h"
#include "reduction/device_launch.h"
#include "reduction/device_operators.h"

namespace tutti::internal::executor {
namespace {

using reduction::Crew;

constexpr unsigned kThreads = reduction::kDeviceThreads;
// Between two looks at the host's word, which lies behind the bus.
constexpr unsigned kIdleBetweenLooks = 64;

using DeviceCounter = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;
using ControlWord = cuda::atomic_ref<std::uint32_t, cuda::thread_scope_system>;

// The memory model of a thread block.
template <DataType type>
class BlockMemory {
 public:
  __device__ BlockMemory(ReduceOp op, std::uint32_t divisor) : op_(op), divisor_(divisor) {}
  __device__ bool reached(const FlatCounter& counter, std::uint64_t value) const {
    bool has = false;
    if (threadIdx.x == 0) {
      has = DeviceCounter(const_cast<std::uint64_t&>(counter.value)).load(cuda::memory_order_acquire) >= value;
    }
    return __syncthreads_or(has) != 0;
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
  __device__ void move(const Bytes& bytes) const {
    const Crew crew{threadIdx.x, kThreads};
    const std::byte* in[2];
    std::byte* out[2];
    int inputs = 0;
    int outputs = 0;
    if (bytes.first != nullptr) in[inputs++] = bytes.first;
    if (bytes.second != nullptr) in[inputs++] = bytes.second;
    if (bytes.target != nullptr) out[outputs++] = bytes.target;
    if (bytes.slot != nullptr) out[outputs++] = bytes.slot;
    using T = reduction::Storage<type>;
    const std::size_t count = bytes.size / sizeof(T);
    if (inputs == 1) {
      reduction::produce(crew, reduction::CopyFold<T>{}, in, inputs, out, outputs, count);
    } else {
      reduction::produce_with<type>(op_, crew, bytes.final ? divisor_ : 0, in, inputs, out, outputs, count);
    }
  }

 private:
  ReduceOp op_;
  std::uint32_t divisor_;
};

__device__ bool told_to_stop(const DeviceControl& control) {
  const bool stop = threadIdx.x == 0 && ControlWord(const_cast<std::uint32_t&>(control.stop)).load() != 0;
  return __syncthreads_or(stop) != 0;
}

template <DataType type>
__global__ void __launch_bounds__(kThreads) run_strands(DeviceRun run) {
  __shared__ FlatCall call;
  if (threadIdx.x == 0) call = run.calls[blockIdx.y];
  __syncthreads();
  Strand strand(call, blockIdx.x);
  BlockMemory<type> memory(run.op, run.divisor);
  for (unsigned idle = 0;;) {
    const StrandState state = strand.advance(memory);
    if (state == StrandState::kDone) return;
    if (state == StrandState::kMismatch) {
      if (threadIdx.x == 0) ControlWord(run.control->mismatch).store(1);
      return;
    }
    if (state == StrandState::kMoved) {
      idle = 0;
    } else if (++idle % kIdleBetweenLooks == 0 && told_to_stop(*run.control)) {
      return;
    }
  }
}

}  // namespace

int run_on_device(const DeviceRun& run, reduction::DeviceStream stream) {
  DeviceRun own = run;
  const reduction::TypedOperator code = reduction::own_code(run.type, run.op);
  own.type = code.type;
  own.op = code.op;
  const dim3 blocks(own.strands, own.channels);
  reduction::with_type(own.type, [&]<DataType type>() { run_strands<type><<<blocks, kThreads, 0, stream>>>(own); });
  return cudaGetLastError();
}

unsigned most_resident_strands(DataType type) {
  unsigned most = 0;
  reduction::with_type(type, [&]<DataType t>() { most = reduction::most_resident_blocks(run_strands<t>); });
  return most;
}

}  // namespace tutti::internal::executor
