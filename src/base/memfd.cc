#include "base/memfd.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "base/control_group.h"
#include "os/held_signal.h"

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

Status size(const UniqueFd& fd, std::size_t bytes) {
  const int error = set_size(fd.get(), bytes);
  if (error == 0) return {};
  return error == EFBIG ? too_big(bytes) : Status::system("sizing shared memory", error);
}

Result<UniqueFd> make(const char* name, std::size_t bytes, int seals) {
  UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::system("memfd_create", errno);
  if (Status s = size(fd, bytes); !s.is_ok()) return s;
  if (::fcntl(fd.get(), F_ADD_SEALS, seals | F_SEAL_SEAL) != 0) return Status::system("sealing shared memory", errno);
  return fd;
}

}  // namespace

Result<UniqueFd> make_memfd(const char* name, std::size_t bytes) {
  return make(name, bytes, F_SEAL_SHRINK | F_SEAL_GROW);
}

Result<UniqueFd> make_growing_memfd(const char* name) {
  return make(name, 0, F_SEAL_SHRINK);
}

Status map_error(const std::string& what, int error_number) {
  Status status = Status::system(what, error_number);
  // With advice if there is memory for the text.
  const Status advised = guarded([&] { return Status::system(what + memory_advice(error_number), error_number); });
  return advised.message().size() > status.message().size() ? advised : status;
}

Status grow_memfd(const UniqueFd& fd, std::size_t bytes) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return Status::system("inspecting shared memory", errno);
  return static_cast<std::size_t>(info.st_size) >= bytes ? Status() : size(fd, bytes);
}

}  // namespace tutti::internal
