#include "base/event_fd.h"

#include <cerrno>

#include "os/kernel.h"

namespace tutti::internal {

Result<EventFd> EventFd::create() {
  UniqueFd fd(os::kernel().eventfd());
  if (!fd.valid()) return Status::system("eventfd", errno);
  return EventFd(std::move(fd));
}

void EventFd::ring(int fd) {
  if (fd >= 0) os::kernel().eventfd_write(fd);
}

void EventFd::clear() const {
  os::kernel().eventfd_read(fd());
}

}  // namespace tutti::internal
