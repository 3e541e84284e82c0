#include "transport/wakeup_fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/asymmetric_fence.h"

namespace tutti::internal::transport {

Result<WakeupFd> WakeupFd::create() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return Status::system("eventfd", errno);
  register_for_asymmetric_fence();
  return WakeupFd(std::move(fd));
}

void WakeupFd::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(fd_.get(), &count, sizeof count);
}

void ring(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(fd, &one, sizeof one);
}

}  // namespace tutti::internal::transport
