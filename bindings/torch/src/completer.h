// Tells those who want to hear of the end of an operation: futures with callbacks, and the profiler.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "flight.h"

namespace tutti_torch {

// Of one channel, whose operations end in the order in which they are added. One thread waits for the first of them,
// and leaves that to another before it tells of it: what it calls may wait for operations that come later. So there are
// as many threads as such calls wait for each other; they serve all channels of the process in turn, and none starts
// before the first operation is added. Any thread.
class Completer {
 public:
  Completer() : state_(std::make_shared<State>()) {}
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;
  // Calls `tell` when it has ended, in a thread of its own.
  void add(std::shared_ptr<Flight> flight, std::function<void()> tell);
  // Now and then, while it says that there is anything to tell: makes the thread that could not be made before.
  bool look_after();

 private:
  struct Item {
    std::shared_ptr<Flight> flight;
    std::function<void()> tell;
  };
  // The threads' too, which may outlive the completer.
  struct State {
    std::mutex mutex;
    std::deque<Item> items;
    bool waited_for = false;  // a thread waits for an operation
    bool called = false;      // one is about to
  };
  static void serve(const std::shared_ptr<State>& state);
  static void tell(Item item);
  static void call_one(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
};

}  // namespace tutti_torch
