// Memory whose first touch waits: holds a rank in the middle of a copy for as long as a test needs.
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "os/unique_fd.h"

namespace tutti::internal::test {

// Ordinary memory with empty pages. A thread that touches a page of the held part waits in userfaultfd(2).
class HeldPages {
 public:
  // REQUIRES: begin and size are multiples of the page size.
  HeldPages(std::size_t bytes, std::size_t begin, std::size_t size) : bytes_(bytes) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return;
    base_ = static_cast<std::byte*>(p);
    range_ = {reinterpret_cast<std::uintptr_t>(p) + begin, size};
    fd_ = open_fd();
    uffdio_register request{range_, UFFDIO_REGISTER_MODE_MISSING, 0};
    ready_ = fd_.valid() && ::ioctl(fd_.get(), UFFDIO_REGISTER, &request) == 0;
  }
  HeldPages(const HeldPages&) = delete;
  HeldPages& operator=(const HeldPages&) = delete;
  ~HeldPages() { ::munmap(base_, bytes_); }

  // Whether this kernel supports held memory.
  static bool possible() { return HeldPages(4096, 0, 4096).ready_; }

  [[nodiscard]] std::byte* base() const { return base_; }
  // Whether a thread was held before `timeout_ms` had passed.
  [[nodiscard]] bool wait_until_held(int timeout_ms) const {
    pollfd p{fd_.get(), POLLIN, 0};
    return ::poll(&p, 1, timeout_ms) == 1;
  }
  // Releases all held threads, and later ones.
  void release() { (void)::ioctl(fd_.get(), UFFDIO_UNREGISTER, &range_); }

 private:
  static UniqueFd open_fd() {
    UniqueFd fd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
    uffdio_api api{UFFD_API, 0, 0};
    if (fd.valid() && ::ioctl(fd.get(), UFFDIO_API, &api) != 0) return {};
    return fd;
  }

  std::size_t bytes_;
  std::byte* base_ = nullptr;
  uffdio_range range_{};
  UniqueFd fd_;
  bool ready_ = false;
};

}  // namespace tutti::internal::test
