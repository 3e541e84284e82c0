#include "net/watch_set.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "os/kernel.h"

namespace tutti::internal::net {

static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT, "events of poll() are those of epoll_wait()");

Status WatchSet::open() {
  set_ = UniqueFd(os::kernel().epoll_create());
  return set_.valid() ? Status() : Status::system("epoll_create1", errno);
}

Status WatchSet::control(int operation, int fd, short events, void* owner) {
  epoll_event event{};
  event.events = static_cast<unsigned short>(events);
  event.data.ptr = owner;
  return os::kernel().epoll_ctl(set_.get(), operation, fd, &event) == 0 ? Status() : Status::system("epoll_ctl", errno);
}

Status WatchSet::add(int fd, short events, void* owner) {
  const Status added = control(EPOLL_CTL_ADD, fd, events, owner);
  if (added.is_ok()) ++added_;
  return added;
}

Status WatchSet::change(int fd, short events, void* owner) {
  return control(EPOLL_CTL_MOD, fd, events, owner);
}

void WatchSet::remove(int fd) {
  if (control(EPOLL_CTL_DEL, fd, 0, nullptr).is_ok()) --added_;
}

Result<std::span<const epoll_event>> WatchSet::ready() {
  ready_.resize(std::max<std::size_t>(1, added_));
  const int count = os::kernel().epoll_wait(set_.get(), ready_.data(), static_cast<int>(ready_.size()));
  if (count < 0 && errno != EINTR) return Status::system("epoll_wait", errno);
  return std::span<const epoll_event>(ready_.data(), static_cast<std::size_t>(std::max(0, count)));
}

}  // namespace tutti::internal::net
