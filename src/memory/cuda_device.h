// A CUDA device, and what tutti puts into the program's streams: copies, and the order between streams and the host.
//
// All of an operation is put into the program's stream by the call that begins it, and can be captured in a graph. What
// then goes on at the host calls the driver no more, only reads and writes words in page-locked memory: threads of the
// program may hold the driver's locks for as long as they wait for the operation, as cudaFree does.
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

  // A handle that stands for another stream in each thread: CU_STREAM_PER_THREAD.
  static bool is_of_thread(const void* stream) { return reinterpret_cast<std::uintptr_t>(stream) == 2; }
  // Process-wide, and never closed, as the CUDA runtime has it. kUnhandledCudaError says why there is none.
  static Result<const CudaDevice*> get(int ordinal);
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  [[nodiscard]] const CudaDriver& driver() const { return driver_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] CudaDriver::Context context() const { return context_; }
  // What follows, but for ordinal() and the like, is to be called while the device is the thread's current one.
  [[nodiscard]] CudaCurrent use() const { return {driver_, context_}; }

  // Whose memory an address is of; kUnknown: not known to the driver, such as plain memory of the host.
  enum class Owner : std::uint8_t { kUnknown, kHostPinned, kDevice, kOtherDevice };
  [[nodiscard]] Owner owner_of(const void* address) const;

  // These fail with kUnhandledCudaError.
  // *id: of the capture, if the stream captures a graph; else 0. kInvalidUsage where a capture forbids to ask.
  Status find_capture(Stream stream, std::uint64_t* id) const;
  // Copies, in the order of the stream. The host's memory is page-locked.
  Status copy_to_host(Stream stream, const RowCopy& copy) const { return copy_rows(stream, copy, false); }
  Status copy_from_host(Stream stream, const RowCopy& copy) const { return copy_rows(stream, copy, true); }
  // function(data) is called, by a thread of the driver's, when all that is in the stream before has ended; it must not
  // call the driver.
  Status call(Stream stream, CudaDriver::HostFunction function, void* data) const;
  // The stream goes on when the word is `value` or later: counted on from there, modulo 2^32. Words are in page-locked
  // memory.
  Status wait_for(Stream stream, const std::uint32_t* word, std::uint32_t value) const;
  // The stream writes it, when what is in it before has ended and can be seen by the host.
  Status write(Stream stream, std::uint32_t* word, std::uint32_t value) const;
  // The event is this place in the stream; it may be recorded anew at once when a stream waits for it.
  Status record(Stream stream, Event event) const;
  Status wait_for(Stream stream, Event event) const;
  // The graph that the stream captures has `data`: destroy(data) is called when the graph, and all that was made of it,
  // has gone; at once if this fails. It must not call the driver.
  Status give_to_graph(Stream stream, void* data, CudaDriver::HostFunction destroy) const;

  Result<Event> make_event() const;
  void destroy_event(Event event) const noexcept;
  // Whether all that was before it where it was recorded last has ended.
  Result<bool> has_reached(Event event) const;
  Result<unsigned> multiprocessors() const;
  // Memory of the device, zero. Never given back, as the driver waits for all streams before that.
  Result<std::byte*> take_zeroed(std::size_t bytes) const;
  // Which device it is, on this machine: the same in all processes.
  Result<std::string> uuid() const;
  // By which other processes reach what take_zeroed() has given; what such a handle of another process leads to.
  using IpcHandle = std::array<std::byte, sizeof(CudaDriver::IpcHandle)>;
  Result<IpcHandle> ipc_handle(const std::byte* memory) const;
  Result<std::byte*> open_ipc(const IpcHandle& handle) const;
  // Returns when it is zero. Waits for no stream of the program's.
  Status zero(std::byte* memory, std::size_t bytes) const;
  // Whether the device still works, as far as the driver knows. `event`: any.
  [[nodiscard]] Status check(Event event) const;
  // Page-locks the memory.
  Status pin(void* memory, std::size_t bytes) const;

 private:
  CudaDevice(const CudaDriver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  static Result<const CudaDevice*> open(int ordinal);
  Status copy_rows(Stream stream, const RowCopy& copy, bool to_device) const;

  const CudaDriver& driver_;
  const int ordinal_;
  int device_ = -1;  // the driver's number of it
  CudaDriver::Context context_ = nullptr;
};

}  // namespace tutti::internal::memory
