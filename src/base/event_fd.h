// An eventfd: it wakes a thread that sleeps on descriptors. The library wakes threads only with this class or with a
// condition variable.
//
// Threads: any; reset() by its last user.
#pragma once

#include <utility>

#include "base/status.h"
#include "os/unique_fd.h"

namespace tutti::internal {

class EventFd {
 public:
  // None yet.
  EventFd() = default;
  static Result<EventFd> create();

  [[nodiscard]] bool valid() const { return fd_.valid(); }
  // Readable from ring() until clear(); -1: there is no descriptor. Another process may have a copy.
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Wakes the thread that sleeps on it, now or at its next sleep. Without a descriptor it does nothing.
  void ring() const { ring(fd()); }
  static void ring(int fd);
  void clear() const;
  void reset() { fd_.reset(); }

 private:
  explicit EventFd(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace tutti::internal
