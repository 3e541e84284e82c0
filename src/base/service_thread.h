// The library's own threads: explicit stack sizes, the default floating-point mode, and all signals blocked, because
// these belong to the application. The library starts all its threads here.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>

#include "base/status.h"

namespace tutti::internal {

// Address space, not memory: pages count when touched. More than the system's minimum of 16 KiB, because the C library
// also places the thread-local variables of all loaded libraries on the stack. For threads that nearly always sleep.
inline constexpr std::size_t kServiceStackBytes = std::size_t{256} << 10;
// For threads that run operations, independent of the limit of the process.
inline constexpr std::size_t kWorkStackBytes = std::size_t{2} << 20;

// The thread itself allocates and frees nothing at its start and end. Only the signals of its own faults are not
// blocked, so that crash handlers get them.
Status start_thread(pthread_t* thread, void* (*body)(void*), void* argument, std::size_t stack_bytes);

class ServiceThread {
 public:
  ServiceThread() = default;
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;
  // Joins. The owner must have signalled the thread to end before.
  ~ServiceThread() { join(); }

  Status start(std::function<void()> body, std::size_t stack_bytes = kServiceStackBytes);
  void join();
  // For a forked child, in which the thread does not exist.
  void forget() { running_ = false; }
  [[nodiscard]] bool running() const { return running_; }

 private:
  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace tutti::internal
