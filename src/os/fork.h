// What is process-wide must be whole in a forked child: another thread may be changing it when a thread forks, and
// that thread is not there in the child to end what it has begun.
#pragma once

#include "os/mutex.h"

namespace tutti::internal {

// Something that waits for its users before a fork, and is told afterwards. REQUIRES: it lives as long as the
// process, and what before_fork() waits for is never held while another such thing is waited for.
class ForkAware {
 public:
  ForkAware(const ForkAware&) = delete;
  ForkAware& operator=(const ForkAware&) = delete;
  virtual void before_fork() = 0;
  virtual void after_fork_in_parent() = 0;
  // In the thread that has forked, the only one. Must not allocate.
  virtual void after_fork_in_child() = 0;

 protected:
  ForkAware() = default;
  virtual ~ForkAware() = default;
  // The last thing that the constructor does.
  void enlist();

 private:
  friend struct ForkHandlers;
  ForkAware* next_ = nullptr;
};

// A mutex that is free in a forked child.
class ForkMutex final : public Mutex, public ForkAware {
 public:
  ForkMutex() { enlist(); }
  void before_fork() override TUTTI_ACQUIRE() { lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE() { unlock(); }
  void after_fork_in_child() override TUTTI_RELEASE() { unlock(); }  // which this thread has locked
};

}  // namespace tutti::internal
