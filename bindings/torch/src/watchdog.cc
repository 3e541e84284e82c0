#include "watchdog.h"

#include <c10/util/thread_name.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "python_exit.h"
#include "threads.h"

namespace tutti_torch {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

}  // namespace

// Never destroyed: its thread ends with the process. A child of a fork has no such thread, and none of its parent's
// groups.
Watchdog& Watchdog::get() {
  static std::atomic<Watchdog*> watchdog = [] {
    (void)pthread_atfork(nullptr, nullptr, [] { watchdog = new Watchdog; });
    return new Watchdog;
  }();
  return *watchdog;
}

void Watchdog::add(const std::shared_ptr<Channel>& channel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(channels_, [](const std::weak_ptr<Channel>& one) { return one.expired(); });
  channels_.push_back(channel);
  if (running_) return;
  start_thread([this] { run(); }).detach();
  running_ = true;
}

void Watchdog::wake_up() {
  const std::lock_guard<std::mutex> lock(mutex_);
  asleep_ = false;
  changed_.notify_all();
}

// An operation that begins while this goes to sleep is seen by the look between.
void Watchdog::run() {
  c10::setThreadName("tutti_watchdog");
  for (;;) {
    std::this_thread::sleep_for(kInterval);
    if (look_after_all()) continue;
    asleep_ = true;
    if (look_after_all()) {
      asleep_ = false;
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !asleep_; });
  }
}

std::vector<std::shared_ptr<Channel>> Watchdog::channels() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Channel>> alive;
  for (const auto& one : channels_) {
    if (auto channel = one.lock()) alive.push_back(std::move(channel));
  }
  return alive;
}

void Watchdog::settle_all() {
  for (const auto& channel : channels()) (void)channel->is_idle();
}

// It may have the last channel that there is of a group, and all that the channel has.
bool Watchdog::look_after_all() {
  const PythonExit::Stay stay;
  if (!stay.granted()) return false;
  bool any = false;
  for (const auto& channel : channels()) any = channel->look_after() || any;
  return any;
}

}  // namespace tutti_torch
