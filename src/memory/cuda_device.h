// A CUDA device, and the work that tutti puts into the program's streams: copies, and the order between streams and the
// host.
//
// The call that begins an operation puts all of its work into the program's stream, so a graph can capture it.
// Afterwards the host does not call the driver, and only reads and writes words in page-locked memory: threads of the
// program may hold the driver's locks while they wait for the operation, as cudaFree does.
//
// Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "memory/cuda_driver.h"

namespace tutti::internal::memory {

// Rows of bytes, each so far behind the one before as `pitch` says.
struct RowCopy {
  std::byte* host = nullptr;
  std::size_t host_pitch = 0;
  std::byte* device = nullptr;
  std::size_t device_pitch = 0;
  std::size_t bytes = 0;  // of a row
  std::size_t rows = 1;
};

class CudaDevice {
 public:
  using Stream = CudaDriver::Stream;  // the program's; null: the device's default one
  static Stream stream_of(void* stream) { return static_cast<Stream>(stream); }
  using Event = CudaDriver::Event;

  // The handle that means a different stream in each thread: CU_STREAM_PER_THREAD.
  static bool is_of_thread(const void* stream) { return reinterpret_cast<std::uintptr_t>(stream) == 2; }
  // Process-wide, and never closed, as in the CUDA runtime. kUnhandledCudaError has the reason if there is no device.
  static Result<const CudaDevice*> get(int ordinal);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  [[nodiscard]] const CudaDriver& driver() const { return driver_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] CudaDriver::Context context() const { return context_; }
  // The following functions, except simple getters such as ordinal(), must be called while the device is the thread's
  // current one.
  [[nodiscard]] CudaCurrent use() const { return {driver_, context_}; }

  // The owner of the memory at an address; kUnknown: unknown to the driver, such as ordinary host memory.
  enum class Owner : std::uint8_t { kUnknown, kHostPinned, kDevice, kOtherDevice };
  [[nodiscard]] Owner owner_of(const void* address) const;

  // These fail with kUnhandledCudaError. *id: of the capture, if the stream captures a graph; else 0. kInvalidUsage if
  // a capture forbids the query.
  Status find_capture(Stream stream, std::uint64_t* id) const;
  // Copies, in the order of the stream. The host's memory is page-locked.
  Status copy_to_host(Stream stream, const RowCopy& copy) const { return copy_rows(stream, copy, false); }
  Status copy_from_host(Stream stream, const RowCopy& copy) const { return copy_rows(stream, copy, true); }
  // A thread of the driver calls function(data) when all earlier work of the stream has ended; the function must not
  // call the driver.
  Status call(Stream stream, CudaDriver::HostFunction function, void* data) const;
  // The stream continues when the word has reached `value`, in counting modulo 2^32. Words are in page-locked memory.
  Status wait_for(Stream stream, const std::uint32_t* word, std::uint32_t value) const;
  // The stream writes the word when its earlier work has ended and is visible to the host.
  Status write(Stream stream, std::uint32_t* word, std::uint32_t value) const;
  // Records the event at this position of the stream; it may be recorded again as soon as a stream waits for it.
  Status record(Stream stream, Event event) const;
  Status wait_for(Stream stream, Event event) const;
  // Gives `data` to the graph that the stream captures: destroy(data) is called when the graph, and everything
  // instantiated from it, has been destroyed; at once if this call fails. It must not call the driver.
  Status give_to_graph(Stream stream, void* data, CudaDriver::HostFunction destroy) const;

  Result<Event> make_event() const;
  void destroy_event(Event event) const noexcept;
  // Whether all work before the last recorded position has ended.
  Result<bool> has_reached(Event event) const;
  Result<unsigned> multiprocessors() const;
  // Memory of the device, filled with zeros. Never freed, because the driver would wait for all streams.
  Result<std::byte*> take_zeroed(std::size_t bytes) const;
  // The identity of the device on this machine, the same in all processes.
  Result<std::string> uuid() const;
  // The handle by which other processes access memory of take_zeroed(); and the memory of another process's handle.
  using IpcHandle = std::array<std::byte, sizeof(CudaDriver::IpcHandle)>;
  Result<IpcHandle> ipc_handle(const std::byte* memory) const;
  Result<std::byte*> open_ipc(const IpcHandle& handle) const;
  // Returns when the memory is zero. Does not wait for a stream of the program.
  Status zero(std::byte* memory, std::size_t bytes) const;
  // Whether the device still works, by the driver. `event`: any.
  [[nodiscard]] Status check(Event event) const;
  // Page-locks the memory.
  Status pin(void* memory, std::size_t bytes) const;

 private:
  CudaDevice(const CudaDriver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  static Result<const CudaDevice*> open(int ordinal);
  Status copy_rows(Stream stream, const RowCopy& copy, bool to_device) const;

  const CudaDriver& driver_;
  const int ordinal_;
  int device_ = -1;  // the driver's number for it
  CudaDriver::Context context_ = nullptr;
};

}  // namespace tutti::internal::memory
