// The connection between memory of a CUDA device and the ranks' work at the host: slots of page-locked memory through
// which pieces of operations pass, and words by which a stream and the host tell each other their progress. While one
// slot fills from the device the ranks work on another, and a third returns to the device.
//
// A piece is identified by its number, which counts up modulo 2^32 during the channel's life. The stream writes
// `entered` when the piece is in its slot; the host writes `run` when the output is there; the stream writes `returned`
// when the last piece of an operation is back. A slot can be reused when its piece has returned.
//
// Ownership: channels belong to the process and are never destroyed, because a stream may reach them after every other
// user has ended. A user that takes one has it exclusively until it gives it back.
// Threads: one at a time, except for the words.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "memory/cuda_device.h"
#include "memory/pinned_memory.h"

namespace tutti::internal {

class DeviceChannel {
 public:
  static constexpr std::size_t kSlots = 3;
  // Alignment of the parts of a slot.
  static constexpr std::size_t kAlignment = 256;
  enum class Word : std::uint8_t { kEntered, kRun, kReturned };

  // A channel that no stream will reach any more. `device`: any.
  static Result<DeviceChannel*> take(const memory::CudaDevice& device);
  void give_back() noexcept;
  DeviceChannel(const DeviceChannel&) = delete;
  DeviceChannel& operator=(const DeviceChannel&) = delete;

  // For pieces of operations that a graph captures: each operation begins with number 0, whenever the graph runs. Valid
  // until the channel is given back, when the graph is destroyed.
  void begin_capture() { captured_ = true; }

  // The number of pieces so far. The next plan begins with it.
  [[nodiscard]] std::uint32_t count() const { return captured_ ? 0 : count_; }
  void add(std::uint32_t pieces) { count_ += captured_ ? 0 : pieces; }

  // Gives the slot at least `bytes`. Its old memory is kept as long as streams may reach it.
  Status reserve(std::size_t slot, std::size_t bytes, const memory::CudaDevice& device);
  [[nodiscard]] std::byte* slot(std::size_t number) const { return slots_[number].memory; }

  [[nodiscard]] std::uint32_t* word(Word which) const { return words_ + static_cast<std::size_t>(which) * kWordStride; }
  [[nodiscard]] std::uint32_t load(Word which) const {
    return std::atomic_ref<std::uint32_t>(*word(which)).load(std::memory_order_acquire);
  }
  void store(Word which, std::uint32_t value) const {
    std::atomic_ref<std::uint32_t>(*word(which)).store(value, std::memory_order_release);
  }
  // Whether `value` is `wanted` or later.
  static bool reached(std::uint32_t value, std::uint32_t wanted) {
    return static_cast<std::int32_t>(value - wanted) >= 0;
  }

 private:
  // Of the words: host and device write them, each on its own cache line.
  static constexpr std::size_t kWordStride = 32;

  explicit DeviceChannel(std::uint32_t* words) : words_(words) {}
  static Result<std::uint32_t*> take_words(const memory::CudaDevice& device);
  [[nodiscard]] bool quiet() const { return !captured_ && reached(load(Word::kReturned), count_); }

  std::uint32_t* const words_;
  std::uint32_t count_ = 0;
  bool captured_ = false;
  std::array<memory::PinnedMemory::Block, kSlots> slots_{};
  std::vector<memory::PinnedMemory::Block> retired_;
};

}  // namespace tutti::internal
