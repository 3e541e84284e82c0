#include "transport/doorbell.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/asymmetric_fence.h"

namespace tutti::internal::transport {

Result<Doorbell> Doorbell::create() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return Status::system("eventfd", errno);
  register_for_heavy_fence();
  return Doorbell(std::move(fd));
}

void Doorbell::clear() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(fd_.get(), &count, sizeof count);
}

void ring(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(fd, &one, sizeof one);
}

}  // namespace tutti::internal::transport
