#include "transport/event_set.h"

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "transport/transport.h"

namespace tutti::internal::transport {
namespace {

// A link of 16 streams, and some more.
constexpr std::size_t kEventsAtOnce = 32;
// Limit of one call of take(): peers that send without a pause must not keep the caller in it.
constexpr int kMostRounds = 64;

bool add(int set, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events | EPOLLET;
  return ::epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}

}  // namespace

Result<EventSet> EventSet::create() {
  static std::atomic<std::uint64_t> last_id{0};
  UniqueFd fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!fd.valid()) return Status::system("epoll_create1", errno);
  return EventSet(std::move(fd), last_id.fetch_add(1, std::memory_order_relaxed) + 1);
}

Status EventSet::add_wakeup(int fd) const {
  return add(fd_.get(), fd, EPOLLIN) ? Status() : Status::system("epoll_ctl", errno);
}

void EventSet::remove_wakeup(int fd) const {
  (void)::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

bool EventSet::watch(Link& link) const {
  if (link.watched_in_ == id_) return true;
  for (const int fd : link.wait_fds()) {
    if (!add(fd_.get(), fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP)) return false;
  }
  link.watched_in_ = id_;
  return true;
}

void EventSet::unwatch(Link& link) const {
  if (link.watched_in_ != id_) return;
  for (const int fd : link.wait_fds()) (void)::epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
  link.watched_in_ = 0;
}

bool EventSet::take(int longest_ms) const {
  std::array<epoll_event, kEventsAtOnce> events{};
  const auto most = static_cast<int>(events.size());
  int ready = ::epoll_wait(fd_.get(), events.data(), most, longest_ms);
  const bool any = ready > 0;
  for (int round = 1; ready == most && round < kMostRounds; ++round) {
    ready = ::epoll_wait(fd_.get(), events.data(), most, 0);
  }
  return any;
}

}  // namespace tutti::internal::transport
