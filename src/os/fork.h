// Process-wide objects must be consistent in a forked child. Another thread may be changing one when a thread forks,
// and that thread does not exist in the child to finish the change.
#pragma once

#include "os/mutex.h"

namespace tutti::internal {

// An object that waits for its users before a fork, and is notified afterwards. REQUIRES: it lives as long as the
// process, and no thread holds what before_fork() waits for while it waits for another such object.
class ForkAware {
 public:
  ForkAware(const ForkAware&) = delete;
  ForkAware& operator=(const ForkAware&) = delete;
  virtual void before_fork() = 0;
  virtual void after_fork_in_parent() = 0;
  // In the forked child's only thread. Must not allocate.
  virtual void after_fork_in_child() = 0;

 protected:
  ForkAware() = default;
  virtual ~ForkAware() = default;
  // The constructor must call this last.
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
