// Many descriptors that one thread serves: a level-triggered epoll set. An event costs O(1), and a descriptor without
// one nothing, however many there are.
//
// Threads: one at a time.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "os/unique_fd.h"

namespace tutti::internal::net {

class WatchSet {
 public:
  Status open();
  // Readable (PollSet) while a descriptor of the set is ready. REQUIRES: open().
  [[nodiscard]] int fd() const { return set_.get(); }
  // `events`: POLLIN or POLLOUT. `owner`: whose descriptor it is.
  Status add(int fd, short events, void* owner);
  Status change(int fd, short events, void* owner);
  // Before it is closed: what a forked child has inherited stays open, and in the set.
  void remove(int fd);
  // The owners of all descriptors that are ready now: their data.ptr. Valid until the next call.
  Result<std::span<const epoll_event>> ready();

 private:
  Status control(int operation, int fd, short events, void* owner);

  UniqueFd set_;
  std::size_t added_ = 0;  // the most that can be ready
  std::vector<epoll_event> ready_;
};

}  // namespace tutti::internal::net
