#include "shared_threads.h"

#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "threads.h"

namespace tutti_torch {
namespace {

constexpr std::chrono::seconds kIdle{2};

}  // namespace

// Never destroyed: its threads end with the process. A child of a fork has none of them.
SharedThreads& SharedThreads::get() {
  static std::atomic<SharedThreads*> threads = [] {
    (void)pthread_atfork(nullptr, nullptr, [] { threads = new SharedThreads; });
    return new SharedThreads;
  }();
  return *threads;
}

void SharedThreads::run(std::function<void()> job) {
  const std::lock_guard<std::mutex> lock(mutex_);
  jobs_.push_back(std::move(job));
  if (idle_ >= jobs_.size()) {
    changed_.notify_one();
    return;
  }
  try {
    start_thread([this] { serve(); }).detach();
  } catch (...) {
    jobs_.pop_back();
    throw;
  }
}

void SharedThreads::serve() {
  c10::setThreadName("tutti_futures");
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    while (jobs_.empty()) {
      ++idle_;
      const bool called = changed_.wait_for(lock, kIdle, [this] { return !jobs_.empty(); });
      --idle_;
      if (!called) return;
    }
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      job();
    } catch (const std::exception& e) {
      TORCH_WARN("tutti: a job of the process group has failed: ", e.what());
    }
    job = nullptr;
    lock.lock();
  }
}

}  // namespace tutti_torch
