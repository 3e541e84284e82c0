// Programs call this first: a file that a program opens must not become its standard input, output or error.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace tutti::internal {

// Opens /dev/null on each of the descriptors 0, 1 and 2 that is closed. Without it the next file that the program opens
// gets the closed number, and what the program prints goes into that file. Programs that this one starts inherit
// /dev/null. REQUIRES: no other thread opens files.
inline void open_missing_standard_streams() {
  int fd = 0;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

}  // namespace tutti::internal
