// The limit of open files of this process, and the needs of its communicators.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace tutti::internal {

// Raises the soft limit of open files (RLIMIT_NOFILE) by `count`, up to the hard limit, so that the program can still
// open as many files as before. The limit is not lowered again; later reservations first use returned descriptors. Any
// thread.
class DescriptorReservation {
 public:
  DescriptorReservation() = default;
  explicit DescriptorReservation(std::size_t count);
  DescriptorReservation(DescriptorReservation&& other) noexcept : count_(std::exchange(other.count_, 0)) {}
  DescriptorReservation& operator=(DescriptorReservation&& other) noexcept {
    std::swap(count_, other.count_);
    return *this;
  }
  DescriptorReservation(const DescriptorReservation&) = delete;
  DescriptorReservation& operator=(const DescriptorReservation&) = delete;
  ~DescriptorReservation();

 private:
  std::size_t count_ = 0;
};

// True if a call failed because this process or this machine has no descriptor or memory left: no error of a peer, and
// perhaps temporary.
bool means_exhaustion(int error_number);

// For messages, after the text of EMFILE or ENFILE: the limit and how to raise it. Empty for other errors.
std::string descriptor_advice(int error_number);

}  // namespace tutti::internal
