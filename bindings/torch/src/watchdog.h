// Polls the channels of the process while they have operations in progress: it frees tensors that no thread waits for,
// and ends the wait for an operation that another rank has refused.
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
