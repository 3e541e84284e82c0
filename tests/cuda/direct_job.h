// Ranks of one CUDA device that reach each other's buffers.
#pragma once

#include <vector>

#include "device_rig.h"
#include "executor/cuda/device_direct.h"

namespace tutti::internal::test {

struct DirectJob {
  explicit DirectJob(int ranks) : streams(static_cast<std::size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r) mailboxes.emplace_back(1);
  }
  // Of sums of floats in place, but for what the caller changes.
  executor::DirectCall call(int rank, std::byte* buffer) {
    executor::DirectCall c;
    c.rank = rank;
    c.ranks = static_cast<int>(streams.size());
    for (std::size_t r = 0; r < streams.size(); ++r) c.mailboxes[r] = mailboxes[r].get();
    c.in = buffer;
    c.out = buffer;
    c.control = control.get();
    return c;
  }
  // A graph of so many calls, which the caller destroys.
  cudaGraphExec_t capture(const executor::DirectCall& call, int calls) {
    const cudaStream_t stream = streams[static_cast<std::size_t>(call.rank)].get();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < calls; ++i) must(executor::all_reduce_directly(call, stream), "all_reduce_directly");
    must(cudaStreamEndCapture(stream, &graph), "capture");
    must(cudaGraphInstantiate(&made, graph, 0), "instantiate");
    must(cudaGraphDestroy(graph), "destroy");
    return made;
  }
  void replay(const std::vector<cudaGraphExec_t>& graphs) {
    for (std::size_t r = 0; r < graphs.size(); ++r) must(cudaGraphLaunch(graphs[r], streams[r].get()), "launch");
  }
  std::vector<DeviceArray<executor::DirectMailbox>> mailboxes;
  std::vector<DeviceStreamOwner> streams;
  Control control;
};

}  // namespace tutti::internal::test
