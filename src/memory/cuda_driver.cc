#include "memory/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "base/first_use.h"
#include "base/symbol.h"

namespace tutti::internal::memory {

Status CudaDriver::check(Result result, const char* what) const {
  if (result == 0) return {};
  const char* text = nullptr;
  if (error_text == nullptr || error_text(result, &text) != 0 || text == nullptr) text = "unknown error";
  return Status(Code::kUnhandledCudaError, fmt::format("{}: {} (CUDA error {})", what, text, result));
}

tutti::internal::Result<CudaDriver> CudaDriver::open(const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return Status(Code::kUnhandledCudaError,
                  fmt::format("the CUDA driver cannot be opened, so the NVIDIA driver may not be installed ({})",
                              why != nullptr ? why : library));
  }
  CudaDriver d;
  // With the version that CUDA's header maps to this name.
  const bool all =
      find_symbol(handle, "cuInit", &d.init) && find_symbol(handle, "cuGetErrorString", &d.error_text) &&
      find_symbol(handle, "cuDeviceGetCount", &d.device_count) && find_symbol(handle, "cuDeviceGet", &d.device_get) &&
      find_symbol(handle, "cuDeviceGetAttribute", &d.device_attribute) &&
      find_symbol(handle, "cuDevicePrimaryCtxRetain", &d.retain_context) &&
      find_symbol(handle, "cuCtxPushCurrent_v2", &d.push_context) &&
      find_symbol(handle, "cuCtxPopCurrent_v2", &d.pop_context) &&
      find_symbol(handle, "cuCtxGetDevice", &d.current_device) &&
      find_symbol(handle, "cuThreadExchangeStreamCaptureMode", &d.exchange_capture_mode) &&
      find_symbol(handle, "cuPointerGetAttribute", &d.pointer_attribute) &&
      find_symbol(handle, "cuMemAlloc_v2", &d.device_alloc) && find_symbol(handle, "cuMemFree_v2", &d.device_free) &&
      find_symbol(handle, "cuMemHostRegister_v2", &d.host_register) &&
      find_symbol(handle, "cuMemcpyAsync", &d.copy_async) &&
      find_symbol(handle, "cuMemcpy2DAsync_v2", &d.copy_2d_async) &&
      find_symbol(handle, "cuStreamCreateWithPriority", &d.stream_create) &&
      find_symbol(handle, "cuStreamWaitEvent", &d.stream_wait_event) &&
      find_symbol(handle, "cuStreamIsCapturing", &d.stream_is_capturing) &&
      find_symbol(handle, "cuStreamWaitValue32_v2", &d.stream_wait_value) &&
      find_symbol(handle, "cuStreamWriteValue32_v2", &d.stream_write_value) &&
      find_symbol(handle, "cuLaunchHostFunc", &d.launch_host_function) &&
      find_symbol(handle, "cuStreamSynchronize", &d.stream_synchronize) &&
      find_symbol(handle, "cuStreamDestroy_v2", &d.stream_destroy) &&
      find_symbol(handle, "cuModuleLoadData", &d.module_load) &&
      find_symbol(handle, "cuModuleGetFunction", &d.module_function) &&
      find_symbol(handle, "cuOccupancyMaxActiveBlocksPerMultiprocessor", &d.resident_blocks) &&
      find_symbol(handle, "cuLaunchKernel", &d.launch_kernel) &&
      find_symbol(handle, "cuMemsetD8Async", &d.fill_async) && find_symbol(handle, "cuDeviceGetUuid", &d.device_uuid) &&
      find_symbol(handle, "cuIpcGetMemHandle", &d.ipc_get_handle) &&
      find_symbol(handle, "cuIpcOpenMemHandle_v2", &d.ipc_open_handle) &&
      find_symbol(handle, "cuEventCreate", &d.event_create) && find_symbol(handle, "cuEventRecord", &d.event_record) &&
      find_symbol(handle, "cuEventQuery", &d.event_query) && find_symbol(handle, "cuEventDestroy_v2", &d.event_destroy);
  if (!all) {
    const char* why = ::dlerror();
    const std::string text = why != nullptr ? why : "a function is missing";
    ::dlclose(handle);
    return Status(Code::kUnhandledCudaError, "the CUDA driver is too old: " + text);
  }
  (void)(find_symbol(handle, "cuStreamGetCaptureInfo_v2", &d.stream_capture_info) &&
         find_symbol(handle, "cuUserObjectCreate", &d.user_object_create) &&
         find_symbol(handle, "cuUserObjectRelease", &d.user_object_release) &&
         find_symbol(handle, "cuGraphRetainUserObject", &d.graph_retain));
  if (Status s = d.check(d.init(0), "starting the CUDA driver"); !s.is_ok()) return s;
  return d;
}

tutti::internal::Result<const CudaDriver*> CudaDriver::load() {
  static constinit FirstUse<const tutti::internal::Result<CudaDriver>> first_use;
  const tutti::internal::Result<CudaDriver>& driver = first_use.get([] { return open("libcuda.so.1"); });
  if (!driver.is_ok()) return driver.status();
  return &driver.value();
}

}  // namespace tutti::internal::memory
