#include "device.h"

#include <dlfcn.h>

#include <utility>

#include "base/symbol.h"

namespace tutti::internal::perf {

using memory::CudaCurrent;
using memory::CudaDriver;

Result<std::unique_ptr<Device>> Device::open(int number) {
  auto driver = CudaDriver::load();
  if (!driver.is_ok()) return driver.status();
  int count = 0;
  if (Status s = (*driver)->check((*driver)->device_count(&count), "counting the CUDA devices"); !s.is_ok()) return s;
  if (count == 0) return Status(Code::kUnhandledCudaError, "there is no CUDA device");
  std::unique_ptr<Device> made(new Device);
  auto device = memory::CudaDevice::get(number % count);
  if (!device.is_ok()) return device.status();
  made->device_ = *device;
  const CudaCurrent current = made->device_->use();
  const auto stream = (*driver)->stream_create(&made->stream_, CudaDriver::kStreamNonBlocking, 0);
  if (Status s = (*driver)->check(stream, "making a stream"); !s.is_ok()) return s;
  return made;
}

Device::~Device() {
  if (stream_ == nullptr) return;
  const CudaCurrent current = device_->use();
  (void)device_->driver().stream_destroy(stream_);
}

Status Device::synchronize() const {
  const CudaCurrent current = device_->use();
  return device_->driver().check(device_->driver().stream_synchronize(stream_), "waiting for the stream");
}

Result<std::byte*> Device::allocate(std::size_t bytes) const {
  const CudaCurrent current = device_->use();
  CudaDriver::Address address = 0;
  const auto made = device_->driver().device_alloc(&address, bytes);
  if (Status s = device_->driver().check(made, "memory of the device"); !s.is_ok()) return s;
  return reinterpret_cast<std::byte*>(address);
}

void Device::free(std::byte* address) const {
  const CudaCurrent current = device_->use();
  (void)device_->driver().device_free(reinterpret_cast<CudaDriver::Address>(address));
}

Status Device::copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
  const CudaCurrent current = device_->use();
  const auto copied = device_->driver().copy_async(reinterpret_cast<CudaDriver::Address>(to),
                                                   reinterpret_cast<CudaDriver::Address>(from), bytes, stream_);
  if (Status s = device_->driver().check(copied, "copying"); !s.is_ok()) return s;
  return synchronize();
}

// Functions of the driver that the library itself does not use. The library has opened the driver.
struct Graph::Functions {
  using Stream = CudaDriver::Stream;
  using Handle = CudaDriver::Graph;
  int (*begin_capture)(Stream, int) = nullptr;
  int (*end_capture)(Stream, Handle*) = nullptr;
  int (*instantiate)(Handle*, Handle, unsigned long long) = nullptr;
  int (*upload)(Handle, Stream) = nullptr;
  int (*launch)(Handle, Stream) = nullptr;
  int (*destroy_graph)(Handle) = nullptr;
  int (*destroy_executable)(Handle) = nullptr;

  static Functions find() {
    Functions f;
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    f.complete = library != nullptr && find_symbol(library, "cuStreamBeginCapture_v2", &f.begin_capture) &&
                 find_symbol(library, "cuStreamEndCapture", &f.end_capture) &&
                 find_symbol(library, "cuGraphInstantiateWithFlags", &f.instantiate) &&
                 find_symbol(library, "cuGraphUpload", &f.upload) && find_symbol(library, "cuGraphLaunch", &f.launch) &&
                 find_symbol(library, "cuGraphDestroy", &f.destroy_graph) &&
                 find_symbol(library, "cuGraphExecDestroy", &f.destroy_executable);
    return f;
  }
  bool complete = false;
};

Result<const Graph::Functions*> Graph::functions() {
  static const Functions found = Functions::find();
  if (!found.complete) return Status(Code::kUnhandledCudaError, "the CUDA driver has no graphs");
  return &found;
}

Result<std::unique_ptr<Graph>> Graph::capture(const Device& device, const std::function<Status()>& calls) {
  auto driver = functions();
  if (!driver.is_ok()) return driver.status();
  std::unique_ptr<Graph> made(new Graph(device, **driver));
  if (Status s = made->make(calls); !s.is_ok()) return s;
  return made;
}

Status Graph::make(const std::function<Status()>& calls) {
  constexpr int kOfThisThread = 1;  // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
  const CudaCurrent current = device_.device_->use();
  const CudaDriver& driver = device_.device_->driver();
  if (Status s = driver.check(driver_.begin_capture(device_.stream_, kOfThisThread), "capturing"); !s.is_ok()) return s;
  const Status called = calls();
  const Status ended = driver.check(driver_.end_capture(device_.stream_, &graph_), "ending the capture");
  if (!called.is_ok()) return called;
  if (!ended.is_ok()) return ended;
  if (Status s = driver.check(driver_.instantiate(&executable_, graph_, 0), "instantiating a graph"); !s.is_ok()) {
    return s;
  }
  if (Status s = driver.check(driver_.upload(executable_, device_.stream_), "uploading a graph"); !s.is_ok()) return s;
  return device_.synchronize();
}

Status Graph::launch() const {
  const CudaCurrent current = device_.device_->use();
  return device_.device_->driver().check(driver_.launch(executable_, device_.stream_), "launching a graph");
}

Graph::~Graph() {
  const CudaCurrent current = device_.device_->use();
  if (executable_ != nullptr) (void)driver_.destroy_executable(executable_);
  if (graph_ != nullptr) (void)driver_.destroy_graph(graph_);
}

}  // namespace tutti::internal::perf
