// For tests on CUDA devices: memory and streams.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace tutti::internal::test {

// Ends the program as skipped, with the driver's reason, if there is no device. Any other error fails the tests.
bool require_device();
inline const bool kHasDevice = require_device();  // before anything else

inline void must(int error, const char* what) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

// Memory of the device, zero at first.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    must(cudaMalloc(&memory_, std::max<std::size_t>(1, count) * sizeof(T)), "cudaMalloc");
    must(cudaMemset(memory_, 0, count * sizeof(T)), "cudaMemset");
    // cudaMemset may return before it is done, and the test's streams do not wait for it.
    must(cudaStreamSynchronize(nullptr), "cudaMemset");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { write(values); }
  DeviceArray(DeviceArray&& other) noexcept
      : count_(std::exchange(other.count_, 0)), memory_(std::exchange(other.memory_, nullptr)) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { (void)cudaFree(memory_); }
  [[nodiscard]] T* get() const { return static_cast<T*>(memory_); }
  [[nodiscard]] std::byte* bytes() const { return static_cast<std::byte*>(memory_); }
  void write(const std::vector<T>& values) {
    must(cudaMemcpy(memory_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  [[nodiscard]] std::vector<T> read() const {
    std::vector<T> values(count_);
    must(cudaMemcpy(values.data(), memory_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }

 private:
  std::size_t count_;
  void* memory_ = nullptr;
};

class DeviceStreamOwner {
 public:
  DeviceStreamOwner() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  DeviceStreamOwner(DeviceStreamOwner&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  DeviceStreamOwner& operator=(DeviceStreamOwner&&) = delete;
  ~DeviceStreamOwner() {
    if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
  }
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Arbitrary bits, including NaNs, infinities, denormals.
inline std::vector<std::byte> random_bytes(std::size_t bytes, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> values(bytes);
  for (std::byte& b : values) b = static_cast<std::byte>(random());
  return values;
}

}  // namespace tutti::internal::test
