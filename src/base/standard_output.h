// What programs print is part of what they did: a full disk behind `program > file` must not pass for success.
#pragma once

#include <cerrno>
#include <cstdio>

#include "base/status.h"

namespace tutti::internal {

// Writes out what has been printed; an error if that or anything before has failed.
inline Status flush_standard_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return Status::ok();
  // Of an earlier failure the stream has kept no more than that there was one.
  return errno == 0 ? Status{Code::kSystemError, "cannot write to standard output; is its disk full?"}
                    : Status::system("cannot write to standard output", errno);
}

}  // namespace tutti::internal
