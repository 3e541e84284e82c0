// The way between memory of a CUDA device and the ranks' work at the host: slots of page-locked memory that pieces of
// operations pass through, and words by which a stream and the host tell each other how far they are. While one slot
// fills from the device the ranks work on another, and a third returns to the device.
//
// A piece is known by its number, counted on modulo 2^32 for as long as the channel lives. The stream writes `entered`
// when the piece is in its slot; the host writes `run` when the output is there; the stream writes `returned` when the
// last piece of an operation is back. One piece's slot is another's when the first has returned.
//
// Ownership: channels are the process's and live for ever, since a stream may come to them when nobody else knows of
// them any more. Who takes one has it alone until he gives it back.
// Threads: one at a time, but for the words.
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
  // What a slot's parts begin at multiples of.
  static constexpr std::size_t kAlignment = 256;
  enum class Word : std::uint8_t { kEntered, kRun, kReturned };

  // One that no stream has to come to any more. `device`: any.
  static Result<DeviceChannel*> take(const memory::CudaDevice& device);
  void give_back() noexcept;
  DeviceChannel(const DeviceChannel&) = delete;
  DeviceChannel& operator=(const DeviceChannel&) = delete;

  // For pieces of operations that a graph captures: each begins with number 0, whenever the graph runs. Until it is
  // given back, when the graph has gone.
  void begin_capture() { captured_ = true; }

  // Pieces so far. What is planned next begins with this number.
  [[nodiscard]] std::uint32_t count() const { return captured_ ? 0 : count_; }
  void add(std::uint32_t pieces) { count_ += captured_ ? 0 : pieces; }

  // Makes the slot hold so much. Where it lay before is kept for as long as streams may come to it.
  Status reserve(std::size_t slot, std::size_t bytes, const memory::CudaDevice& device);
  [[nodiscard]] std::byte* slot(std::size_t number) const { return slots_[number].memory; }

  [[nodiscard]] std::uint32_t* word(Word which) const { return words_ + static_cast<std::size_t>(which) * kWordStride; }
  [[nodiscard]] std::uint32_t load(Word which) const {
    return std::atomic_ref<std::uint32_t>(*word(which)).load(std::memory_order_acquire);
  }
  void store(Word which, std::uint32_t value) const {
    std::atomic_ref<std::uint32_t>(*word(which)).store(value, std::memory_order_release);
  }
  // Whether `value` is `wanted` or comes after it.
  static bool reached(std::uint32_t value, std::uint32_t wanted) {
    return static_cast<std::int32_t>(value - wanted) >= 0;
  }

 private:
  static constexpr std::size_t kWordStride = 32;  // words: host and device write them, each a line of its own

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
