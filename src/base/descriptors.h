// Open files: how many this process may have, and how many its communicators may need.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace tutti::internal {

// While it lives, the soft limit of open files (RLIMIT_NOFILE) is raised by `count`, as far as the hard limit allows:
// the program keeps as many for itself as it had. The limit is not lowered again, but what has been given back is
// used first. Any thread.
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

// True if a call failed because this process or this machine has no descriptor or memory left, which is nobody
// else's fault and may pass.
bool means_exhaustion(int error_number);

// For messages, behind the text of EMFILE or ENFILE: which limit it was and how it is raised. Empty for others.
std::string descriptor_advice(int error_number);

}  // namespace tutti::internal
