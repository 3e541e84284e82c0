// How a thread that sleeps on descriptors is woken by others: an eventfd. All wakers of the library are of this class.
//
// Threads: any; reset() by the last that uses it.
#pragma once

#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tutti::internal {

class EventFd {
 public:
  // None yet.
  EventFd() = default;
  static Result<EventFd> create();

  [[nodiscard]] bool valid() const { return fd_.valid(); }
  // Readable once it has been rung, until it is cleared; -1: none. Another process may have a copy.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Wakes who sleeps on it, now or at the next sleep. Nothing where there is none.
  void ring() const { ring(fd()); }
  static void ring(int fd);
  void clear() const;
  void reset() { fd_.reset(); }

 private:
  explicit EventFd(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace tutti::internal
