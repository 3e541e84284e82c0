// An epoll set in which one thread sleeps until a peer acts: on the wakeup fds and the links' descriptors in it.
//
// The set watches each descriptor edge-triggered. It reports each event once, and keeps events that happen between two
// sleeps. So the reader of a descriptor need not drain it.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <utility>

#include "base/status.h"
#include "os/unique_fd.h"

namespace tutti::internal::transport {

class Link;

class EventSet {
 public:
  EventSet() = default;
  static Result<EventSet> create();

  [[nodiscard]] bool valid() const { return fd_.valid(); }
  // A wakeup fd, unless it is in the set.
  [[nodiscard]] Status add_wakeup(int fd) const;
  void remove_wakeup(int fd) const;
  // From now on the set reports what happens on the link's descriptors. A descriptor that is ready when it is added
  // gives an event. False if the kernel is short of memory: the caller tries again.
  [[nodiscard]] bool watch(Link& link) const;
  // Does nothing unless this set was the last to watch the link.
  void unwatch(Link& link) const;
  // Waits for an event, at most `longest_ms`; -1: without a limit. Takes all events. Returns whether there was one.
  [[nodiscard]] bool take(int longest_ms) const;

 private:
  EventSet(UniqueFd fd, std::uint64_t id) : fd_(std::move(fd)), id_(id) {}
  UniqueFd fd_;
  std::uint64_t id_ = 0;  // never used again, unlike the descriptor
};

}  // namespace tutti::internal::transport
