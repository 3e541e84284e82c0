// The CUDA driver, opened at run time and declared here as far as RDMA needs it: no CUDA header is needed to build,
// and a machine without it runs everything else. Names and numbers: CUDA Driver API reference, "Data types used by
// CUDA driver".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace tutti::internal::memory {

struct CudaDriver {
  using Result = int;  // CUresult; 0: success
  using Address = std::uint64_t;
  using Context = struct CudaContext*;
  using Stream = struct CudaStream*;
  using Event = struct CudaEvent*;

  static constexpr Result kNotReady = 600;
  // CUdevice_attribute and CUpointer_attribute.
  static constexpr int kDmabufSupported = 124;
  static constexpr int kPointerMemoryType = 2;
  static constexpr int kPointerSynchronous = 6;
  static constexpr int kPointerBufferId = 7;
  static constexpr int kPointerIsManaged = 8;
  static constexpr int kPointerDevice = 9;
  static constexpr unsigned kMemoryTypeDevice = 2;
  static constexpr int kHandleDmabuf = 1;             // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
  static constexpr unsigned kHostPortable = 1;        // CU_MEMHOSTALLOC_PORTABLE
  static constexpr unsigned kStreamNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
  static constexpr unsigned kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING

  Result (*init)(unsigned flags) = nullptr;
  Result (*error_text)(Result error, const char** text) = nullptr;
  Result (*device_get)(int* device, int ordinal) = nullptr;
  Result (*device_attribute)(int* value, int attribute, int device) = nullptr;
  Result (*retain_context)(Context* context, int device) = nullptr;
  Result (*release_context)(int device) = nullptr;
  Result (*push_context)(Context context) = nullptr;
  Result (*pop_context)(Context* context) = nullptr;
  Result (*pointer_attribute)(void* value, int attribute, Address address) = nullptr;
  Result (*set_pointer_attribute)(const void* value, int attribute, Address address) = nullptr;
  Result (*address_range)(Address* base, std::size_t* bytes, Address address) = nullptr;
  // Null in drivers before CUDA 11.7.
  Result (*handle_for_range)(void* handle, Address address, std::size_t bytes, int type,
                             unsigned long long flags) = nullptr;
  Result (*host_alloc)(void** address, std::size_t bytes, unsigned flags) = nullptr;
  Result (*host_free)(void* address) = nullptr;
  Result (*copy_async)(Address to, Address from, std::size_t bytes, Stream stream) = nullptr;
  Result (*stream_create)(Stream* stream, unsigned flags) = nullptr;
  Result (*stream_synchronize)(Stream stream) = nullptr;
  Result (*stream_destroy)(Stream stream) = nullptr;
  Result (*event_create)(Event* event, unsigned flags) = nullptr;
  Result (*event_record)(Event event, Stream stream) = nullptr;
  Result (*event_query)(Event event) = nullptr;
  Result (*event_destroy)(Event event) = nullptr;

  // kUnhandledCudaError with the driver's text, or success.
  [[nodiscard]] Status check(Result result, const char* what) const;

  // Opened and initialised once per process and never closed. kUnhandledCudaError says what is missing. Any thread.
  // `library`: for tests, another name of it, which is then opened anew.
  static tutti::internal::Result<const CudaDriver*> load();
  static tutti::internal::Result<CudaDriver> open(const char* library);
};

// Makes a device's primary context, which is what the CUDA runtime uses, the thread's while it lives.
class CudaCurrent {
 public:
  CudaCurrent(const CudaDriver& driver, CudaDriver::Context context)
      : driver_(driver), pushed_(driver.push_context(context) == 0) {}
  CudaCurrent(const CudaCurrent&) = delete;
  CudaCurrent& operator=(const CudaCurrent&) = delete;
  ~CudaCurrent() {
    CudaDriver::Context popped = nullptr;
    if (pushed_) (void)driver_.pop_context(&popped);
  }

 private:
  const CudaDriver& driver_;
  const bool pushed_;
};

}  // namespace tutti::internal::memory
