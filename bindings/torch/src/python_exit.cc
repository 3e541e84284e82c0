#include "python_exit.h"

#include <Python.h>

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

bool PythonExit::enter() {
  if ((state_.fetch_add(kStay) & kExiting) == 0) return true;
  leave();
  return false;
}

void PythonExit::begin(std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit;
  std::atomic<unsigned>& state = get().state_;
  state |= kExiting;
  while (state != kExiting && Clock::now() < deadline) std::this_thread::sleep_for(kPause);
}

bool PythonExit::is_late() {
  for (auto waited = kPause; !interpreter_ends(); waited += kPause) {
    if (waited > kLate) return true;
    std::this_thread::sleep_for(kPause);
  }
  return false;
}

}  // namespace tutti_torch
