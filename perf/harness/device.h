// A rank's CUDA device: a stream for its calls, and memory.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "memory/cuda_device.h"
#include "memory/device_name.h"

namespace tutti::internal::perf {

class Device {
 public:
  // `number`: of any rank; devices are taken in turn.
  static Result<std::unique_ptr<Device>> open(int number);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // "cuda:1"
  [[nodiscard]] std::string name() const { return memory::name_of_device(device_->ordinal()); }
  [[nodiscard]] void* stream() const { return stream_; }
  // Until all that is in the stream has ended.
  Status synchronize() const;

  Result<std::byte*> allocate(std::size_t bytes) const;
  void free(std::byte* address) const;
  // Any direction; returns when it is done.
  Status copy(std::byte* to, const std::byte* from, std::size_t bytes) const;

 private:
  friend class Graph;
  Device() = default;

  const memory::CudaDevice* device_ = nullptr;
  memory::CudaDriver::Stream stream_ = nullptr;
};

// A captured graph of a device's stream, which replays the calls. Destroyed before the device.
class Graph {
 public:
  // Of what `calls` puts into the stream. Nothing of it has run then, and a launch waits for nothing but the stream.
  static Result<std::unique_ptr<Graph>> capture(const Device& device, const std::function<Status()>& calls);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  Status launch() const;

 private:
  struct Functions;
  static Result<const Functions*> functions();
  Graph(const Device& device, const Functions& driver) : device_(device), driver_(driver) {}
  Status make(const std::function<Status()>& calls);

  const Device& device_;
  const Functions& driver_;
  memory::CudaDriver::Graph graph_ = nullptr;
  memory::CudaDriver::Graph executable_ = nullptr;
};

}  // namespace tutti::internal::perf
