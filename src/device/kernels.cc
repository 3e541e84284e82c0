#include "device/kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/first_use.h"
#include "base/log.h"
#include "memory/device_name.h"
#include "os/mutex.h"
#include "reduction/device_code.h"

// The output of nvcc (src/meson.build); null in programs that are linked without it.
extern "C" [[gnu::weak]] const unsigned char tutti_device_image[];

namespace tutti::internal {
namespace {

using memory::CudaDevice;

// Each thread has this many bytes, in packs of 16, in flight at once (device_loops.h).
constexpr std::size_t kBytesOfThread = 64;

struct Opened {
  Mutex mutex;
  std::map<const CudaDevice*, const DirectKernels*> by_device TUTTI_GUARDED_BY(mutex);
};

}  // namespace

Result<const DirectKernels*> DirectKernels::of(const CudaDevice& device) {
  static constinit FirstUse<Opened> first_use;
  Opened& opened = first_use.get();
  const MutexLock lock(opened.mutex);
  const auto found = opened.by_device.find(&device);
  if (found != opened.by_device.end()) return found->second;
  auto made = open(device);
  if (made.is_ok()) opened.by_device.emplace(&device, *made);
  return made;
}

Result<const DirectKernels*> DirectKernels::open(const CudaDevice& device) {
  if (tutti_device_image == nullptr) return nullptr;
  const memory::CudaDriver& driver = device.driver();
  const memory::CudaCurrent current = device.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  memory::CudaDriver::Module module = nullptr;
  // The driver uses several errors if it cannot load the image, including errors of the device itself, which show up
  // soon anyway.
  if (const auto loaded = driver.module_load(&module, tutti_device_image); loaded != 0) {
    const std::string line =
        fmt::format("{} cannot run this library's kernels, so operations pass through the host: {}",
                    memory::name_of_device(device.ordinal()), driver.check(loaded, "loading it").message());
    // The library contains device code only for other devices.
    if (loaded == memory::CudaDriver::kNoBinaryForDevice) {
      log::warn(line + " (built without its compute capability: see the option device_architectures)");
    } else {
      log::info(line);
    }
    return nullptr;
  }
  std::unique_ptr<DirectKernels> made(new DirectKernels(device));
  if (Status s = driver.check(driver.module_function(&made->function_, module, "tutti_direct"), "the device's code");
      !s.is_ok()) {
    return s;
  }
  int each = 0;
  const auto counted = driver.resident_blocks(&each, made->function_, reduction::kDeviceThreads, 0);
  if (Status s = driver.check(counted, "the device's code"); !s.is_ok()) return s;
  auto multiprocessors = device.multiprocessors();
  if (!multiprocessors.is_ok()) return multiprocessors.status();
  made->multiprocessors_ = *multiprocessors;
  made->most_resident_ = *multiprocessors * static_cast<unsigned>(each);
  return made.release();
}

unsigned DirectKernels::useful_columns(const DirectCall& call) const {
  const std::size_t share = has_blocks(call.collective) ? call.count : direct_share_begin(call, 1);
  const std::size_t each = kBytesOfThread * reduction::kDeviceThreads;
  const auto beside = static_cast<unsigned>(call.only < 0 ? call.ranks : 1);
  const std::size_t most = std::max(1U, multiprocessors_ / beside);
  return static_cast<unsigned>(std::clamp<std::size_t>((share * call.element_bytes + each - 1) / each, 1, most));
}

Status DirectKernels::launch(const DirectCall& call, CudaDevice::Stream stream, unsigned columns) const {
  DirectCall own = call;
  if (reduces(call.collective)) {
    const reduction::TypedOperator code = reduction::own_code(call.type, call.op);
    own.type = code.type;
    own.op = code.op;
  }
  void* arguments[] = {&own};
  const auto launched =
      device_.driver().launch_kernel(function_, columns == 0 ? useful_columns(call) : columns,
                                     call.rank < 0 && call.only < 0 ? static_cast<unsigned>(call.ranks) : 1, 1,
                                     reduction::kDeviceThreads, 1, 1, 0, stream, arguments, nullptr);
  return device_.driver().check(launched, "queuing on the stream");
}

}  // namespace tutti::internal
