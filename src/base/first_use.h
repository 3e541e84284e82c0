// A process-wide object that the first user makes. Unlike a static variable of a function it takes no lock: a child
// that is forked while another thread makes it does not wait for that thread, which it has not, but makes its own.
#pragma once

#include <atomic>
#include <memory>

namespace tutti::internal {

// Of static storage. Never destroyed.
template <typename T>
class FirstUse {
 public:
  // make() may run in several threads at a time, and all but one of the results are thrown away.
  template <typename Make>
  const T& get(Make make) {
    const T* made = made_.load(std::memory_order_acquire);
    if (made != nullptr) return *made;
    auto own = std::make_unique<const T>(make());
    if (!made_.compare_exchange_strong(made, own.get(), std::memory_order_acq_rel, std::memory_order_acquire)) {
      return *made;
    }
    return *own.release();
  }

 private:
  std::atomic<const T*> made_{nullptr};
};

}  // namespace tutti::internal
