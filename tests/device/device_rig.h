// Memory and streams of CUDA devices for tests, through the driver's own interface: real devices if there are any, or
// those of the stand-in (stand_in.cc) if it comes first in LD_LIBRARY_PATH.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/symbol.h"
#include "memory/cuda_driver.h"
#include "tutti/tutti.h"

namespace tutti::internal::test {

using Driver = memory::CudaDriver;

// Functions of the driver that tests need and the library does not.
struct TestDriver {
  int (*init)(unsigned) = nullptr;
  int (*device_count)(int*) = nullptr;
  int (*retain_context)(Driver::Context*, int) = nullptr;
  int (*push_context)(Driver::Context) = nullptr;
  int (*pop_context)(Driver::Context*) = nullptr;
  int (*allocate)(Driver::Address*, std::size_t) = nullptr;
  int (*free)(Driver::Address) = nullptr;
  int (*to_device)(Driver::Address, const void*, std::size_t) = nullptr;
  int (*from_device)(void*, Driver::Address, std::size_t) = nullptr;
  int (*stream_create)(Driver::Stream*, unsigned, int) = nullptr;
  int (*stream_destroy)(Driver::Stream) = nullptr;
  int (*stream_synchronize)(Driver::Stream) = nullptr;
  int (*stream_query)(Driver::Stream) = nullptr;
  int (*launch_host_function)(Driver::Stream, Driver::HostFunction, void*) = nullptr;
  int (*event_create)(Driver::Event*, unsigned) = nullptr;
  int (*event_record)(Driver::Event, Driver::Stream) = nullptr;
  int (*event_destroy)(Driver::Event) = nullptr;
  int (*stream_wait_event)(Driver::Stream, Driver::Event, unsigned) = nullptr;
  int (*begin_capture)(Driver::Stream, int) = nullptr;
  int (*end_capture)(Driver::Stream, Driver::Graph*) = nullptr;
  int (*instantiate)(Driver::Graph*, Driver::Graph, unsigned long long) = nullptr;
  int (*upload)(Driver::Graph, Driver::Stream) = nullptr;
  int (*launch)(Driver::Graph, Driver::Stream) = nullptr;
  int (*destroy_graph)(Driver::Graph) = nullptr;
  int (*destroy_exec)(Driver::Graph) = nullptr;
  // Only the stand-in has these.
  int (*live)() = nullptr;
  int (*make_broken)(int) = nullptr;
  int (*fail)(int) = nullptr;

  int devices = 0;  // 0: there is no driver, or no device
  std::vector<Driver::Context> contexts;

  static const TestDriver& get() {
    static const TestDriver driver = open();
    return driver;
  }

 private:
  static TestDriver open() {
    TestDriver d;
    // Ranks of one device whose graphs wait for each other must not share its hardware queues.
    (void)::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return d;
    const bool all =
        find_symbol(library, "cuInit", &d.init) && find_symbol(library, "cuDeviceGetCount", &d.device_count) &&
        find_symbol(library, "cuDevicePrimaryCtxRetain", &d.retain_context) &&
        find_symbol(library, "cuCtxPushCurrent_v2", &d.push_context) &&
        find_symbol(library, "cuCtxPopCurrent_v2", &d.pop_context) &&
        find_symbol(library, "cuMemAlloc_v2", &d.allocate) && find_symbol(library, "cuMemFree_v2", &d.free) &&
        find_symbol(library, "cuMemcpyHtoD_v2", &d.to_device) &&
        find_symbol(library, "cuMemcpyDtoH_v2", &d.from_device) &&
        find_symbol(library, "cuStreamCreateWithPriority", &d.stream_create) &&
        find_symbol(library, "cuStreamDestroy_v2", &d.stream_destroy) &&
        find_symbol(library, "cuStreamSynchronize", &d.stream_synchronize) &&
        find_symbol(library, "cuStreamQuery", &d.stream_query) &&
        find_symbol(library, "cuLaunchHostFunc", &d.launch_host_function) &&
        find_symbol(library, "cuEventCreate", &d.event_create) &&
        find_symbol(library, "cuEventRecord", &d.event_record) &&
        find_symbol(library, "cuEventDestroy_v2", &d.event_destroy) &&
        find_symbol(library, "cuStreamWaitEvent", &d.stream_wait_event) &&
        find_symbol(library, "cuStreamBeginCapture_v2", &d.begin_capture) &&
        find_symbol(library, "cuStreamEndCapture", &d.end_capture) &&
        find_symbol(library, "cuGraphInstantiateWithFlags", &d.instantiate) &&
        find_symbol(library, "cuGraphUpload", &d.upload) && find_symbol(library, "cuGraphLaunch", &d.launch) &&
        find_symbol(library, "cuGraphDestroy", &d.destroy_graph) &&
        find_symbol(library, "cuGraphExecDestroy", &d.destroy_exec);
    if (!all) throw std::runtime_error("libcuda.so.1 lacks a function");
    (void)find_symbol(library, "standInLive", &d.live);
    (void)find_symbol(library, "standInBreak", &d.make_broken);
    (void)find_symbol(library, "standInFail", &d.fail);
    if (d.init(0) != 0 || d.device_count(&d.devices) != 0) return {};
    d.contexts.resize(static_cast<std::size_t>(d.devices));
    for (int i = 0; i < d.devices; ++i) must(d.retain_context(&d.contexts[static_cast<std::size_t>(i)], i), "context");
    return d;
  }

 public:
  static void must(int result, const char* what) {
    if (result != 0) throw std::runtime_error(std::string(what) + ": CUDA error " + std::to_string(result));
  }
};

// Ends the program with Meson's status for skipped if there is no device; but the stand-in must be there.
inline void need_device() {
  if (TestDriver::get().devices > 0) return;
  if (std::getenv("STAND_IN_DEVICES") != nullptr) throw std::runtime_error("the stand-in was not found");
  std::puts("there is no CUDA device");
  std::exit(77);
}

// Whether the stand-in, whose `function` a case needs, is there; prints a line if not.
inline bool has_stand_in(const void* function) {
  if (function == nullptr) std::puts("left out: this case needs the stand-in for the driver, and here is a device");
  return function != nullptr;
}

// The device is the thread's current one while it lives.
class UseDevice {
 public:
  explicit UseDevice(int device) {
    TestDriver::must(TestDriver::get().push_context(TestDriver::get().contexts.at(static_cast<std::size_t>(device))),
                     "push");
  }
  UseDevice(const UseDevice&) = delete;
  UseDevice& operator=(const UseDevice&) = delete;
  ~UseDevice() {
    Driver::Context popped = nullptr;
    (void)TestDriver::get().pop_context(&popped);
  }
};

class DeviceBytes {
 public:
  DeviceBytes(int device, std::size_t bytes) : device_(device), bytes_(bytes) {
    const UseDevice use(device_);
    TestDriver::must(TestDriver::get().allocate(&address_, bytes == 0 ? 1 : bytes), "allocate");
  }
  DeviceBytes(int device, const std::vector<std::byte>& from) : DeviceBytes(device, from.size()) { set(from); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  DeviceBytes(DeviceBytes&& other) noexcept
      : device_(other.device_), bytes_(other.bytes_), address_(std::exchange(other.address_, 0)) {}
  DeviceBytes& operator=(DeviceBytes&&) = delete;
  // Not freed at once: the driver then waits for all streams, and blocks calls of other threads, which may be needed to
  // end a stream.
  ~DeviceBytes() {
    if (address_ == 0) return;
    const std::lock_guard lock(mutex());
    left().emplace_back(device_, address_);
  }
  // Frees the memory of destroyed objects. Called when no stream waits.
  static void free_all() {
    const std::lock_guard lock(mutex());
    for (const auto& [device, address] : left()) {
      const UseDevice use(device);
      (void)TestDriver::get().free(address);
    }
    left().clear();
  }
  [[nodiscard]] std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  void set(const std::vector<std::byte>& from) const {
    const UseDevice use(device_);
    if (!from.empty()) TestDriver::must(TestDriver::get().to_device(address_, from.data(), from.size()), "copy");
  }
  [[nodiscard]] std::vector<std::byte> get() const {
    const UseDevice use(device_);
    std::vector<std::byte> all(bytes_);
    if (bytes_ > 0) TestDriver::must(TestDriver::get().from_device(all.data(), address_, bytes_), "copy");
    return all;
  }

 private:
  static std::mutex& mutex() {
    static std::mutex all;
    return all;
  }
  static std::vector<std::pair<int, Driver::Address>>& left() {
    static std::vector<std::pair<int, Driver::Address>> all;
    return all;
  }

  int device_;
  std::size_t bytes_;
  Driver::Address address_ = 0;
};

class TestStream {
 public:
  explicit TestStream(int device) : device_(device) {
    const UseDevice use(device_);
    TestDriver::must(TestDriver::get().stream_create(&stream_, Driver::kStreamNonBlocking, 0), "stream");
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() {
    const UseDevice use(device_);
    (void)TestDriver::get().stream_destroy(stream_);
  }
  [[nodiscard]] void* get() const { return stream_; }
  [[nodiscard]] Driver::Stream handle() const { return stream_; }
  void wait() const {
    const UseDevice use(device_);
    TestDriver::must(TestDriver::get().stream_synchronize(stream_), "synchronize");
  }
  [[nodiscard]] bool quiet() const {
    const UseDevice use(device_);
    return TestDriver::get().stream_query(stream_) == 0;
  }
  void call(Driver::HostFunction function, void* data) const {
    const UseDevice use(device_);
    TestDriver::must(TestDriver::get().launch_host_function(stream_, function, data), "host function");
  }

 private:
  int device_;
  Driver::Stream stream_ = nullptr;
};

// The text of a failure, for checks.
inline std::string text_of(tuttiResult_t result, tuttiComm_t comm = nullptr) {
  return std::to_string(static_cast<int>(result)) + ": " + tuttiGetLastError(comm);
}

// Ranks that are threads of this process: rank r on device r modulo their number; or on the host.
class DeviceJob {
 public:
  explicit DeviceJob(int ranks, bool on_host = false) : comms_(static_cast<std::size_t>(ranks)) {
    const TestDriver& driver = TestDriver::get();
    for (int r = 0; r < ranks; ++r) devices_.push_back(on_host ? -1 : r % driver.devices);
    const tuttiResult_t made = tuttiCommInitAll(comms_.data(), ranks, devices_.data());
    if (made != tuttiSuccess) throw std::runtime_error(text_of(made));
  }
  DeviceJob(const DeviceJob&) = delete;
  DeviceJob& operator=(const DeviceJob&) = delete;
  ~DeviceJob() {
    each([&](int r) { (void)tuttiCommDestroy(std::exchange(comms_[static_cast<std::size_t>(r)], nullptr)); });
  }
  [[nodiscard]] int ranks() const { return static_cast<int>(comms_.size()); }
  [[nodiscard]] int device(int rank) const { return devices_[static_cast<std::size_t>(rank)]; }
  tuttiComm_t& comm(int rank) { return comms_[static_cast<std::size_t>(rank)]; }
  // In each(): returns when all ranks have arrived here, or one has failed. If graphs wait for each other on a device,
  // no thread may make a call of the driver that waits for the device, such as allocating memory or the first launch of
  // a graph in a new stream, before all of them run.
  void all_come() const {
    const int turn = ++come_;
    const int wanted = (turn + ranks() - 1) / ranks() * ranks();
    while (come_ < wanted && !failed_) std::this_thread::yield();
  }
  // Runs body(rank), each in a thread; rethrows the first exception.
  void each(const std::function<void(int)>& body) const {
    std::vector<std::thread> threads;
    std::vector<std::string> errors(comms_.size());
    for (int r = 0; r < ranks(); ++r) {
      threads.emplace_back([&, r] {
        try {
          body(r);
        } catch (const std::exception& e) {
          failed_ = true;
          errors[static_cast<std::size_t>(r)] = e.what();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    DeviceBytes::free_all();
    for (const std::string& e : errors) {
      if (!e.empty()) throw std::runtime_error(e);
    }
  }

 private:
  std::vector<tuttiComm_t> comms_;
  std::vector<int> devices_;
  mutable std::atomic<int> come_{0};
  mutable std::atomic<bool> failed_{false};
};

// Throws if the result is not success.
inline void check_success(tuttiResult_t result, tuttiComm_t comm) {
  if (result != tuttiSuccess) throw std::runtime_error(text_of(result, comm));
}

using Bytes = std::vector<std::byte>;

// As wholes: byte by byte, under a sanitizer, that took far longer than the code under test.
inline bool equal(const Bytes& a, const Bytes& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// An all-reduce in place.
inline void sum(DeviceJob& job, int rank, const DeviceBytes& buffer, std::size_t bytes, void* stream) {
  check_success(tuttiAllReduce(buffer.data(), buffer.data(), bytes, tuttiUint8, tuttiSum, job.comm(rank), stream),
                job.comm(rank));
}

}  // namespace tutti::internal::test
