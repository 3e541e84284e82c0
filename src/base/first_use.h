// A process-wide object that the first user makes. Unlike a static variable of a function it takes no lock: a child
// that is forked while another thread makes it does not wait for that thread, which it has not, but makes its own. So
// the library has no static variable of a function that is initialised when it is reached (tests/tidy/guards.py).
#pragma once

#include <atomic>
#include <memory>

namespace tutti::internal {

// Of what several threads have made at a time, and all but one in vain: freed, unless others know it, as what is
// enlisted for forks (fork.h).
enum class Surplus { kFreed, kKept };

// Of static storage, and constinit. Never destroyed: threads and static objects of the program may use it to the end.
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
