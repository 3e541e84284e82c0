// The kernel of direct collectives (direct.h). One kernel for all datatypes, so that the code that moves and waits
// exists once.
#include <cuda/atomic>
#include <utility>

#include "device/direct.h"
#include "reduction/device_operators.h"

namespace tutti::internal {
namespace {

using reduction::Crew;

constexpr unsigned kThreads = reduction::kDeviceThreads;

using DeviceCounter = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;
using ControlWord = cuda::atomic_ref<std::uint32_t, cuda::thread_scope_system>;

struct Places {
  const std::byte* from[kMostDirectRanks];
  std::byte* to[kMostDirectRanks];
};

// The operator's loop for a datatype that is known at run time.
__device__ void produce_by_type(const DirectCall& call, const Crew& crew, const Places& places, int inputs, int outputs,
                                std::size_t count) {
  [&]<int... types>(std::integer_sequence<int, types...>) {
    (..., (static_cast<int>(call.type) == types
               ? reduction::produce_with<static_cast<DataType>(types)>(call.op, crew, call.divisor, places.from, inputs,
                                                                       places.to, outputs, count)
               : void()));
  }
  (std::make_integer_sequence<int, kDataTypes>{});
}

// A thread block, as seen by one of its threads.
class ThreadBlock {
 public:
  __device__ explicit ThreadBlock(Places& places) : places_(places) {}
  __device__ static int row() { return static_cast<int>(blockIdx.y); }
  __device__ static int column() { return static_cast<int>(blockIdx.x); }
  __device__ const std::byte** from() { return places_.from; }
  __device__ std::byte** to() { return places_.to; }
  template <class F>
  __device__ static void each(int n, F&& f) {
    for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(kThreads)) f(i);
  }
  __device__ static void sync() { __syncthreads(); }
  __device__ static bool all(bool own) { return __syncthreads_and(own) != 0; }
  __device__ static std::uint64_t load(const std::uint64_t& place) {
    return DeviceCounter(const_cast<std::uint64_t&>(place)).load(cuda::memory_order_acquire);
  }
  __device__ static void store(std::uint64_t& place, std::uint64_t value) {
    DeviceCounter(place).store(value, cuda::memory_order_release);
  }
  __device__ static std::uint64_t add(std::uint64_t& place, std::uint64_t value) {
    return DeviceCounter(place).fetch_add(value, cuda::memory_order_acq_rel);
  }
  __device__ static std::uint64_t set_bits(std::uint64_t& place, std::uint64_t bits) {
    return DeviceCounter(place).fetch_or(bits, cuda::memory_order_acq_rel);
  }
  __device__ static bool exchange(std::uint64_t& place, std::uint64_t expected, std::uint64_t value) {
    return DeviceCounter(place).compare_exchange_strong(expected, value, cuda::memory_order_acq_rel);
  }
  // `control` is across the bus.
  __device__ static bool told(const DirectControl& control) {
    return ControlWord(const_cast<std::uint32_t&>(control.stop)).load(cuda::memory_order_relaxed) != 0;
  }
  __device__ static void stop(DirectControl& control) {
    ControlWord(control.stop).store(1, cuda::memory_order_relaxed);
  }
  // If several blocks of a rank fail at the same time, one may overwrite the other's report: not all devices have
  // atomic operations on host memory.
  __device__ static void report(const DirectCall& call, DirectOutcome outcome, int peer) {
    const DeviceCounter report(call.control->reports[call.rank]);
    if (report.load(cuda::memory_order_relaxed) != 0) return;
    report.store(pack_report(outcome, peer, call.number), cuda::memory_order_release);
  }
  __device__ static std::uint64_t now_ns() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  __device__ void combine(const DirectCall& call, int inputs, int outputs, std::size_t count) {
    produce_by_type(call, crew(), places_, inputs, outputs, count);
  }
  __device__ void move(int outputs, std::size_t bytes) {
    std::uintptr_t all = bytes | reinterpret_cast<std::uintptr_t>(places_.from[0]);
    for (int o = 0; o < outputs; ++o) all |= reinterpret_cast<std::uintptr_t>(places_.to[o]);
    if (all % sizeof(std::uint32_t) == 0) {
      copy<std::uint32_t>(outputs, bytes);
    } else {
      copy<std::uint8_t>(outputs, bytes);
    }
  }
  __device__ void exchange(std::size_t bytes) {
    std::uintptr_t all = bytes;
    for (int i = 0; i < 2; ++i) {
      all |= reinterpret_cast<std::uintptr_t>(places_.from[i]) | reinterpret_cast<std::uintptr_t>(places_.to[i]);
    }
    if (all % sizeof(uint4) == 0) {
      swap<uint4>(bytes);
    } else if (all % sizeof(std::uint32_t) == 0) {
      swap<std::uint32_t>(bytes);
    } else {
      swap<std::uint8_t>(bytes);
    }
  }

 private:
  __device__ static Crew crew() {
    return {std::size_t{blockIdx.x} * kThreads + threadIdx.x, std::size_t{gridDim.x} * kThreads};
  }
  template <class T>
  __device__ void copy(int outputs, std::size_t bytes) {
    reduction::produce(crew(), reduction::CopyFold<T>{}, places_.from, 1, places_.to, outputs, bytes / sizeof(T));
  }
  template <class T>
  __device__ void swap(std::size_t bytes) {
    const std::size_t count = bytes / sizeof(T);
    const Crew own = crew();
    constexpr int kAtOnce = reduction::kPacksAtOnce;
    const auto source = [this](int i, std::size_t at) { return reinterpret_cast<const T*>(places_.from[i])[at]; };
    const auto put = [this](int i, std::size_t at, T value) { reinterpret_cast<T*>(places_.to[i])[at] = value; };
    for (std::size_t first = own.index; first < count; first += own.size * kAtOnce) {
      T a[kAtOnce];
      T b[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const std::size_t at = first + u * own.size;
        if (at < count) {
          a[u] = source(0, at);
          b[u] = source(1, at);
        }
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const std::size_t at = first + u * own.size;
        if (at < count) {
          put(0, at, a[u]);
          put(1, at, b[u]);
        }
      }
    }
  }

  Places& places_;
};

}  // namespace
}  // namespace tutti::internal

extern "C" __global__ void __launch_bounds__(tutti::internal::reduction::kDeviceThreads)
    tutti_direct(const __grid_constant__ tutti::internal::DirectCall call) {
  using namespace tutti::internal;
  __shared__ Places places;
  ThreadBlock block(places);
  run_directly(call, block);
}
