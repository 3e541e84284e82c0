// A device for PyTorch, under the name that it reserves for other devices (PrivateUse1), whose memory, streams and
// events are those of the stand-in for CUDA's driver. PyTorch's computations on it run on the CPU and are copied back.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr int kDevices = 2;

template <class Function>
Function find(const char* name) {
  static void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library != nullptr, ::dlerror());
  void* const found = ::dlsym(library, name);
  TORCH_CHECK(found != nullptr, name, " is missing");
  return reinterpret_cast<Function>(found);
}

// A call of the driver, which must succeed.
template <class... Parameters, class... Arguments>
void cuda(int (*)(Parameters...), const char* name, Arguments... arguments) {
  const int result = find<int (*)(Parameters...)>(name)(arguments...);
  TORCH_CHECK(result == 0, name, ": CUDA error ", result);
}
#define CUDA(name, parameters, ...) cuda(static_cast<int(*) parameters>(nullptr), name, __VA_ARGS__)

// Contexts belong to the process, and the driver is not used before a rank does: ranks are forked.
void make_current(int device) {
  static std::array<void*, kDevices> contexts{};
  static std::once_flag once;
  std::call_once(once, [] {
    CUDA("cuInit", (unsigned), 0U);
    for (int i = 0; i < kDevices; ++i) CUDA("cuDevicePrimaryCtxRetain", (void**, int), &contexts[i], i);
  });
  thread_local int current = -1;
  if (current == device) return;
  CUDA("cuCtxPushCurrent_v2", (void*), contexts[device]);
  current = device;
}

struct Streams {
  std::mutex mutex;
  std::array<std::deque<void*>, kDevices> made;

  c10::Stream add(c10::Device device) {
    make_current(device.index());
    void* stream = nullptr;
    CUDA("cuStreamCreateWithPriority", (void**, unsigned, int), &stream, 1U, 0);
    const std::lock_guard lock(mutex);
    auto& all = made[static_cast<std::size_t>(device.index())];
    all.push_back(stream);
    return c10::Stream(c10::Stream::UNSAFE, device, static_cast<c10::StreamId>(all.size()));
  }
  void* handle(const c10::Stream& stream) {
    if (stream.id() == 0) return nullptr;
    const std::lock_guard lock(mutex);
    return made[static_cast<std::size_t>(stream.device_index())][static_cast<std::size_t>(stream.id() - 1)];
  }
};

Streams& streams() {
  static auto* const all = new Streams;
  return *all;
}

thread_local int current_device = 0;
thread_local std::array<c10::StreamId, kDevices> current_streams{};

// The streams that were reported to the allocator, by address.
std::mutex recorded_mutex;
std::map<void*, std::set<c10::StreamId>> recorded;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return {kType, static_cast<c10::DeviceIndex>(current_device)}; }
  void setDevice(c10::Device device) const override { current_device = std::max<int>(device.index(), 0); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_device = std::max<int>(device.index(), 0);
  }
  c10::Stream getStream(c10::Device device) const override {
    if (device.index() < 0) device = getDevice();
    return c10::Stream(c10::Stream::UNSAFE, device, current_streams[static_cast<std::size_t>(device.index())]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 0);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return streams().add(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return streams().add(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto& current = current_streams[static_cast<std::size_t>(stream.device_index())];
    const c10::Stream before{c10::Stream::UNSAFE, stream.device(), current};
    current = stream.id();
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return streams().handle(stream); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) (void)find<int (*)(void*)>("cuEventDestroy_v2")(event);
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    make_current(stream.device_index());
    if (*event == nullptr) CUDA("cuEventCreate", (void**, unsigned), event, 2U);
    CUDA("cuEventRecord", (void*, void*), *event, streams().handle(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    make_current(stream.device_index());
    if (event != nullptr) CUDA("cuStreamWaitEvent", (void*, void*, unsigned), streams().handle(stream), event, 0U);
  }
  bool queryEvent(void* event) const override {
    constexpr int kNotReady = 600;
    const int result = event == nullptr ? 0 : find<int (*)(void*)>("cuEventQuery")(event);
    TORCH_CHECK(result == 0 || result == kNotReady, "cuEventQuery: CUDA error ", result);
    return result == 0;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  bool queryStream(const c10::Stream& stream) const override {
    make_current(stream.device_index());
    return find<int (*)(void*)>("cuStreamQuery")(streams().handle(stream)) == 0;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    make_current(stream.device_index());
    CUDA("cuStreamSynchronize", (void*), streams().handle(stream));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    const std::lock_guard lock(recorded_mutex);
    recorded[data.get()].insert(stream.id());
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Memory is kept until the process ends: memory that streams still use is never freed.
struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    make_current(current_device);
    std::uint64_t address = 0;
    CUDA("cuMemAlloc_v2", (std::uint64_t*, std::size_t), &address, std::max<std::size_t>(bytes, 1));
    void* const data = reinterpret_cast<void*>(address);
    return {data, data, [](void*) {}, c10::Device(kType, static_cast<c10::DeviceIndex>(current_device))};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void*) {};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator)

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard on(device);
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard on(device);
  return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(type));
}

std::size_t span_bytes(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return static_cast<std::size_t>(last + 1) * tensor.element_size();
}

// In the order of the current stream.
void move(void* to, const void* from, std::size_t bytes, c10::Device device, bool wait) {
  const c10::Stream stream = Guard().getStream(device);
  make_current(device.index());
  if (bytes > 0) {
    CUDA("cuMemcpyAsync", (std::uint64_t, std::uint64_t, std::size_t, void*), reinterpret_cast<std::uint64_t>(to),
         reinterpret_cast<std::uint64_t>(from), bytes, streams().handle(stream));
  }
  if (wait) Guard().synchronizeStream(stream);
}

// A copy of the device tensor on the CPU, with its whole extent.
at::Tensor on_cpu(const at::Tensor& tensor) {
  at::Tensor made = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
  move(made.data_ptr(), tensor.data_ptr(), span_bytes(tensor), tensor.device(), true);
  return made;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  const bool both = from.device() == to.device() && from.dtype() == to.dtype() && from.sizes() == to.sizes();
  if (both && from.is_contiguous() && to.is_contiguous()) {
    move(to.data_ptr(), from.data_ptr(), to.nbytes(), to.device(), false);
    return to;
  }
  const at::Tensor source = from.is_cpu() ? from : on_cpu(from);
  if (to.is_cpu()) return to.copy_(source), to;
  const at::Tensor filled = on_cpu(to).copy_(source);
  move(to.data_ptr(), filled.data_ptr(), span_bytes(to), to.device(), true);
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  return copy_from(from, to, false);
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  return at::native::view(self, size);
}

void compute_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("as_strided", &as_strided);
  m.impl("view", &view);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute_on_cpu>());
}

// Holds a stream until it is opened.
struct Gate {
  std::atomic<bool> open{false};
  void hold() {
    const c10::Stream stream = Guard().getStream(Guard().getDevice());
    make_current(stream.device_index());
    const auto wait = [](void* gate) {
      while (!static_cast<Gate*>(gate)->open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    CUDA("cuLaunchHostFunc", (void*, void (*)(void*), void*), streams().handle(stream), +wait,
         static_cast<void*>(this));
  }
};

// Captures the work of the current stream from its creation until end(), then replays it.
class Captured {
 public:
  explicit Captured(int mode) : stream_(Guard().getStream(Guard().getDevice())) {
    make_current(stream_.device_index());
    CUDA("cuStreamBeginCapture_v2", (void*, int), streams().handle(stream_), mode);
  }
  void end() {
    void* graph = nullptr;
    CUDA("cuStreamEndCapture", (void*, void**), streams().handle(stream_), &graph);
    CUDA("cuGraphInstantiateWithFlags", (void**, void*, unsigned long long), &graph_, graph, 0ULL);
  }
  void replay() const { CUDA("cuGraphLaunch", (void*, void*), graph_, streams().handle(stream_)); }

 private:
  const c10::Stream stream_;
  void* graph_ = nullptr;
};

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  pybind11::class_<Gate>(m, "Gate").def(pybind11::init()).def("hold", &Gate::hold).def("open", [](Gate& gate) {
    gate.open = true;
  });
  pybind11::class_<Captured>(m, "Captured")
      .def(pybind11::init<int>(), pybind11::arg("mode"))
      .def("end", &Captured::end)
      .def("replay", &Captured::replay);
  // The number of streams, beside the one of the allocation, that the allocator knows to use a tensor.
  m.def("streams_of", [](const at::Tensor& tensor) {
    const std::lock_guard lock(recorded_mutex);
    return recorded[tensor.storage().data_ptr().get()].size();
  });
  // From now on every call of the driver fails.
  m.def("break_devices", [] { CUDA("standInBreak", (int), 1); });
  m.def("set_device", [](int device) { current_device = device; });
  m.def("current_device", [] { return current_device; });
  m.def("device_count", [] { return kDevices; });
  m.def("is_available", [] { return true; });
  m.def("_is_in_bad_fork", [] { return false; });
}
