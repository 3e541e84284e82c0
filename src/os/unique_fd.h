// Owner of a file descriptor.
//
// It never has the number of a standard stream: if the application has closed one, the kernel gives that number to the
// next descriptor, and output to the stream would go into a connection.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "os/kernel.h"

namespace tutti::internal {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd >= 0 && fd <= STDERR_FILENO ? moved(fd) : fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) os::kernel().close(fd_);
    fd_ = -1;
  }

 private:
  // If no other number is free, it keeps its number.
  static int moved(int fd) {
    const int other = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (other < 0) return fd;
    ::close(fd);
    return other;
  }

  int fd_ = -1;
};

}  // namespace tutti::internal
