#include "transport/verbs/open_context.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "transport/verbs/open_link_set.h"
#include "transport/verbs/ports/devices.h"

namespace tutti::internal::transport::verbs {
namespace {

// User memory that stays registered between operations.
constexpr std::size_t kMostRegisteredBytes = std::size_t{64} << 30;

memory::MemoryMonitor* watch_for(const Options& options) {
  if (!options.cache) return nullptr;
  std::string why;
  memory::MemoryMonitor* const watch = memory::MemoryMonitor::instance(&why);
  if (watch == nullptr) {
    log::warn(
        "RDMA copies through its slots, except memory of tuttiMemAlloc, as nothing reports when memory is unmapped: " +
        why);
  }
  return watch;
}

}  // namespace

OpenContext::OpenContext(const Options& options, std::vector<Port> ports)
    : options_(options),
      ports_(std::move(ports)),
      watch_(watch_for(options_)),
      devices_(ports_.size()),
      registrations_(*this, watch_, kMostRegisteredBytes) {}

std::shared_ptr<LinkSet> OpenContext::make_link_set() {
  return std::make_shared<OpenLinkSet>(shared_from_this());
}

// A thread that finds a device here may use registrations with it. So the device becomes visible only after
// registrations without it are no longer found.
Result<Device*> OpenContext::device(std::size_t index) {
  const MutexLock opening(opening_);
  {
    const MutexLock lock(mutex_);
    if (devices_[index] != nullptr) return devices_[index].get();
  }
  auto opened = Device::open(ports_[index], through_manager(ports_[index]));
  if (!opened.is_ok()) return opened.status();
  Device* const device = opened->get();
  {
    const MutexLock lock(mutex_);
    devices_[index] = std::move(*opened);
  }
  registrations_.forget_all();
  return device;
}

Status OpenContext::register_memory(const std::byte* begin, std::size_t bytes, memory::RdmaKeys* keys,
                                    std::uint64_t* handle) {
  const MutexLock lock(mutex_);
  Registration registration;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i] == nullptr) continue;
    auto memory = devices_[i]->register_memory(begin, bytes);
    if (!memory.is_ok()) return memory.status();
    keys->lkeys[i] = (*memory)->lkey;
    keys->rkeys[i] = (*memory)->rkey;
    registration.by_device[i] = std::move(*memory);
  }
  *handle = next_handle_++;
  by_handle_.emplace(*handle, std::move(registration));
  return {};
}

void OpenContext::deregister(std::uint64_t handle) {
  const MutexLock lock(mutex_);
  by_handle_.erase(handle);
}

Result<std::shared_ptr<RdmaContext>> RdmaContext::open(const Options& options, const std::vector<int>& far_nodes) {
  auto ports = choose_ports(options, far_nodes);
  if (!ports.is_ok()) return ports.status();
  if (ports->size() > kMaxRails) ports->resize(kMaxRails);
  auto context = std::make_shared<OpenContext>(options, std::move(*ports));
  if (Status s = OpenLinkSet(context).probe(); !s.is_ok()) return s;
  return std::shared_ptr<RdmaContext>(std::move(context));
}

}  // namespace tutti::internal::transport::verbs
