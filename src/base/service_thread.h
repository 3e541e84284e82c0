// The library's own threads: a stack that suits them, the default floating-point mode, and no signals, which belong to
// the application. No other way to start one is used.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>

#include "base/status.h"

namespace tutti::internal {

// Address space, not memory: pages count when touched. Not the system's minimum of 16 KiB, since the C library
// places the thread-local variables of all loaded libraries on the stack as well. For threads that sleep nearly always.
inline constexpr std::size_t kServiceStackBytes = std::size_t{256} << 10;
// For threads that run operations, whatever the limit of the process.
inline constexpr std::size_t kWorkStackBytes = std::size_t{2} << 20;

// Neither starting nor ending, the thread itself allocates or frees anything. Only the signals that its own faults
// raise are not blocked: a handler of crashes shall hear of them.
Status start_thread(pthread_t* thread, void* (*body)(void*), void* argument, std::size_t stack_bytes);

class ServiceThread {
 public:
  ServiceThread() = default;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;
  // Joins. The owner of the thread has told it to end before.
  ~ServiceThread() { join(); }

  Status start(std::function<void()> body, std::size_t stack_bytes = kServiceStackBytes);
  void join();
  // In a forked child, where the thread is not.
  void forget() { running_ = false; }
  [[nodiscard]] bool running() const { return running_; }

 private:
  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace tutti::internal
