#include "base/event_fd.h"

#include <sys/eventfd.h>

#include <cerrno>

namespace tutti::internal {

Result<EventFd> EventFd::create() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return Status::system("eventfd", errno);
  return EventFd(std::move(fd));
}

void EventFd::ring(int fd) {
  // Fails only if the counter is at its limit, and then it has been rung.
  if (fd >= 0) (void)::eventfd_write(fd, 1);
}

void EventFd::clear() const {
  eventfd_t count = 0;
  (void)::eventfd_read(fd(), &count);  // fails if nobody has rung
}

}  // namespace tutti::internal
