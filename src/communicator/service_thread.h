// Threads that sleep nearly always: a small stack, and no signals, which belong to the application.
#pragma once

#include <pthread.h>

#include <functional>

#include "base/status.h"

namespace tutti {

class ServiceThread {
 public:
  ServiceThread() = default;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;
  // Joins. Whoever owns the thread has told it to end before.
  ~ServiceThread() { join(); }

  Status start(std::function<void()> body);
  void join();
  // Lets the thread go on by itself until it ends.
  void detach();
  [[nodiscard]] bool running() const { return running_; }

 private:
  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace tutti
