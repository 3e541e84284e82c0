#include "transport/verbs/memory/cuda_driver.h"

#include <dlfcn.h>

#include <utility>

namespace tutti::transport::verbs {
namespace {

template <class Function>
bool find(void* handle, const char* symbol, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(handle, symbol));
  return *function != nullptr;
}

}  // namespace

Status CudaDriver::check(Result result, const char* what) const {
  if (result == 0) return {};
  const char* text = nullptr;
  if (error_text == nullptr || error_text(result, &text) != 0 || text == nullptr) text = "unknown error";
  return Status(Code::kUnhandledCudaError,
                std::string(what) + ": " + text + " (CUDA error " + std::to_string(result) + ")");
}

tutti::Result<CudaDriver> CudaDriver::open(const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return Status(Code::kUnhandledCudaError, std::string("the CUDA driver cannot be opened (") +
                                                 (why != nullptr ? why : library) +
                                                 "): is the NVIDIA driver installed?");
  }
  CudaDriver d;
  // With the version that the header of the same name stands for.
  const bool all =
      find(handle, "cuInit", &d.init) && find(handle, "cuGetErrorString", &d.error_text) &&
      find(handle, "cuDeviceGet", &d.device_get) && find(handle, "cuDeviceGetAttribute", &d.device_attribute) &&
      find(handle, "cuDevicePrimaryCtxRetain", &d.retain_context) &&
      find(handle, "cuDevicePrimaryCtxRelease_v2", &d.release_context) &&
      find(handle, "cuCtxPushCurrent_v2", &d.push_context) && find(handle, "cuCtxPopCurrent_v2", &d.pop_context) &&
      find(handle, "cuPointerGetAttribute", &d.pointer_attribute) &&
      find(handle, "cuPointerSetAttribute", &d.set_pointer_attribute) &&
      find(handle, "cuMemGetAddressRange_v2", &d.address_range) && find(handle, "cuMemHostAlloc", &d.host_alloc) &&
      find(handle, "cuMemFreeHost", &d.host_free) && find(handle, "cuMemcpyAsync", &d.copy_async) &&
      find(handle, "cuStreamCreate", &d.stream_create) && find(handle, "cuStreamSynchronize", &d.stream_synchronize) &&
      find(handle, "cuStreamDestroy_v2", &d.stream_destroy) && find(handle, "cuEventCreate", &d.event_create) &&
      find(handle, "cuEventRecord", &d.event_record) && find(handle, "cuEventQuery", &d.event_query) &&
      find(handle, "cuEventDestroy_v2", &d.event_destroy);
  if (!all) {
    const char* why = ::dlerror();
    const std::string text = why != nullptr ? why : "a function is missing";
    ::dlclose(handle);
    return Status(Code::kUnhandledCudaError, "the CUDA driver is too old: " + text);
  }
  (void)find(handle, "cuMemGetHandleForAddressRange", &d.handle_for_range);
  if (Status s = d.check(d.init(0), "starting the CUDA driver"); !s.is_ok()) return s;
  return d;
}

tutti::Result<const CudaDriver*> CudaDriver::load() {
  static const auto* const driver = new tutti::Result<CudaDriver>(open("libcuda.so.1"));
  if (!driver->is_ok()) return driver->status();
  return &driver->value();
}

}  // namespace tutti::transport::verbs
