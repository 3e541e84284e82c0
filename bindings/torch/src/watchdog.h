// Looks after the channels of the process while something is on its way in them: that tensors are freed when nobody
// waits, and that no rank waits long for what another has refused.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "channel.h"

namespace tutti_torch {

// One thread, made for the first channel, which sleeps while no channel has anything on its way. Any thread.
class Watchdog {
 public:
  static Watchdog& get();
  void add(const std::shared_ptr<Channel>& channel);
  // Finds what has ended by now.
  void settle_all();
  // A channel has something on its way.
  void wake() {
    if (asleep_.load(std::memory_order_relaxed)) wake_up();
  }

 private:
  Watchdog() = default;
  void run();
  void wake_up();
  bool look_after_all();
  std::vector<std::shared_ptr<Channel>> channels();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::weak_ptr<Channel>> channels_;
  bool running_ = false;
  std::atomic<bool> asleep_{false};
};

}  // namespace tutti_torch
