#include "transport/doorbell.h"

#include <linux/membarrier.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace tutti::transport {
namespace {

long membarrier(int command) {
  return ::syscall(SYS_membarrier, command, 0U, 0);
}

}  // namespace

Result<Doorbell> Doorbell::create() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return Status::system("eventfd", errno);
  // Again, for a process that was forked after the library was loaded.
  if (heavy_fence_works()) (void)membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
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

const bool detail::heavy_fence_works = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;

void heavy_fence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (heavy_fence_works()) (void)membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

}  // namespace tutti::transport
