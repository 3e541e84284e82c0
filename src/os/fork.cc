#include "os/fork.h"

#include <pthread.h>

#include <atomic>
#include <utility>

namespace tutti::internal {

// The handlers of pthread_atfork(3). What is enlisted between the first and the last of them is not called.
struct ForkHandlers {
  static inline constinit std::atomic<bool> registered{false};
  static inline constinit std::atomic<ForkAware*> newest{nullptr};
  // State of the current fork: written while all of them are held, so by one thread at a time.
  static inline constinit ForkAware* first = nullptr;

  static void add(ForkAware* one) {
    // Fails if there is no memory: then forks are only as safe as without this class.
    if (!registered.exchange(true)) static_cast<void>(::pthread_atfork(before, in_parent, in_child));
    one->next_ = newest.load();
    while (!newest.compare_exchange_weak(one->next_, one)) {
    }
  }
  static void before() {
    ForkAware* const head = newest.load();
    for (ForkAware* one = head; one != nullptr; one = one->next_) one->before_fork();
    if (head != nullptr) first = head;
  }
  static void in_parent() {
    for (ForkAware* one = first; one != nullptr;) std::exchange(one, one->next_)->after_fork_in_parent();
  }
  static void in_child() {
    for (ForkAware* one = first; one != nullptr;) std::exchange(one, one->next_)->after_fork_in_child();
  }
};

void ForkAware::enlist() {
  ForkHandlers::add(this);
}

}  // namespace tutti::internal
