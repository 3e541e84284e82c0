// A function with its own stack that runs until it yields: the threads of simulated processes, all of them in one real
// thread.
//
// Threads: one, which makes, resumes and destroys all fibers.
#pragma once

#include <cstddef>
#include <functional>

namespace tutti::internal::sim {

class Fiber {
 public:
  // `body` must not throw.
  explicit Fiber(std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  // A fiber that has not finished is abandoned: the objects on its stack are not destroyed.
  ~Fiber();

  // Runs it until it yields or finishes. Not from within a fiber.
  void resume();
  // From within the fiber: back to the caller of resume().
  void yield();
  [[nodiscard]] bool finished() const { return finished_; }

 private:
  // The C++ library's exception state of each thread (__cxa_eh_globals of the Itanium C++ ABI).
  struct Exceptions {
    void* caught = nullptr;
    unsigned uncaught = 0;
  };
  static void enter();
  void run();
  void begin_switch(void** own, const void* stack, std::size_t bytes);
  void end_switch(void* own);
  static void exchange(Exceptions* kept);

  std::function<void()> body_;
  std::byte* stack_ = nullptr;
  void* own_ = nullptr;  // the stack pointers of what does not run
  void* resumer_ = nullptr;
  Exceptions exceptions_;
  bool finished_ = false;
  // For AddressSanitizer, which must know of each change of stacks.
  void* fake_stack_ = nullptr;
  const void* resumer_stack_ = nullptr;
  std::size_t resumer_bytes_ = 0;
};

}  // namespace tutti::internal::sim
