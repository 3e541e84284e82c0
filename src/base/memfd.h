// Anonymous memory that can be passed to other processes (memfd_create(2)).
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "os/unique_fd.h"

namespace tutti::internal {

// `bytes` bytes of zeros, sealed: no process to which it is passed can change its size. (To shrink it would kill the
// processes that have it mapped, by SIGBUS.) `name` is for /proc. kSystemError names the limit that is too low; a size
// above RLIMIT_FSIZE is such an error and does not raise SIGXFSZ. Any thread.
Result<UniqueFd> make_memfd(const char* name, std::size_t bytes);

// Empty, and sealed only against shrinking; grow_memfd() enlarges it.
Result<UniqueFd> make_growing_memfd(const char* name);
Status grow_memfd(const UniqueFd& fd, std::size_t bytes);

// An error of mmap(2), with the memory limits if these may be the reason.
Status map_error(const std::string& what, int error_number);

}  // namespace tutti::internal
