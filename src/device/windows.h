// Memory on the devices of all ranks of a communicator that each of them reaches, also of other processes on the
// machine (CUDA IPC): a *window* of each rank, through which kernels do what the ranks' own buffers, which others do
// not reach, are copied to and from.
//
// Ownership: windows are the process's, and serve other communicators when one has ended without a failure: after one,
// peers may touch it still. What is mapped of other processes stays so.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "calls/call.h"
#include "device/direct.h"
#include "device/kernels.h"
#include "join/peer_info.h"
#include "memory/cuda_device.h"

namespace tutti::internal {

class DirectWindows {
 public:
  // Every rank's bytes, by rank.
  using AllGather = std::function<Result<std::vector<std::string>>(const std::string& own)>;

  // Whether ranks that are there may have windows: on one machine, in several processes.
  static bool may_serve(const std::vector<PeerInfo>& peers);
  // Collective. Null, on all ranks: some cannot reach each other, or have no memory or no code for it. `kernels`: this
  // rank's; null: none.
  static Result<std::unique_ptr<DirectWindows>> open(const std::vector<PeerInfo>& peers, int rank,
                                                     const memory::CudaDevice& device, const DirectKernels* kernels,
                                                     const AllGather& all_gather);
  ~DirectWindows();
  DirectWindows(const DirectWindows&) = delete;
  DirectWindows& operator=(const DirectWindows&) = delete;
  // The communicator has ended without a failure: no rank touches this one's window any more.
  void set_quiet() { quiet_ = true; }
  // A graph has captured work on the windows, and may run whenever the program likes: they serve no others.
  void set_captured() { captured_ = true; }

  // Shorter vectors go by the host. The same on all ranks.
  [[nodiscard]] std::size_t least_bytes() const { return least_bytes_; }
  // From now on this rank's launches touch no windows. The control is the process's, and outlives this.
  void stop() const { stop(control_); }
  static void stop(DirectControl* control) { std::atomic_ref(control->stop).store(1); }
  [[nodiscard]] DirectControl* control() const { return control_; }
  // Of a window's inputs, and as many of its outputs.
  [[nodiscard]] std::size_t half_bytes() const { return half_bytes_; }
  [[nodiscard]] std::byte* input() const { return windows_[rank_]; }
  [[nodiscard]] std::byte* output() const { return windows_[rank_] + half_bytes_; }
  // This rank's part of the call, of `count` elements of each block, from the inputs of all windows to the outputs.
  [[nodiscard]] DirectCall part_of(const Call& call, std::size_t count) const;
  Status launch(const DirectCall& call, memory::CudaDevice::Stream stream) const {
    return kernels_->launch(call, stream);
  }

 private:
  // What a rank tells the others of its window.
  struct Offer {
    std::uint64_t bytes = 0;    // 0: it has none
    std::uint64_t address = 0;  // in its process
    std::string device;         // which device it is
    memory::CudaDevice::IpcHandle handle{};
    [[nodiscard]] std::string pack() const;
    static Result<Offer> unpack(const std::string& bytes);
  };
  DirectWindows(int rank, int ranks, const memory::CudaDevice& device, const DirectKernels* kernels)
      : rank_(static_cast<std::size_t>(rank)), ranks_(ranks), device_(device), kernels_(kernels) {}
  Status take(Offer* offer);
  Status map(const std::vector<Offer>& offers, const std::vector<PeerInfo>& peers);

  const std::size_t rank_;
  const int ranks_;
  const memory::CudaDevice& device_;
  const DirectKernels* const kernels_;
  DirectControl* control_ = nullptr;  // page-locked
  std::byte* own_ = nullptr;
  std::size_t own_bytes_ = 0;
  std::size_t half_bytes_ = 0;
  std::size_t least_bytes_ = 0;
  std::array<std::byte*, kMostDirectRanks> windows_{};  // by rank, as this one reaches them
  bool quiet_ = false;
  bool captured_ = false;
};

}  // namespace tutti::internal
