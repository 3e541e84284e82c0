// A replacement for the CUDA driver on machines without one: a libcuda.so.1 whose devices are host memory and whose
// streams are threads. It has the functions that tutti and its tests use, and is as strict as the driver may be: the
// host's instructions cannot touch device memory; functions that a stream calls must not call the driver; while one
// thread captures, forbidden calls of others fail and end the capture; a thread that frees memory waits for all
// streams, and all other calls wait for that thread.
//
// STAND_IN_DEVICES: the number of devices, default 2. STAND_IN_FOREIGN: they cannot run the library's code.
#include "stand_in.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "direct_host.h"

using namespace tutti::internal::stand_in;
using tutti::internal::DirectCall;
using tutti::internal::DirectMailbox;

#define CALL extern "C" __attribute__((visibility("default"))) int  // NOLINT: as the driver's own
#define ENTER(...)                                  \
  const std::shared_lock driver_lock(driver_mutex); \
  if (const int refused = enter(__VA_ARGS__); refused != 0) return refused  // NOLINT

// As long again as it has slept, so that a stream that waits for long leaves the processor to others.
template <class F>
void sleep_until(F&& done) {
  constexpr unsigned kLongestUs = 1000;
  for (unsigned us = 20; !done(); us = us * 2 < kLongestUs ? us * 2 : kLongestUs) ::usleep(us);
}

// For tests: the number of objects that were not destroyed, page-locked blocks included. standInBreak(1): from now on
// every call fails.
CALL standInLive() {
  const std::lock_guard lock(state_mutex);
  return live + static_cast<int>(pinned.size());
}
CALL standInBreak(int breaks) {
  broken = breaks != 0;
  if (broken) ++failures;
  return kSuccess;
}

// The call after `calls` more fails; below 0: none fails. Returns the calls that were left.
CALL standInFail(int calls) {
  return calls_until_failure.exchange(calls);
}

CALL cuInit(unsigned /*flags*/) {
  return kSuccess;
}
CALL cuGetErrorString(int error, const char** text) {
  *text = error == kLaunchFailed ? "unspecified launch failure" : "an error of the stand-in's";
  return kSuccess;
}
CALL cuDeviceGetCount(int* count) {
  ENTER();
  *count = devices();
  return kSuccess;
}
CALL cuDeviceGet(int* device, int ordinal) {
  ENTER();
  *device = ordinal;
  return ordinal >= 0 && ordinal < devices() ? kSuccess : kInvalidDevice;
}
CALL cuDeviceGetAttribute(int* value, int attribute, int /*device*/) {
  ENTER();
  *value = attribute == Driver::kHostPointersServe ? 1 : attribute == Driver::kMultiprocessors ? 4 : 0;
  return kSuccess;
}
CALL cuDevicePrimaryCtxRetain(Driver::Context* context, int device) {
  ENTER();
  ++live;
  *context = reinterpret_cast<Driver::Context>(static_cast<std::uintptr_t>(device) + 1);
  return kSuccess;
}
CALL cuCtxPushCurrent_v2(Driver::Context context) {
  ENTER();
  contexts.push_back(static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1);
  return kSuccess;
}
CALL cuCtxPopCurrent_v2(Driver::Context* /*context*/) {
  if (contexts.empty()) return Driver::kInvalidContext;
  contexts.pop_back();
  return kSuccess;
}
CALL cuCtxGetDevice(int* device) {
  ENTER();
  if (contexts.empty()) return Driver::kInvalidContext;
  *device = contexts.back();
  return kSuccess;
}
CALL cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}

// `of`: its device.
static int map_block(Address* address, int fd, std::size_t bytes, int of) {
  void* const device = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, fd, 0);
  void* const alias = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (device == MAP_FAILED || alias == MAP_FAILED) return kInvalidValue;
  *address = reinterpret_cast<Address>(device);
  const std::lock_guard lock(state_mutex);
  blocks[*address] = {bytes, static_cast<std::byte*>(alias), of, fd};
  ++live;
  return kSuccess;
}
CALL cuMemAlloc_v2(Address* address, std::size_t bytes) {
  ENTER(true);
  const int fd = ::memfd_create("stand-in", MFD_CLOEXEC);
  if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return kInvalidValue;
  return map_block(address, fd, bytes, contexts.empty() ? 0 : contexts.back());
}
CALL cuMemFree_v2(Address address) {
  const std::unique_lock alone(driver_mutex);
  {
    const std::lock_guard lock(streams_mutex);
    for (Stream* const stream : streams) wait_for(*stream);
  }
  const std::lock_guard lock(state_mutex);
  const auto at = blocks.find(address);
  if (at == blocks.end()) return kInvalidValue;
  ::munmap(reinterpret_cast<void*>(address), at->second.bytes);
  ::munmap(at->second.alias, at->second.bytes);
  ::close(at->second.fd);
  blocks.erase(at);
  --live;
  return kSuccess;
}
// Of a block of another process; like the driver, it refuses the process's own.
struct BlockName {
  ::pid_t pid;
  int fd;
  int device;
  std::size_t bytes;
};
CALL cuIpcGetMemHandle(Driver::IpcHandle* handle, Address address) {
  ENTER();
  const std::lock_guard lock(state_mutex);
  const auto at = blocks.find(address);
  if (at == blocks.end()) return kInvalidValue;
  const BlockName name{::getpid(), at->second.fd, at->second.device, at->second.bytes};
  *handle = {};
  std::memcpy(handle->bytes, &name, sizeof name);
  return kSuccess;
}
CALL cuIpcOpenMemHandle_v2(Address* address, Driver::IpcHandle handle, unsigned /*flags*/) {
  ENTER();
  BlockName name{};
  std::memcpy(&name, handle.bytes, sizeof name);
  if (name.pid == ::getpid()) return Driver::kInvalidContext;
  const std::string path = "/proc/" + std::to_string(name.pid) + "/fd/" + std::to_string(name.fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return kInvalidValue;
  return map_block(address, fd, name.bytes, name.device);
}
CALL cuDeviceGetUuid(Driver::Uuid* uuid, int device) {
  ENTER();
  *uuid = {};
  uuid->bytes[0] = static_cast<char>(device + 1);
  return kSuccess;
}
CALL cuPointerGetAttribute(void* value, int attribute, Address address) {
  const std::lock_guard lock(state_mutex);
  auto at = blocks.upper_bound(address);
  if (at == blocks.begin() || address - (--at)->first >= at->second.bytes) return kInvalidValue;
  if (attribute == Driver::kPointerMemoryType) std::memcpy(value, &Driver::kMemoryTypeDevice, sizeof(unsigned));
  if (attribute == Driver::kPointerDevice) std::memcpy(value, &at->second.device, sizeof at->second.device);
  return kSuccess;
}
CALL cuMemHostRegister_v2(void* address, std::size_t /*bytes*/, unsigned /*flags*/) {
  ENTER(true);
  const std::lock_guard lock(state_mutex);
  return pinned.insert(address).second ? kSuccess : kInvalidValue;
}
CALL cuMemcpy2DAsync_v2(const Driver::Copy2D* copy, Driver::Stream stream) {
  ENTER();
  const Driver::Copy2D c = *copy;
  if (c.from.pitch < c.bytes || c.to.pitch < c.bytes || c.rows == 0) return kInvalidValue;
  const std::byte* const from = reach(c.from.device, (c.rows - 1) * c.from.pitch + c.bytes);
  std::byte* const to = reach(c.to.device, (c.rows - 1) * c.to.pitch + c.bytes);
  if (from == nullptr || to == nullptr) return kInvalidValue;
  return submit(stream, [=] {
    for (std::size_t r = 0; r < c.rows; ++r) std::memcpy(to + r * c.to.pitch, from + r * c.from.pitch, c.bytes);
  });
}
CALL cuMemcpyAsync(Address to, Address from, std::size_t bytes, Driver::Stream stream) {
  Driver::Copy2D copy;
  copy.from.device = from;
  copy.to.device = to;
  copy.bytes = copy.from.pitch = copy.to.pitch = bytes;
  copy.rows = 1;
  return cuMemcpy2DAsync_v2(&copy, stream);
}
CALL cuMemcpyHtoD_v2(Address to, const void* from, std::size_t bytes) {
  ENTER(true);
  std::byte* const place = reach(to, bytes);
  if (place == nullptr) return kInvalidValue;
  std::memcpy(place, from, bytes);
  return kSuccess;
}
CALL cuMemcpyDtoH_v2(void* to, Address from, std::size_t bytes) {
  ENTER(true);
  const std::byte* const place = reach(from, bytes);
  if (place == nullptr) return kInvalidValue;
  std::memcpy(to, place, bytes);
  return kSuccess;
}

CALL cuMemsetD8Async(Address address, unsigned char value, std::size_t bytes, Driver::Stream stream) {
  ENTER();
  std::byte* const place = reach(address, bytes);
  if (place == nullptr) return kInvalidValue;
  return submit(stream, [=] { std::memset(place, value, bytes); });
}

// The image is not read: host threads run the source of the only kernel.
CALL cuModuleLoadData(Driver::Module* module, const void* image) {
  ENTER();
  if (std::getenv("STAND_IN_FOREIGN") != nullptr) return Driver::kNoBinaryForDevice;
  *module = reinterpret_cast<Driver::Module>(const_cast<void*>(image));
  return kSuccess;
}
CALL cuModuleGetFunction(Driver::Function* function, Driver::Module module, const char* name) {
  ENTER();
  *function = reinterpret_cast<Driver::Function>(module);
  return std::strcmp(name, "tutti_direct") == 0 ? kSuccess : kNotFound;
}
CALL cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, Driver::Function /*function*/, int /*threads*/,
                                                 std::size_t /*shared_bytes*/) {
  ENTER();
  *count = 16;
  return kSuccess;
}
CALL cuLaunchKernel(Driver::Function /*function*/, unsigned x, unsigned y, unsigned z, unsigned /*threads_x*/,
                    unsigned /*threads_y*/, unsigned /*threads_z*/, unsigned /*shared_bytes*/, Driver::Stream stream,
                    void** arguments, void** /*extra*/) {
  ENTER();
  if (x == 0 || y == 0 || z != 1) return kInvalidValue;
  DirectCall call = *static_cast<const DirectCall*>(arguments[0]);
  for (auto& mailbox : call.mailboxes) {
    if (mailbox == nullptr) continue;
    mailbox = reinterpret_cast<DirectMailbox*>(reach(reinterpret_cast<Address>(mailbox), sizeof *mailbox));
  }
  return submit(stream, [=] {
    const auto at_host = [](std::byte* place, std::size_t bytes) {
      std::byte* const reached = reach(reinterpret_cast<Address>(place), bytes);
      if (reached != nullptr) return reached;
      std::fputs("stand-in: a kernel reaches beyond its memory\n", stderr);
      std::abort();
    };
    tutti::internal::test::run_launch(call, static_cast<int>(x), static_cast<int>(y), at_host);
  });
}

CALL cuStreamCreateWithPriority(Driver::Stream* stream, unsigned /*flags*/, int /*priority*/) {
  ENTER();
  ++live;
  *stream = reinterpret_cast<Driver::Stream>(make_stream());
  return kSuccess;
}
CALL cuStreamDestroy_v2(Driver::Stream handle) {
  Stream* const stream = reinterpret_cast<Stream*>(handle);
  {
    const std::lock_guard lock(streams_mutex);
    streams.erase(stream);
  }
  {
    const std::lock_guard lock(stream->mutex);
    stream->ends = true;
    stream->changed.notify_all();
  }
  stream->thread.join();
  delete stream;
  --live;
  return kSuccess;
}
CALL cuStreamSynchronize(Driver::Stream stream) {
  { ENTER(true); }
  wait_for(*stream_of(stream));
  return kSuccess;
}
CALL cuStreamQuery(Driver::Stream handle) {
  ENTER(true);
  Stream& stream = *stream_of(handle);
  const std::lock_guard lock(stream.mutex);
  return stream.queue.empty() && !stream.busy ? kSuccess : Driver::kNotReady;
}
CALL cuStreamWaitValue32_v2(Driver::Stream stream, Address address, std::uint32_t value, unsigned how) {
  ENTER();
  if (how != Driver::kWaitAtLeast) return kInvalidValue;
  auto* const word = reinterpret_cast<std::uint32_t*>(address);
  // Work queued before the device failed no longer runs: its memory may be gone.
  return submit(stream, [=, before = failures.load()] {
    const auto reached = [&] {
      const std::uint32_t now = std::atomic_ref<std::uint32_t>(*word).load();
      return static_cast<std::int32_t>(now - value) >= 0;
    };
    sleep_until([&] { return failures != before || reached(); });
  });
}
CALL cuStreamWriteValue32_v2(Driver::Stream stream, Address address, std::uint32_t value, unsigned /*flags*/) {
  ENTER();
  auto* const word = reinterpret_cast<std::uint32_t*>(address);
  return submit(stream, [=] { std::atomic_ref<std::uint32_t>(*word).store(value); });
}
CALL cuLaunchHostFunc(Driver::Stream stream, Driver::HostFunction function, void* data) {
  ENTER();
  return submit(stream, [=] {
    if (broken) return;
    in_host_function = true;
    function(data);
    in_host_function = false;
  });
}

CALL cuEventCreate(Driver::Event* event, unsigned /*flags*/) {
  ENTER();
  ++live;
  *event = reinterpret_cast<Driver::Event>(new Event);
  return kSuccess;
}
CALL cuEventDestroy_v2(Driver::Event event) {
  // Streams may still reach it.
  static auto* const gone = new std::vector<Driver::Event>;
  const std::lock_guard lock(state_mutex);
  gone->push_back(event);
  --live;
  return kSuccess;
}
CALL cuEventRecord(Driver::Event handle, Driver::Stream stream) {
  ENTER();
  Event* const event = reinterpret_cast<Event*>(handle);
  {
    Stream& of = *stream_of(stream);
    const std::lock_guard lock(of.mutex);
    event->graph = of.captures;
    event->capture = of.capture;
  }
  if (event->graph != nullptr) return kSuccess;  // the graph's nodes have one order
  const std::uint64_t number = ++event->recorded;
  return submit(stream, [=] {
    // A later record may already have been reached, in another stream.
    for (std::uint64_t before = event->reached; before < number;) {
      if (event->reached.compare_exchange_weak(before, number)) break;
    }
  });
}
CALL cuStreamWaitEvent(Driver::Stream stream, Driver::Event handle, unsigned /*flags*/) {
  ENTER();
  const Event* const event = reinterpret_cast<Event*>(handle);
  if (event->graph != nullptr) {
    Stream& joining = *stream_of(stream);
    const std::lock_guard lock(joining.mutex);
    if (joining.captures != nullptr && joining.capture != event->capture) return Driver::kFirstOfCaptures;
    joining.captures = event->graph;
    joining.capture = event->capture;
    return kSuccess;
  }
  const std::uint64_t number = event->recorded;
  return submit(stream, [=] { sleep_until([&] { return event->reached >= number; }); });
}
CALL cuEventQuery(Driver::Event handle) {
  ENTER(true);
  const Event& event = *reinterpret_cast<Event*>(handle);
  if (event.graph != nullptr) {
    const std::lock_guard all(streams_mutex);
    for (Stream* const stream : streams) {
      const std::lock_guard lock(stream->mutex);
      if (stream->captures == event.graph) stream->invalid = true;
    }
    return kCapturedEvent;
  }
  return event.reached == event.recorded ? kSuccess : Driver::kNotReady;
}

CALL cuStreamBeginCapture_v2(Driver::Stream handle, int mode) {
  ENTER();
  Stream& stream = *stream_of(handle);
  const std::lock_guard lock(stream.mutex);
  if (handle == nullptr || stream.captures != nullptr) return kInvalidHandle;
  stream.captures = new Graph;
  stream.capture = ++captures;
  stream.global = mode == Driver::kCaptureGlobal;
  stream.invalid = false;
  stream.captured_by = {};
  if (mode != Driver::kCaptureRelaxed) {
    stream.captured_by = std::this_thread::get_id();
    ++own_captures;
  }
  if (stream.global) ++global_captures;
  ++live;
  return kSuccess;
}
CALL cuStreamEndCapture(Driver::Stream handle, Driver::Graph* graph) {
  Stream& stream = *stream_of(handle);
  if (stream.captures == nullptr) return kInvalidHandle;
  *graph = reinterpret_cast<Driver::Graph>(stream.captures);
  bool invalid = false;
  {
    // Also the other streams that have joined the capture.
    const std::lock_guard all(streams_mutex);
    {
      const std::lock_guard lock(stream.mutex);
      const bool has_owner = stream.captured_by != std::thread::id();
      if (has_owner && stream.captured_by != std::this_thread::get_id()) return kCaptureWrongThread;
      if (has_owner) --own_captures;
      stream.captured_by = {};
      if (std::exchange(stream.global, false)) --global_captures;
    }
    for (Stream* const other : streams) {
      const std::lock_guard lock(other->mutex);
      if (other->captures != reinterpret_cast<Graph*>(*graph)) continue;
      other->captures = nullptr;
      invalid |= std::exchange(other->invalid, false);
    }
  }
  if (!invalid) return kSuccess;
  --live;
  delete reinterpret_cast<Graph*>(std::exchange(*graph, nullptr));
  return kCaptureInvalidated;
}
CALL cuStreamIsCapturing(Driver::Stream handle, int* status) {
  ENTER();
  Stream& stream = *stream_of(handle);
  const std::lock_guard lock(stream.mutex);
  *status = stream.captures != nullptr ? 1 : 0;
  return kSuccess;
}
CALL cuStreamGetCaptureInfo_v2(Driver::Stream handle, int* status, std::uint64_t* id, Driver::Graph* graph,
                               const void* const** /*nodes*/, std::size_t* /*count*/) {
  ENTER();
  Stream& stream = *stream_of(handle);
  const std::lock_guard lock(stream.mutex);
  *status = stream.captures != nullptr ? 1 : 0;
  if (id != nullptr) *id = stream.capture;
  if (graph != nullptr) *graph = reinterpret_cast<Driver::Graph>(stream.captures);
  return kSuccess;
}
CALL cuUserObjectCreate(Driver::UserObject* object, void* data, Driver::HostFunction destroy, unsigned references,
                        unsigned /*flags*/) {
  *object = reinterpret_cast<Driver::UserObject>(new UserObject{data, destroy, references});
  return kSuccess;
}
CALL cuUserObjectRelease(Driver::UserObject handle, unsigned count) {
  UserObject* const object = reinterpret_cast<UserObject*>(handle);
  if ((object->references -= count) != 0) return kSuccess;
  in_host_function = true;
  object->destroy(object->data);
  in_host_function = false;
  delete object;
  return kSuccess;
}
CALL cuGraphRetainUserObject(Driver::Graph graph, Driver::UserObject object, unsigned count, unsigned /*flags*/) {
  const auto release = [object, count](void* /*none*/) { (void)cuUserObjectRelease(object, count); };
  reinterpret_cast<Graph*>(graph)->objects.emplace_back(nullptr, release);
  return kSuccess;
}
CALL cuGraphInstantiateWithFlags(Driver::Graph* made, Driver::Graph graph, unsigned long long /*flags*/) {
  ++live;
  *made = reinterpret_cast<Driver::Graph>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return kSuccess;
}
CALL cuGraphUpload(Driver::Graph /*graph*/, Driver::Stream /*stream*/) {
  ENTER();
  return kSuccess;
}
CALL cuGraphLaunch(Driver::Graph graph, Driver::Stream stream) {
  ENTER();
  for (const auto& node : reinterpret_cast<Graph*>(graph)->nodes) {
    if (const int result = submit(stream, node); result != 0) return result;
  }
  return kSuccess;
}
CALL cuGraphDestroy(Driver::Graph graph) {
  delete reinterpret_cast<Graph*>(graph);
  --live;
  return kSuccess;
}
CALL cuGraphExecDestroy(Driver::Graph graph) {
  return cuGraphDestroy(graph);
}
