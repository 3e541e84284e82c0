#include "base/memfd.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/held_signal.h"

namespace tutti::internal {
namespace {

// An error number, or 0.
int set_size(int fd, std::size_t bytes) {
  const HeldSignal over_the_limit(SIGXFSZ);  // RLIMIT_FSIZE
  return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
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
