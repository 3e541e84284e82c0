#include "os/fork.h"

#include <pthread.h>

#include <atomic>
#include <utility>

namespace tutti::internal {

// The handlers of pthread_atfork(3). Between the first and the last of them no other thread can enlist anything: an
// object that the child's other objects know, but the handlers do not, may be in the middle of a change.
struct ForkHandlers {
  // Taken after all that the objects wait for, so that a thread that enlists one may hold any of that. The forking
  // thread has it during the fork, and may enlist more.
  static inline constinit pthread_mutex_t enlisting = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

  static inline constinit std::atomic<bool> registered{false};
  static inline constinit std::atomic<ForkAware*> newest{nullptr};
  // State of the current fork: written while all of them are held, so by one thread at a time.
  static inline constinit ForkAware* first = nullptr;

  static void add(ForkAware* one) {
    // Fails if there is no memory: then forks are only as safe as without this class.
    if (!registered.exchange(true)) static_cast<void>(::pthread_atfork(before, in_parent, in_child));
    (void)::pthread_mutex_lock(&enlisting);
    one->next_ = newest.load();
    newest.store(one);
    (void)::pthread_mutex_unlock(&enlisting);
  }
  static void before() {
    ForkAware* held = nullptr;
    for (;;) {
      ForkAware* const head = newest.load();
      for (ForkAware* one = head; one != held; one = one->next_) one->before_fork();
      held = head;
      (void)::pthread_mutex_lock(&enlisting);
      if (newest.load() == held) break;
      (void)::pthread_mutex_unlock(&enlisting);
    }
    first = held;
  }
  static void in_parent() {
    ForkAware* one = first;
    (void)::pthread_mutex_unlock(&enlisting);
    while (one != nullptr) std::exchange(one, one->next_)->after_fork_in_parent();
  }
  static void in_child() {
    // Its owner is a thread of the parent.
    enlisting = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    for (ForkAware* one = first; one != nullptr;) std::exchange(one, one->next_)->after_fork_in_child();
  }
};

void ForkAware::enlist() {
  ForkHandlers::add(this);
}

}  // namespace tutti::internal
