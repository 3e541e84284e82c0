#include "python_exit.h"

#include <Python.h>
#include <pthread.h>

#include <thread>

namespace tutti_torch {
namespace {

constexpr std::chrono::milliseconds kPause{1};
constexpr std::chrono::milliseconds kLate{100};

bool interpreter_ends() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#else
  return _Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#endif
}

}  // namespace

// Never destroyed: threads of this module end with the process.
PythonExit& PythonExit::get() {
  static PythonExit* const only = new PythonExit;
  return *only;
}

// A child of a fork has no other threads, and so no stays.
PythonExit::PythonExit() {
  (void)pthread_atfork(nullptr, nullptr, [] { get().state_ = 0; });
}

bool PythonExit::enter() {
  if ((state_.fetch_add(kStay) & kClosed) == 0) return true;
  leave();
  return false;
}

void PythonExit::begin(std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit;
  std::atomic<unsigned>& state = get().state_;
  // A thread with a stay may wait for a thread that asks for one, so new stays are granted until all have ended.
  for (unsigned none = 0; !state.compare_exchange_strong(none, kClosed); none = 0) {
    if ((none & kClosed) != 0) return;
    if (Clock::now() >= deadline) {
      state |= kClosed;
      return;
    }
    std::this_thread::sleep_for(kPause);
  }
}

bool PythonExit::is_late() {
  for (auto waited = kPause; !interpreter_ends(); waited += kPause) {
    if (waited > kLate) return true;
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace tutti_torch
