// Ranks of one CUDA device that can access each other's buffers, and rendezvous on it.
#pragma once

#include <algorithm>
#include <new>
#include <vector>

#include "device/kernels.h"
#include "device_rig.h"

namespace tutti::internal::test {

class DirectJob {
 public:
  explicit DirectJob(int ranks)
      : streams(static_cast<std::size_t>(ranks)), mailboxes_(static_cast<std::size_t>(ranks)) {
    auto device = memory::CudaDevice::get(0);
    if (!device.is_ok()) throw std::runtime_error(device.status().message());
    auto found = DirectKernels::of(**device);
    if (!found.is_ok() || *found == nullptr) throw std::runtime_error("no code for the device");
    kernels_ = *found;
    must(cudaHostAlloc(&control_, sizeof(DirectControl), cudaHostAllocMapped), "cudaHostAlloc");
    new (control_) DirectControl();
  }
  DirectJob(const DirectJob&) = delete;
  DirectJob& operator=(const DirectJob&) = delete;
  ~DirectJob() { (void)cudaFreeHost(control_); }
  [[nodiscard]] const DirectKernels& kernels() const { return *kernels_; }
  // An all-reduce of sums of floats in place; the caller may change fields.
  DirectCall call(int rank, std::byte* buffer) {
    DirectCall c;
    c.collective = Collective::kAllReduce;
    c.type = DataType::kFloat32;
    c.element_bytes = sizeof(float);
    c.rank = rank;
    c.ranks = static_cast<int>(streams.size());
    for (std::size_t r = 0; r < streams.size(); ++r) c.mailboxes[r] = mailboxes_.get() + r;
    c.in[static_cast<std::size_t>(rank)] = buffer;
    c.out[static_cast<std::size_t>(rank)] = buffer;
    c.control = static_cast<DirectControl*>(control_);
    c.timeout_ns = 10'000'000'000;
    return c;
  }
  void launch(const DirectCall& call, unsigned columns) {
    launch_in(call, columns, streams[static_cast<std::size_t>(call.rank)].get());
  }
  // A graph of `calls` calls, which the caller destroys.
  cudaGraphExec_t capture(const DirectCall& call, int calls, unsigned columns = 1) {
    const cudaStream_t stream = streams[static_cast<std::size_t>(std::max(0, call.rank))].get();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < calls; ++i) launch_in(call, columns, stream);
    must(cudaStreamEndCapture(stream, &graph), "capture");
    must(cudaGraphInstantiate(&made, graph, 0), "instantiate");
    must(cudaGraphDestroy(graph), "destroy");
    return made;
  }
  void replay(const std::vector<cudaGraphExec_t>& graphs) {
    for (std::size_t r = 0; r < graphs.size(); ++r) must(cudaGraphLaunch(graphs[r], streams[r].get()), "launch");
  }
  // In one of the streams; all parts.
  void launch_in(const DirectCall& call, unsigned columns, cudaStream_t stream) const {
    const Status put = kernels_->launch(call, reinterpret_cast<memory::CudaDevice::Stream>(stream), columns);
    if (!put.is_ok()) throw std::runtime_error(put.message());
  }
  // Waits for everything that is queued on them.
  void finish() const {
    for (const auto& stream : streams) must(cudaStreamSynchronize(stream.get()), "synchronize");
  }
  std::vector<DeviceStreamOwner> streams;

 private:
  DeviceArray<DirectMailbox> mailboxes_;
  void* control_ = nullptr;
  const DirectKernels* kernels_ = nullptr;
};

}  // namespace tutti::internal::test
