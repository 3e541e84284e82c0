// Memory without a name that other processes can be given, as memfd_create(2) makes it.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"
#include "os/unique_fd.h"

namespace tutti::internal {

// Of `bytes`, filled with zeros, and sealed: no process to which it is passed can change its size. (To shrink it would
// kill the processes that have it mapped, by SIGBUS.) `name` is for /proc. kSystemError names the limit that is too
// low; a size over RLIMIT_FSIZE is one, not the signal SIGXFSZ. Any thread.
Result<UniqueFd> make_memfd(const char* name, std::size_t bytes);

// Empty, and sealed against shrinking alone; and what makes it as large as that at least.
Result<UniqueFd> make_growing_memfd(const char* name);
Status grow_memfd(const UniqueFd& fd, std::size_t bytes);

// A failure of mmap(2), with the limits of memory if these may be the reason.
Status map_error(const std::string& what, int error_number);

}  // namespace tutti::internal
