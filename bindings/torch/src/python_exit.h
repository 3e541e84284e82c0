// Guards the use of Python objects by this module's threads against the end of the interpreter: a thread that requests
// Python's lock after that end is terminated wherever it is, and the process with it.
#pragma once

#include <atomic>
#include <chrono>
#include <utility>

namespace tutti_torch {

// Any thread.
class PythonExit {
 public:
  // The interpreter does not end while a Stay exists, at most until the limit of begin().
  class Stay {
   public:
    Stay() : granted_(get().enter()) {}
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;
    ~Stay() {
      if (granted_) get().leave();
    }
    // False: the interpreter ends. Do not touch Python objects.
    [[nodiscard]] bool granted() const { return granted_; }

   private:
    const bool granted_;
  };

  // Called before the interpreter ends: returns when there is no stay, or `limit` has passed, and none is granted any
  // more from then on.
  static void begin(std::chrono::milliseconds limit);
  // Without a stay: whether the interpreter does not end as soon as it should after begin(), as the program does
  // something else before. Returns when that is known.
  [[nodiscard]] static bool is_late();
  // Frees Python's objects, or leaks them if the interpreter ends.
  template <class Things>
  static void release(Things things) {
    const Stay stay;
    if (stay.granted()) {
      Things freed = std::move(things);
    } else {
      static_cast<void>(new Things(std::move(things)));
    }
  }

 private:
  PythonExit();
  static PythonExit& get();
  bool enter();
  void leave() { state_ -= kStay; }

  static constexpr unsigned kClosed = 1;
  static constexpr unsigned kStay = 2;
  std::atomic<unsigned> state_{0};  // stays, and whether none is granted any more
};

}  // namespace tutti_torch
