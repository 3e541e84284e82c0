// A process-wide object that its first user makes. Unlike a function-local static variable it takes no lock. So a child
// that is forked while another thread makes it does not wait for that thread, which does not exist in the child, but
// makes its own. Therefore the library has no function-local static variables with dynamic initialisation
// (tests/tidy/guards.py).
#pragma once

#include <atomic>
#include <memory>

namespace tutti::internal {

// If several threads make the object at the same time, only one is used. The others are freed, unless other code refers
// to them, such as objects enlisted for forks (fork.h).
enum class Surplus { kFreed, kKept };

// In static storage, and constinit. Never destroyed: threads and static objects of the program may use it until the
// process ends.
template <typename T, Surplus kSurplus = Surplus::kFreed>
class FirstUse {
 public:
  // make() may run in several threads at a time.
  template <typename Make>
  T& get(Make make) {
    T* const made = made_.load(std::memory_order_acquire);
    if (made != nullptr) [[likely]]
      return *made;
    return publish(std::unique_ptr<T>(new T(make())));
  }
  T& get() {
    return get([] { return T(); });
  }

 private:
  [[gnu::noinline]] T& publish(std::unique_ptr<T> own) {
    T* made = nullptr;
    if (made_.compare_exchange_strong(made, own.get(), std::memory_order_acq_rel, std::memory_order_acquire)) {
      return *own.release();
    }
    if constexpr (kSurplus == Surplus::kKept) static_cast<void>(own.release());
    return *made;
  }

  std::atomic<T*> made_{nullptr};
};

}  // namespace tutti::internal
