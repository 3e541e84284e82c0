// The thread of the control tree that watches the connections from init to finalize.
#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "bootstrap/socket_tree.h"
#include "net/socket.h"

namespace tutti::internal::control {
namespace {

constexpr std::int64_t kFlushMs = 500;  // for the leave notice to leave
constexpr std::int64_t kLingerMs = 50;  // for the neighbours to close their side: normally microseconds

}  // namespace

Status SocketTree::watch(std::shared_ptr<FailureState> failure, Witness witness) {
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return Status::system("eventfd", errno);
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return Status::system("epoll_create1", errno);
  epoll_event wake_event{};
  wake_event.events = EPOLLIN;
  wake_event.data.ptr = nullptr;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake_.get(), &wake_event) != 0) return Status::system("epoll_ctl", errno);
  for (Neighbour& neighbour : neighbours_) {
    if (!neighbour.socket.valid()) continue;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &neighbour;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, neighbour.socket.get(), &event) != 0) {
      return Status::system("epoll_ctl", errno);
    }
  }
  failure_ = std::move(failure);
  witness_ = std::move(witness);
  if (!early_failure_.is_ok()) failure_->fail(early_failure_);
  for (const auto& [rank, calls] : departed()) failure_->set_departed({rank, calls.operations});
  epoll_ = std::move(epoll);
  Status started = thread_.start([this] {
    while (!ending_) attempt([this] { watch_once(); });
  });
  watching_ = started.is_ok();
  return started;
}

// A rank without memory to send anything must look dead to its neighbours: no rank is to wait for it.
void SocketTree::attempt(const std::function<void()>& speak) noexcept {
  const Status s = guarded([&] { return speak(), Status(); });
  if (s.is_ok()) return;
  if (failure_) failure_->fail(s);
  for (Neighbour& neighbour : neighbours_) neighbour.socket.reset();
}

void SocketTree::watch_once() {
  constexpr int kEvents = 8;
  epoll_event events[kEvents];
  const int ready = ::epoll_wait(epoll_.get(), events, kEvents, round_wait_ms());
  if (ready < 0 && errno != EINTR) {
    ending_ = true;
    failure_->fail(Status::system("the control connections cannot be watched: epoll_wait", errno));
    return;
  }
  for (int i = 0; i < ready; ++i) {
    auto* neighbour = static_cast<Neighbour*>(events[i].data.ptr);
    if (neighbour == nullptr || !neighbour->socket.valid()) continue;
    if ((events[i].events & EPOLLOUT) != 0) flush(neighbour);
    if ((events[i].events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) read_from(neighbour);
  }
  handle_commands();
  advance_round();
}

// Waits for the socket to take more exactly while there is more.
void SocketTree::arm(Neighbour* neighbour) {
  const bool wanted = !neighbour->writer.empty();
  if (wanted == neighbour->write_armed || !neighbour->socket.valid()) return;
  epoll_event event{};
  event.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = neighbour;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, neighbour->socket.get(), &event) == 0) neighbour->write_armed = wanted;
}

// Does what other threads have asked for.
void SocketTree::handle_commands() {
  std::uint64_t count = 0;
  if (::read(wake_.get(), &count, sizeof count) < 0) return;  // nobody has asked
  Status announcement;
  std::vector<std::vector<CallRecord>> reports;
  std::vector<Question> questions;
  bool leaving = false;
  bool comparing = false;
  bool finishing = false;
  {
    const MutexLock lock(mutex_);
    announcement = announcement_;
    reports.swap(reports_);
    questions.swap(questions_);
    leaving = leaving_;
    comparing = comparing_;
    finishing = finishing_;
    ending_ = leaving_ || stopping_;
  }
  if (!announcement.is_ok()) broadcast_failure(announcement);
  if (!reports.empty()) judge_departed();
  for (std::vector<CallRecord>& calls : reports) on_calls({rank_, std::move(calls)});
  for (const Question& question : questions) inquire(question);
  if (comparing) ask_for_calls(nullptr);
  if (finishing) send_leave_notice();
  if (leaving) depart();
}

// Once: later, all know of a failure already.
void SocketTree::broadcast_failure(const Status& failure) {
  if (std::exchange(any_notice_, true)) return;
  flood(pack_notice({failure.code(), rank_, -1, fmt::format("rank {}: {}", rank_, failure.message())}), nullptr);
}

// Sends the leave notice. The peers' answers are read to the end before the sockets close: closing a socket with
// unread bytes resets it, which may overtake the leave notice on its way.
void SocketTree::depart() {
  left_ = true;
  epoll_.reset();
  send_leave_notice();
  const Deadline flushed = Deadline::after_ms(kFlushMs);
  const Deadline closed = Deadline::after_ms(kLingerMs);
  net::PollSet set;
  for (;;) {
    bool open = false;
    set.clear(static_cast<int>(kLingerMs));
    for (Neighbour& neighbour : neighbours_) {
      if (!neighbour.socket.valid()) continue;
      if (neighbour.writer.empty()) ::shutdown(neighbour.socket.get(), SHUT_WR);
      set.add(neighbour.socket.get(), static_cast<short>(neighbour.writer.empty() ? POLLIN : POLLIN | POLLOUT));
      open = true;
    }
    set.wake_at(all_sent() ? closed : flushed);
    if (!open || (all_sent() ? closed : flushed).passed() || !set.wait().is_ok()) break;
    for (Neighbour& neighbour : neighbours_) {
      if (neighbour.socket.valid()) flush(&neighbour);
      read_from(&neighbour);
    }
  }
  for (Neighbour& neighbour : neighbours_) neighbour.socket.reset();
}

}  // namespace tutti::internal::control
