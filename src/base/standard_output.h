// Output of programs: a full disk behind `program > file` must not look like success.
#pragma once

#include <cerrno>
#include <cstdio>

#include "base/status.h"

namespace tutti::internal {

// Flushes the output; an error if this or an earlier write has failed.
inline Status flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return Status::ok();
  // For an earlier failure, the stream does not store the errno.
  return errno == 0 ? Status{Code::kSystemError, "cannot write to standard output; is its disk full?"}
                    : Status::system("cannot write to standard output", errno);
}

}  // namespace tutti::internal
