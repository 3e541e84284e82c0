#include <cuda_runtime_api.h>

#include <cuda/atomic>

#include "executor/cuda/device_direct.h"
#include "reduction/device_launch.h"
#include "reduction/device_operators.h"

namespace tutti::internal::executor {
namespace {

using reduction::Crew;

constexpr unsigned kThreads = reduction::kDeviceThreads;
constexpr unsigned kIdleBetweenLooks = 1024;

using DeviceCounter = cuda::atomic_ref<std::uint64_t, cuda::thread_scope_system>;
using ControlWord = cuda::atomic_ref<std::uint32_t, cuda::thread_scope_system>;

// Every rank's thread block of this number has come here as often as this one: false if the host ends the run. What
// they wrote before is seen after.
__device__ bool meet(const DirectCall& call, std::uint64_t number) {
  __syncthreads();
  bool told = false;
  if (const int peer = static_cast<int>(threadIdx.x); peer < call.ranks) {
    DirectMailbox::Meeting& theirs = call.mailboxes[peer]->meetings[blockIdx.x];
    DirectMailbox::Meeting& own = call.mailboxes[call.rank]->meetings[blockIdx.x];
    DeviceCounter(theirs.arrived[call.rank].value).store(number, cuda::memory_order_release);
    const DeviceCounter arrived(own.arrived[peer].value);
    for (unsigned idle = 0; !told && arrived.load(cuda::memory_order_acquire) < number;) {
      told = ++idle % kIdleBetweenLooks == 0 && ControlWord(call.control->stop).load() != 0;
    }
  }
  return __syncthreads_or(told) == 0;
}

template <DataType type>
__global__ void __launch_bounds__(kThreads) all_reduce(DirectCall call) {
  using T = reduction::Storage<type>;
  __shared__ const std::byte* in[kMostDirectRanks];
  __shared__ std::byte* out[kMostDirectRanks];
  DirectMailbox::Meeting& own = call.mailboxes[call.rank]->meetings[blockIdx.x];
  const std::uint64_t before = own.meetings;
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < call.ranks) {
    call.mailboxes[peer]->meetings[blockIdx.x].notices[call.rank] = {call.in, call.out, call.fingerprint};
  }
  if (!meet(call, before + 1)) return;
  // In packs, and each rank's share begins with a whole one.
  constexpr std::size_t kPerPack = reduction::kPackBytes / sizeof(T);
  const std::size_t packs = (call.count + kPerPack - 1) / kPerPack;
  const auto begin_of = [&](int rank) {
    const std::size_t begin = (packs / call.ranks * rank + packs % call.ranks * rank / call.ranks) * kPerPack;
    return begin < call.count ? begin : call.count;
  };
  const std::size_t begin = begin_of(call.rank);
  bool other = false;
  if (peer < call.ranks) {
    const DirectNotice notice = own.notices[peer];
    other = !(notice.fingerprint == call.fingerprint);
    in[peer] = notice.in + begin * sizeof(T);
    out[peer] = notice.out + begin * sizeof(T);
  }
  if (__syncthreads_or(other) != 0) {
    if (threadIdx.x == 0) ControlWord(call.control->mismatch).store(1);
  } else {
    const Crew crew{std::size_t{blockIdx.x} * kThreads + threadIdx.x, std::size_t{gridDim.x} * kThreads};
    reduction::produce_with<type>(call.op, crew, call.divisor, in, call.ranks, out, call.ranks,
                                  begin_of(call.rank + 1) - begin);
  }
  // Until all have read this rank's input and written its output. Also the peers' notices may be written again then.
  if (!meet(call, before + 2)) return;
  if (threadIdx.x == 0) own.meetings = before + 2;
}

}  // namespace

int all_reduce_directly(const DirectCall& call, reduction::DeviceStream stream) {
  DirectCall own = call;
  const reduction::TypedOperator code = reduction::own_code(call.type, call.op);
  own.type = code.type;
  own.op = code.op;
  reduction::with_type(own.type, [&]<DataType type>() { all_reduce<type><<<own.blocks, kThreads, 0, stream>>>(own); });
  return cudaGetLastError();
}

unsigned most_resident_direct_blocks(DataType type) {
  unsigned most = 0;
  reduction::with_type(type, [&]<DataType t>() { most = reduction::most_resident_blocks(all_reduce<t>); });
  return most;
}

}  // namespace tutti::internal::executor
