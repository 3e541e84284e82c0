// An eventfd: it wakes a thread that sleeps on descriptors. The library wakes threads by this class alone, or by a
// condition variable.
//
// Threads: any; reset() by the last that uses it.
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
  // Readable from a ring until clear(); -1: there is none. Another process may have a copy.
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
