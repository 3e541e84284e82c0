#include "transport/wakeup_fd.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/asymmetric_fence.h"

namespace tutti::internal::transport {

Result<WakeupFd> WakeupFd::create() {
  UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return Status::system("eventfd", errno);
  register_for_asymmetric_fence();
  WakeupFd made(std::move(fd));
  // Most ranks sleep in one thread: so that it can, whatever the program opens later.
  auto place = made.make_place();
  if (!place.is_ok()) return place.status();
  const MutexLock lock(made.state_->mutex);
  made.state_->places.push_back(std::move(*place));
  return made;
}

Status WakeupFd::add_to(const UniqueFd& epoll) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  return ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd(), &event) == 0 ? Status() : Status::system("epoll_ctl", errno);
}

Result<UniqueFd> WakeupFd::make_place() const {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::system("epoll_create1", errno);
  if (Status s = add_to(epoll); !s.is_ok()) return s;
  const MutexLock lock(state_->mutex);
  state_->places.reserve(state_->made + 1);
  ++state_->made;
  return epoll;
}

SleepingPlace::SleepingPlace(const WakeupFd& wakeup_fd) : wakeup_fd_(wakeup_fd) {
  {
    const MutexLock lock(wakeup_fd.state_->mutex);
    auto& places = wakeup_fd.state_->places;
    if (!places.empty()) {
      epoll_ = std::move(places.back());
      places.pop_back();
      return;
    }
  }
  auto made = guarded_result([&] { return wakeup_fd.make_place(); });
  if (made.is_ok()) epoll_ = std::move(*made);
}

SleepingPlace::~SleepingPlace() {
  if (!epoll_.valid()) return;
  const MutexLock lock(wakeup_fd_.state_->mutex);
  wakeup_fd_.state_->places.push_back(std::move(epoll_));
}

void SleepingPlace::sleep(int longest_ms) const {
  if (!epoll_.valid()) {
    (void)::poll(nullptr, 0, std::min(longest_ms, kUnfencedSleepMs));
    return;
  }
  epoll_event event{};
  (void)::epoll_wait(epoll_.get(), &event, 1, longest_ms);
}

void ring(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(fd, &one, sizeof one);
}

}  // namespace tutti::internal::transport
