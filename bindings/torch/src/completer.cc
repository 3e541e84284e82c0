#include "completer.h"

#include <c10/util/Exception.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <utility>

#include "python_exit.h"
#include "shared_threads.h"

namespace tutti_torch {

void Completer::add(std::shared_ptr<Flight> flight, std::function<void()> tell) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->items.push_back({std::move(flight), std::move(tell)});
  if (state_->waited_for || state_->called) return;
  try {
    call_one(state_);
  } catch (...) {
    state_->items.pop_back();
    throw;
  }
}

bool Completer::look_after() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  if (state_->items.empty()) return false;
  try {
    if (!state_->waited_for && !state_->called) call_one(state_);
  } catch (const std::exception&) {
  }
  return true;
}

// REQUIRES: the lock, and an operation that no thread waits for.
void Completer::call_one(const std::shared_ptr<State>& state) {
  SharedThreads::get().run([state] { serve(state); });
  state->called = true;
}

void Completer::serve(const std::shared_ptr<State>& state) {
  std::unique_lock<std::mutex> lock(state->mutex);
  state->called = false;
  while (!state->waited_for && !state->items.empty()) {
    Item item = std::move(state->items.front());
    state->items.pop_front();
    state->waited_for = true;
    lock.unlock();
    (void)item.flight->wait(std::nullopt);
    lock.lock();
    state->waited_for = false;
    try {
      if (!state->items.empty() && !state->called) call_one(state);
    } catch (const std::exception&) {
      // No thread can be made: this one comes to it later.
    }
    lock.unlock();
    tell(std::move(item));
    lock.lock();
  }
}

namespace {

// A callback's exception has no receiver, so this logs it. The program itself may have completed the future.
void tell_safely(const std::function<void()>& tell) {
  try {
    tell();
  } catch (const std::exception& e) {
    TORCH_WARN("tutti: what was to be told of the end of an operation has failed: ", e.what());
  }
}

}  // namespace

// Without the lock of the state: to free tensors may take Python's, whose holder may want that one.
void Completer::tell(Item item) {
  const PythonExit::Stay stay;
  if (stay.granted()) {
    tell_safely(item.tell);
    item = {};
  } else if (PythonExit::is_late()) {
    // The program's exit handler may wait for this thread. The handler continues, and the interpreter ends, after this
    // thread no longer needs Python.
    const pybind11::gil_scoped_acquire lock;
    tell_safely(item.tell);
    item = {};
  } else {
    static_cast<void>(new Item(std::move(item)));
  }
}

}  // namespace tutti_torch
