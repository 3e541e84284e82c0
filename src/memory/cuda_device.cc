#include "memory/cuda_device.h"

#include <fmt/core.h>

#include <bit>
#include <map>
#include <memory>

#include "base/first_use.h"
#include "memory/device_name.h"
#include "os/mutex.h"

namespace tutti::internal::memory {
namespace {

// Of rows that one copy may have: CU_DEVICE_ATTRIBUTE_MAX_PITCH is 2^31 - 1 on all devices.
constexpr std::size_t kMostPitch = (std::size_t{1} << 31) - 1;

CudaDriver::Address address_of(const void* place) {
  return reinterpret_cast<CudaDriver::Address>(place);
}

struct Devices {
  Mutex mutex;
  std::map<int, const CudaDevice*> open TUTTI_GUARDED_BY(mutex);
};

}  // namespace

Result<const CudaDevice*> CudaDevice::get(int ordinal) {
  static constinit FirstUse<Devices> first_use;
  Devices& devices = first_use.get();
  const MutexLock lock(devices.mutex);
  const CudaDevice*& device = devices.open[ordinal];
  if (device == nullptr) {
    auto opened = open(ordinal);
    if (!opened.is_ok()) return opened;
    device = *opened;
  }
  return device;
}

Result<const CudaDevice*> CudaDevice::open(int ordinal) {
  auto driver = CudaDriver::load();
  if (!driver.is_ok()) return driver.status();
  const CudaDriver& d = **driver;
  int count = 0;
  if (Status s = d.check(d.device_count(&count), "counting the CUDA devices"); !s.is_ok()) return s;
  if (ordinal < 0 || ordinal >= count) {
    return Status(Code::kUnhandledCudaError, fmt::format("{}: there {} {} CUDA device{}", name_of_device(ordinal),
                                                         count == 1 ? "is" : "are", count, count == 1 ? "" : "s"));
  }
  int device = -1;
  if (Status s = d.check(d.device_get(&device, ordinal), "finding the device"); !s.is_ok()) return s;
  int serve = 0;
  if (Status s = d.check(d.device_attribute(&serve, CudaDriver::kHostPointersServe, device), "asking the device");
      !s.is_ok()) {
    return s;
  }
  if (serve == 0) {
    return Status(Code::kUnhandledCudaError,
                  name_of_device(ordinal) + " does not use the same addresses for host memory as the host");
  }
  std::unique_ptr<CudaDevice> made(new CudaDevice(d, ordinal));
  made->device_ = device;
  if (Status s = d.check(d.retain_context(&made->context_, device), "using the device"); !s.is_ok()) return s;
  return made.release();
}

Status CudaDevice::find_capture(Stream stream, std::uint64_t* id) const {
  int status = CudaDriver::kNotCapturing;
  *id = 0;
  if (driver_.graph_retain == nullptr) {
    const auto asked = driver_.stream_is_capturing(stream, &status);
    if (Status s = driver_.check(asked, "the stream"); !s.is_ok() || status == CudaDriver::kNotCapturing) return s;
    return {Code::kUnhandledCudaError, "capturing: this CUDA driver cannot give objects to graphs"};
  }
  const auto asked = driver_.stream_capture_info(stream, &status, id, nullptr, nullptr, nullptr);
  if (status == CudaDriver::kNotCapturing) *id = 0;
  Status found = driver_.check(asked, "the stream");
  const bool forbidden = asked >= CudaDriver::kFirstOfCaptures && asked <= CudaDriver::kLastOfCaptures;
  return forbidden ? found.with_code(Code::kInvalidUsage) : found;
}

// With unified addressing, the driver finds the direction of the copy from the addresses.
Status CudaDevice::copy_rows(Stream stream, const RowCopy& copy, bool to_device) const {
  if (copy.bytes == 0 || copy.rows == 0) return {};
  const auto host = address_of(copy.host);
  const auto device = address_of(copy.device);
  const auto copy_one = [&](std::size_t at_host, std::size_t at_device, std::size_t bytes) {
    return to_device ? driver_.copy_async(device + at_device, host + at_host, bytes, stream)
                     : driver_.copy_async(host + at_host, device + at_device, bytes, stream);
  };
  CudaDriver::Result result = 0;
  if (copy.rows == 1 || (copy.bytes == copy.host_pitch && copy.bytes == copy.device_pitch)) {
    result = copy_one(0, 0, copy.bytes * copy.rows);
  } else if (copy.host_pitch <= kMostPitch && copy.device_pitch <= kMostPitch) {
    CudaDriver::Place2D at_host;
    at_host.device = host;
    at_host.pitch = copy.host_pitch;
    CudaDriver::Place2D at_device;
    at_device.device = device;
    at_device.pitch = copy.device_pitch;
    const CudaDriver::Copy2D rows{to_device ? at_host : at_device, to_device ? at_device : at_host, copy.bytes,
                                  copy.rows};
    result = driver_.copy_2d_async(&rows, stream);
  } else {
    for (std::size_t r = 0; r < copy.rows && result == 0; ++r) {
      result = copy_one(r * copy.host_pitch, r * copy.device_pitch, copy.bytes);
    }
  }
  return driver_.check(result, "copying device memory");
}

Status CudaDevice::call(Stream stream, CudaDriver::HostFunction function, void* data) const {
  return driver_.check(driver_.launch_host_function(stream, function, data), "queuing on the stream");
}

// With unified addressing, page-locked memory has the same address on the device and the host.
Status CudaDevice::wait_for(Stream stream, const std::uint32_t* word, std::uint32_t value) const {
  return driver_.check(driver_.stream_wait_value(stream, address_of(word), value, CudaDriver::kWaitAtLeast),
                       "queuing on the stream");
}

Status CudaDevice::write(Stream stream, std::uint32_t* word, std::uint32_t value) const {
  return driver_.check(driver_.stream_write_value(stream, address_of(word), value, 0), "queuing on the stream");
}

Status CudaDevice::record(Stream stream, Event event) const {
  return driver_.check(driver_.event_record(event, stream), "queuing on the stream");
}

Status CudaDevice::wait_for(Stream stream, Event event) const {
  return driver_.check(driver_.stream_wait_event(stream, event, 0), "queuing on the stream");
}

CudaDevice::Owner CudaDevice::owner_of(const void* address) const {
  std::uint32_t type = 0;
  if (driver_.pointer_attribute(&type, CudaDriver::kPointerMemoryType, address_of(address)) != 0)
    return Owner::kUnknown;
  if (type == CudaDriver::kMemoryTypeHost) return Owner::kHostPinned;
  int device = device_;
  (void)driver_.pointer_attribute(&device, CudaDriver::kPointerDevice, address_of(address));
  return device == device_ ? Owner::kDevice : Owner::kOtherDevice;
}

Status CudaDevice::give_to_graph(Stream stream, void* data, CudaDriver::HostFunction destroy) const {
  CudaDriver::UserObject object = nullptr;
  const auto made = driver_.user_object_create(&object, data, destroy, 1, CudaDriver::kNoDestructorSync);
  if (Status s = driver_.check(made, "capturing"); !s.is_ok()) {
    destroy(data);
    return s;
  }
  int status = CudaDriver::kNotCapturing;
  std::uint64_t id = 0;
  CudaDriver::Graph graph = nullptr;
  auto given = driver_.stream_capture_info(stream, &status, &id, &graph, nullptr, nullptr);
  if (given == 0) given = driver_.graph_retain(graph, object, 1, CudaDriver::kMoveToGraph);
  if (given != 0) (void)driver_.user_object_release(object, 1);
  return driver_.check(given, "capturing");
}

Result<CudaDevice::Event> CudaDevice::make_event() const {
  Event event = nullptr;
  const auto made = driver_.event_create(&event, CudaDriver::kEventDisableTiming);
  if (Status s = driver_.check(made, "making an event"); !s.is_ok()) return s;
  return event;
}

void CudaDevice::destroy_event(Event event) const noexcept {
  (void)driver_.event_destroy(event);
}

Result<bool> CudaDevice::has_reached(Event event) const {
  const auto state = driver_.event_query(event);
  if (state == CudaDriver::kNotReady) return false;
  if (Status s = driver_.check(state, "the device"); !s.is_ok()) return s;
  return true;
}

Result<unsigned> CudaDevice::multiprocessors() const {
  int count = 0;
  const auto asked = driver_.device_attribute(&count, CudaDriver::kMultiprocessors, device_);
  if (Status s = driver_.check(asked, "asking the device"); !s.is_ok()) return s;
  return static_cast<unsigned>(count);
}

Result<std::byte*> CudaDevice::take_zeroed(std::size_t bytes) const {
  CudaDriver::Address address = 0;
  if (Status s = driver_.check(driver_.device_alloc(&address, bytes), "memory of the device"); !s.is_ok()) return s;
  auto* const memory = reinterpret_cast<std::byte*>(address);
  if (Status s = zero(memory, bytes); !s.is_ok()) return s;
  return memory;
}

Result<std::string> CudaDevice::uuid() const {
  CudaDriver::Uuid uuid{};
  if (Status s = driver_.check(driver_.device_uuid(&uuid, device_), "asking the device"); !s.is_ok()) return s;
  return std::string(uuid.bytes, sizeof uuid.bytes);
}

Result<CudaDevice::IpcHandle> CudaDevice::ipc_handle(const std::byte* memory) const {
  CudaDriver::IpcHandle handle{};
  const auto got = driver_.ipc_get_handle(&handle, address_of(memory));
  if (Status s = driver_.check(got, "sharing memory of the device"); !s.is_ok()) return s;
  return std::bit_cast<IpcHandle>(handle);
}

Result<std::byte*> CudaDevice::open_ipc(const IpcHandle& handle) const {
  CudaDriver::Address address = 0;
  const auto opened =
      driver_.ipc_open_handle(&address, std::bit_cast<CudaDriver::IpcHandle>(handle), CudaDriver::kIpcEnablePeers);
  if (Status s = driver_.check(opened, "reaching memory of a peer's device"); !s.is_ok()) return s;
  return reinterpret_cast<std::byte*>(address);
}

// Uses a separate stream.
Status CudaDevice::zero(std::byte* memory, std::size_t bytes) const {
  Stream stream = nullptr;
  const auto made = driver_.stream_create(&stream, CudaDriver::kStreamNonBlocking, 0);
  if (Status s = driver_.check(made, "making a stream"); !s.is_ok()) return s;
  auto filled = driver_.fill_async(address_of(memory), 0, bytes, stream);
  if (filled == 0) filled = driver_.stream_synchronize(stream);
  (void)driver_.stream_destroy(stream);
  return driver_.check(filled, "memory of the device");
}

Status CudaDevice::check(Event event) const {
  const auto state = driver_.event_query(event);
  return state == CudaDriver::kNotReady ? Status() : driver_.check(state, "the device");
}

Status CudaDevice::pin(void* memory, std::size_t bytes) const {
  const auto pinned = driver_.host_register(memory, bytes, CudaDriver::kHostPortable | CudaDriver::kHostMapped);
  return driver_.check(pinned, "page-locking memory");
}

}  // namespace tutti::internal::memory
