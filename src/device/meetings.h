// Where ranks whose kernels meet on a device tell each other of their calls (device/direct.h): of what graphs have
// captured, which no host takes part in.
//
// Ownership: the communicator's ranks together, and each graph that has some of its calls. The memory is the process's,
// and serves others then.
#pragma once

#include <memory>

#include "base/status.h"
#include "device/direct.h"
#include "device/kernels.h"
#include "memory/cuda_device.h"

namespace tutti::internal {

class DirectMeetings {
 public:
  // Null: the device has no room for more thread blocks that wait for each other.
  static Result<std::shared_ptr<DirectMeetings>> make(int ranks, const DirectKernels& kernels,
                                                      const memory::CudaDevice& device);
  ~DirectMeetings();
  DirectMeetings(const DirectMeetings&) = delete;
  DirectMeetings& operator=(const DirectMeetings&) = delete;

  // Makes the call one of rank `rank`, which meets the others.
  void add_to(DirectCall* call, int rank) const;
  // Thread blocks of each rank.
  [[nodiscard]] unsigned columns() const { return columns_; }
  [[nodiscard]] DirectControl& control() const { return *memory_.control; }

 private:
  // For kMostDirectRanks.
  struct Memory {
    DirectMailbox* mailboxes = nullptr;  // of the device
    DirectControl* control = nullptr;    // of the host, page-locked
  };
  DirectMeetings(int ranks, const memory::CudaDevice& device) : ranks_(ranks), device_(device) {}
  static Result<Memory> take_memory(const memory::CudaDevice& device);

  const int ranks_;
  unsigned columns_ = 0;
  const memory::CudaDevice& device_;
  Memory memory_;
};

}  // namespace tutti::internal
