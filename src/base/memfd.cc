#include "base/memfd.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace tutti::internal {
namespace {

// ftruncate(2) without the signal that the kernel sends the calling thread where RLIMIT_FSIZE is lower. Returns an
// error number, or 0.
int set_size(int fd, std::size_t bytes) {
  sigset_t limit;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&limit);
  sigaddset(&limit, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &limit, &before);
  sigemptyset(&pending);
  ::sigpending(&pending);
  const int error = ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  if (error == EFBIG && sigismember(&pending, SIGXFSZ) == 0) {
    const timespec at_once{};
    while (::sigtimedwait(&limit, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

Status too_big(std::size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0) return Status::system("sizing shared memory", EFBIG);
  return Status::system(fmt::format("shared memory of {} bytes (this process may make files of {}, RLIMIT_FSIZE: raise "
                                    "it by ulimit -f)",
                                    bytes, limit.rlim_cur),
                        EFBIG);
}

}  // namespace

Result<UniqueFd> make_memfd(const char* name, std::size_t bytes) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::system("memfd_create", errno);
  if (const int error = set_size(fd.get(), bytes); error != 0) {
    return error == EFBIG ? too_big(bytes) : Status::system("sizing shared memory", error);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Status::system("sealing shared memory", errno);
  }
  return fd;
}

}  // namespace tutti::internal
