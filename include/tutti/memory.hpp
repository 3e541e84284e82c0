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
  // `count` elements; none allocates nothing.
  explicit Memory(std::size_t count) : count_(count) {
    if (count == 0) return;
    if (count > SIZE_MAX / sizeof(T)) throw Error(tuttiInvalidArgument, "Memory: count overflows the address space");
    void* memory = nullptr;
    check(tuttiMemAlloc(&memory, count * sizeof(T)));
    memory_.reset(memory);
  }
  // Takes it over; `other` is empty then.
  Memory(Memory&& other) noexcept : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)) {}
  // Frees what there was, and takes over what `other` has.
  Memory& operator=(Memory&& other) noexcept {
    memory_ = std::move(other.memory_);
    count_ = std::exchange(other.count_, 0);
    return *this;
  }
  // The first element; null if the object is empty.
  [[nodiscard]] T* data() const noexcept { return static_cast<T*>(memory_.get()); }
  // The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  // For loops over all elements.
  [[nodiscard]] T* begin() const noexcept { return data(); }
  // Behind the last element.
  [[nodiscard]] T* end() const noexcept { return data() + count_; }
  // REQUIRES: i < size().
  [[nodiscard]] T& operator[](std::size_t i) const noexcept { return data()[i]; }

 private:
  detail::Owner<void*, tuttiMemFree> memory_;
  std::size_t count_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_MEMORY_HPP_
