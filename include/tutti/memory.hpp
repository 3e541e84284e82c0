// Part of tutti/tutti.hpp: memory that peers can map.
#ifndef TUTTI_MEMORY_HPP_
#define TUTTI_MEMORY_HPP_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tutti/error.hpp"
#include "tutti/memory.h"

namespace tutti {

// An array of T, zero-filled, in memory that peers on the same machine can map (tuttiMemAlloc).
template <class T>
class Memory {
  static_assert(std::is_trivially_copyable_v<T>, "peers see the bytes");

 public:
  Memory() = default;
  explicit Memory(std::size_t count) : count_(count) {
    if (count == 0) return;
    if (count > SIZE_MAX / sizeof(T)) throw Error(tuttiInvalidArgument, "Memory: count overflows the address space");
    void* memory = nullptr;
    check(tuttiMemAlloc(&memory, count * sizeof(T)));
    memory_.reset(memory);
  }
  Memory(Memory&& other) noexcept : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    memory_ = std::move(other.memory_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  [[nodiscard]] T* data() const noexcept { return static_cast<T*>(memory_.get()); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] T* begin() const noexcept { return data(); }
  [[nodiscard]] T* end() const noexcept { return data() + count_; }
  // REQUIRES: i < size().
  [[nodiscard]] T& operator[](std::size_t i) const noexcept { return data()[i]; }

 private:
  detail::Owner<void*, tuttiMemFree> memory_;
  std::size_t count_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_MEMORY_HPP_
