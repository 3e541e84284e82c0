// The caller's handle of an operation on a device, with the rules of NCCL's backend: wait() blocks the current stream,
// not the thread.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "device_queue.h"

namespace tutti_torch {

class DeviceWork final : public c10d::Work {
 public:
  // sender: whom a receive is from, else -1. lists: see future_value.h.
  struct Operation {
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* name = "";
    const char* title = "";
    Tensors shown;  // in profiles
    Tensors outputs;
    std::uint64_t sequence = 0;
    int sender = -1;
    std::size_t lists = 1;
  };
  DeviceWork(int rank, Operation operation, std::shared_ptr<DeviceQueue> queue, DeviceQueue::End end);

  // The stream has come to the end of it, or never will, as the communicator has failed.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override { return operation_.outputs; }
  void synchronize() override { (void)wait(kNoTimeout); }
  // The current stream waits; with a timeout the thread as well. Throws what the communicator has failed with so far.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void abort() override { queue_->revoke(); }
  // Complete at once for threads; the user of its value lets streams wait.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override { return operation_.sequence; }

 private:
  const Operation operation_;
  const std::shared_ptr<DeviceQueue> queue_;
  const DeviceQueue::End end_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace tutti_torch
