#include "transport/verbs/device.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>

#include <atomic>
#include <cerrno>

#include "transport/verbs/connection_manager.h"

namespace tutti::internal::transport::verbs {
namespace {

Result<ibv_context*> open_context(const Library& library, const std::string& name) {
  int count = 0;
  ibv_device** const list = library.get_device_list(&count);
  if (list == nullptr) return Status::system("listing RDMA devices", errno);
  ibv_context* context = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count; ++i) {
    if (name != library.get_device_name(list[i])) continue;
    context = library.open_device(list[i]);
    error = errno;
  }
  library.free_device_list(list);
  if (context == nullptr) {
    const char* const hint = error == EACCES || error == EPERM || error == ENOENT
                                 ? " (is /dev/infiniband there, and may this user open it?)"
                                 : "";
    return Status::system("opening RDMA device " + name + hint, error);
  }
  return context;
}

}  // namespace

std::string locked_memory_hint(int error_number) {
  rlimit limit{};
  if ((error_number != ENOMEM && error_number != EAGAIN && error_number != EPERM) ||
      ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return {};
  }
  return fmt::format(
      "; this process may lock {} KiB of memory, RDMA needs more: `ulimit -l unlimited`, memlock in limits.conf(5), "
      "LimitMEMLOCK=infinity of a systemd service, or --ulimit memlock=-1 of a container",
      limit.rlim_cur / 1024);
}

Result<std::unique_ptr<Device>> Device::open(const Port& port, bool through_manager) {
  auto library = Library::load();
  if (!library.is_ok()) return library.status();
  std::unique_ptr<Device> device(new Device);
  device->library_ = *library;
  device->port_ = port;
  auto context = through_manager ? manager_context(port.device) : open_context(**library, port.device);
  if (!context.is_ok()) return context.status();
  device->context_ = *context;
  if (!through_manager) {
    device->own_context_ = Owned<ibv_context>(*context, (*library)->close_device);
    const int fd = (*context)->async_fd;
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
      return Status::system("events of RDMA device " + port.device, errno);
    }
  }
  device->domain_ = Owned<ibv_pd>((*library)->alloc_pd(*context), (*library)->dealloc_pd);
  if (device->domain_.get() == nullptr) return Status::system("protection domain on " + port.device, errno);
  return device;
}

Result<Owned<ibv_mr>> Device::register_memory(const void* begin, std::size_t bytes, bool readable) const {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  if (readable) access |= IBV_ACCESS_REMOTE_READ;
  ibv_mr* const mr = library_->reg_mr(domain_.get(), const_cast<void*>(begin), bytes, access);
  if (mr == nullptr) {
    const int error = errno;
    const Status why = Status::system(fmt::format("registering {} bytes with {}", bytes, port_.device), error);
    const bool full = error == ENOMEM || error == EAGAIN || error == EPERM || error == ENOSPC;
    return Status(full ? why.code() : Code::kInvalidArgument, why.message() + locked_memory_hint(error));
  }
  return Owned<ibv_mr>(mr, library_->dereg_mr);
}

std::string Device::remark() const {
  const MutexLock lock(mutex_);
  return port_down_ ? " (the port is down)" : "";
}

Status Device::gone(const std::string& why) const {
  return Status(Code::kSystemError, fmt::format("RDMA device {} is gone or broken ({})", port_.device, why));
}

Status Device::check_events() {
  const MutexLock lock(mutex_);
  errno = 0;
  // If the context belongs to librdmacm, librdmacm takes its events; the connection then reports errors.
  for (ibv_async_event event{}; !through_manager() && library_->get_async_event(context_, &event) == 0;) {
    const bool own_port = event.element.port_num == port_.port;
    if (event.event_type == IBV_EVENT_PORT_ERR && own_port) port_down_ = true;
    if (event.event_type == IBV_EVENT_PORT_ACTIVE && own_port) port_down_ = false;
    // The queue exists until the event is acknowledged.
    if (event.event_type == IBV_EVENT_CQ_ERR)
      static_cast<std::atomic<bool>*>(event.element.cq->cq_context)->store(true);
    if (event.event_type == IBV_EVENT_DEVICE_FATAL && broken_.is_ok()) {
      broken_ = gone(library_->event_text(event.event_type));
    }
    library_->ack_async_event(&event);
  }
  if (!through_manager() && errno == EIO && broken_.is_ok()) {
    broken_ = Status(Code::kSystemError, fmt::format("RDMA device {} is gone", port_.device));
  }
  return broken_;
}

}  // namespace tutti::internal::transport::verbs
