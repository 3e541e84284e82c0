// The CUDA driver, opened at run time, with declarations only for the functions in use. So the build needs no CUDA
// header, and on a machine without the driver everything else works. Names and numbers: CUDA Driver API reference,
// "Data types used by CUDA driver".
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
  using Graph = struct CudaGraph*;
  using UserObject = struct CudaUserObject*;
  using Module = struct CudaModule*;
  using Function = struct CudaFunction*;

  using HostFunction = void (*)(void*);
  // CUuuid, CUipcMemHandle.
  struct Uuid {
    char bytes[16];
  };
  struct IpcHandle {
    char bytes[64];
  };

  // CUDA_MEMCPY2D. An address of unified memory is a `device` one, whatever memory it is.
  struct Place2D {
    std::size_t x_bytes = 0;
    std::size_t y = 0;
    std::uint32_t memory_type = kMemoryTypeUnified;
    void* host = nullptr;
    Address device = 0;
    void* array = nullptr;
    std::size_t pitch = 0;
  };
  struct Copy2D {
    Place2D from;
    Place2D to;
    std::size_t bytes = 0;  // of a row
    std::size_t rows = 0;
  };

  static constexpr Result kNotReady = 600;
  static constexpr Result kInvalidContext = 201;
  static constexpr Result kNoBinaryForDevice = 209;
  // Errors of calls that a capture forbids: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED to _WRONG_THREAD.
  static constexpr Result kFirstOfCaptures = 900;
  static constexpr Result kLastOfCaptures = 908;
  // CUdevice_attribute and CUpointer_attribute.
  static constexpr int kMultiprocessors = 16;
  static constexpr int kHostPointersServe = 91;  // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
  static constexpr int kPointerMemoryType = 2;
  static constexpr int kPointerDevice = 9;
  static constexpr unsigned kMemoryTypeHost = 1;
  static constexpr unsigned kMemoryTypeDevice = 2;
  static constexpr unsigned kMemoryTypeUnified = 4;
  static constexpr unsigned kHostPortable = 1;        // CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE
  static constexpr unsigned kHostMapped = 2;          // CU_MEMHOSTALLOC_DEVICEMAP
  static constexpr unsigned kStreamNonBlocking = 1;   // CU_STREAM_NON_BLOCKING
  static constexpr unsigned kEventDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
  static constexpr unsigned kWaitAtLeast = 0;         // CU_STREAM_WAIT_VALUE_GEQ: by the difference, which may wrap
  static constexpr int kCaptureGlobal = 0;            // CU_STREAM_CAPTURE_MODE_GLOBAL
  static constexpr int kCaptureRelaxed = 2;           // CU_STREAM_CAPTURE_MODE_RELAXED
  static constexpr int kNotCapturing = 0;             // CU_STREAM_CAPTURE_STATUS_NONE
  static constexpr unsigned kNoDestructorSync = 1;    // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
  static constexpr unsigned kMoveToGraph = 1;         // CU_GRAPH_USER_OBJECT_MOVE
  static constexpr unsigned kIpcEnablePeers = 1;      // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

  Result (*init)(unsigned flags) = nullptr;
  Result (*error_text)(Result error, const char** text) = nullptr;
  Result (*device_count)(int* count) = nullptr;
  Result (*device_get)(int* device, int ordinal) = nullptr;
  Result (*device_attribute)(int* value, int attribute, int device) = nullptr;
  Result (*retain_context)(Context* context, int device) = nullptr;
  Result (*push_context)(Context context) = nullptr;
  Result (*pop_context)(Context* context) = nullptr;
  Result (*current_device)(int* device) = nullptr;
  Result (*exchange_capture_mode)(int* mode) = nullptr;
  Result (*pointer_attribute)(void* value, int attribute, Address address) = nullptr;
  // If one of these is missing, the last one is null.
  Result (*stream_capture_info)(Stream stream, int* status, std::uint64_t* id, Graph* graph, const void* const** nodes,
                                std::size_t* count) = nullptr;
  Result (*user_object_create)(UserObject* object, void* data, HostFunction destroy, unsigned references,
                               unsigned flags) = nullptr;
  Result (*graph_retain)(Graph graph, UserObject object, unsigned count, unsigned flags) = nullptr;
  Result (*user_object_release)(UserObject object, unsigned count) = nullptr;
  Result (*device_alloc)(Address* address, std::size_t bytes) = nullptr;
  Result (*device_free)(Address address) = nullptr;
  Result (*host_register)(void* address, std::size_t bytes, unsigned flags) = nullptr;
  Result (*copy_async)(Address to, Address from, std::size_t bytes, Stream stream) = nullptr;
  Result (*copy_2d_async)(const Copy2D* copy, Stream stream) = nullptr;
  Result (*stream_create)(Stream* stream, unsigned flags, int priority) = nullptr;
  Result (*stream_is_capturing)(Stream stream, int* status) = nullptr;
  Result (*stream_wait_event)(Stream stream, Event event, unsigned flags) = nullptr;
  Result (*stream_wait_value)(Stream stream, Address address, std::uint32_t value, unsigned how) = nullptr;
  Result (*stream_write_value)(Stream stream, Address address, std::uint32_t value, unsigned flags) = nullptr;
  Result (*launch_host_function)(Stream stream, HostFunction function, void* data) = nullptr;
  Result (*stream_synchronize)(Stream stream) = nullptr;
  Result (*stream_destroy)(Stream stream) = nullptr;
  Result (*module_load)(Module* module, const void* image) = nullptr;
  Result (*module_function)(Function* function, Module module, const char* name) = nullptr;
  Result (*resident_blocks)(int* blocks, Function function, int threads, std::size_t shared_bytes) = nullptr;
  Result (*launch_kernel)(Function function, unsigned x, unsigned y, unsigned z, unsigned threads_x, unsigned threads_y,
                          unsigned threads_z, unsigned shared_bytes, Stream stream, void** arguments,
                          void** extra) = nullptr;
  Result (*device_uuid)(Uuid* uuid, int device) = nullptr;
  Result (*ipc_get_handle)(IpcHandle* handle, Address address) = nullptr;
  Result (*ipc_open_handle)(Address* address, IpcHandle handle, unsigned flags) = nullptr;
  Result (*fill_async)(Address address, unsigned char value, std::size_t bytes, Stream stream) = nullptr;
  Result (*event_create)(Event* event, unsigned flags) = nullptr;
  Result (*event_record)(Event event, Stream stream) = nullptr;
  Result (*event_query)(Event event) = nullptr;
  Result (*event_destroy)(Event event) = nullptr;

  // kUnhandledCudaError with the driver's text, or success.
  [[nodiscard]] Status check(Result result, const char* what) const;

  // Opened and initialised once per process and never closed. kUnhandledCudaError says what is missing. Any thread.
  // `library`: for tests, another name, which is then opened again.
  static tutti::internal::Result<const CudaDriver*> load();
  static tutti::internal::Result<CudaDriver> open(const char* library);
};

// While it exists, the device's primary context, which the CUDA runtime uses, is the thread's current one. The thread's
// calls are then allowed even if other threads capture graphs.
class CudaCurrent {
 public:
  CudaCurrent(const CudaDriver& driver, CudaDriver::Context context)
      : driver_(driver), result_(driver.push_context(context)) {
    (void)driver_.exchange_capture_mode(&capture_mode_);
  }
  CudaCurrent(const CudaCurrent&) = delete;
  CudaCurrent& operator=(const CudaCurrent&) = delete;
  ~CudaCurrent() {
    (void)driver_.exchange_capture_mode(&capture_mode_);
    CudaDriver::Context popped = nullptr;
    if (result_ == 0) (void)driver_.pop_context(&popped);
  }
  // Not ok: the context is not current.
  [[nodiscard]] Status status() const { return driver_.check(result_, "using the device"); }

 private:
  const CudaDriver& driver_;
  const CudaDriver::Result result_;
  int capture_mode_ = CudaDriver::kCaptureRelaxed;
};

}  // namespace tutti::internal::memory
