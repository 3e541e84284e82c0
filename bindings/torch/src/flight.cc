#include "flight.h"

#include <algorithm>
#include <thread>
#include <tuple>
#include <utility>

#include "failure.h"
#include "failure_dump.h"
#include "python_exit.h"

namespace tutti_torch {
namespace {

constexpr std::chrono::microseconds kFirstPause{20};
constexpr std::chrono::microseconds kLongestPause{1000};

}  // namespace

Flight::Flight(std::string operation, Tensors kept, Explain explain, std::function<void()> after,
               Recorder::Entries entries)
    : operation_(std::move(operation)),
      kept_(std::move(kept)),
      explain_(std::move(explain)),
      after_(std::move(after)),
      entries_(std::move(entries)) {
  memory_.reserve(kept_.size());
  for (const at::Tensor& tensor : kept_) {
    if (tensor.has_storage()) memory_.push_back(tensor.storage());
  }
}

Flight::~Flight() {
  (void)tuttiEventDestroy(event_);
}

void Flight::set_queued(tuttiEvent_t event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  event_ = event;
  entries_.start();
  changed_.notify_all();
}

// Tensors are freed without the lock: that may take Python's, whose holder may want this one.
void Flight::settle(tuttiResult_t result) {
  Tensors kept;
  std::vector<c10::Storage> memory;
  Explain explain;
  std::function<void()> after;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (std::exchange(settling_, true)) return;
    std::swap(kept, kept_);
    std::swap(memory, memory_);
    std::swap(explain, explain_);
    std::swap(after, after_);
  }
  end(result, explain, after);
  PythonExit::release(std::tuple(std::move(kept), std::move(memory), std::move(after)));
}

void Flight::settle_with(const std::string& why, tuttiResult_t result) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (settling_) return;
    explain_ = [why](tuttiResult_t) { return why; };
  }
  settle(result);
}

void Flight::end(tuttiResult_t result, const Explain& explain, const std::function<void()>& after) {
  std::exception_ptr error;
  try {
    if (result != tuttiSuccess) {
      const std::string text = explain(result);
      if (result == tuttiInvalidArgument) refuse(operation_, text);
      error = backend_error(operation_, text);
    } else if (after) {
      after();
    }
  } catch (...) {
    error = std::current_exception();
  }
  // Before the caller sees the error: the program may end then.
  if (result != tuttiSuccess && result != tuttiInvalidArgument) dump_after_failure();
  const std::lock_guard<std::mutex> lock(mutex_);
  error_ = error;
  ended_ = Clock::now();
  done_ = true;
  entries_.end(error_ == nullptr);
  if (result == tuttiInvalidArgument) entries_.withdraw();
  changed_.notify_all();
}

bool Flight::poll() {
  tuttiEvent_t event = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (done_) return true;
    if (settling_ || event_ == nullptr) return false;
    event = event_;
  }
  const tuttiResult_t result = tuttiEventQuery(event);
  if (result == tuttiInProgress) return false;
  settle(result);
  const std::lock_guard<std::mutex> lock(mutex_);
  return done_;
}

bool Flight::wait(std::optional<Clock::time_point> deadline) {
  const auto passed = [&] { return deadline.has_value() && Clock::now() >= *deadline; };
  std::unique_lock<std::mutex> lock(mutex_);
  while (!done_) {
    if (!settling_ && event_ != nullptr) {
      const tuttiEvent_t event = event_;
      lock.unlock();
      if (!wait_for_event(event, deadline)) return false;
      lock.lock();
    } else if (!deadline.has_value()) {
      changed_.wait(lock);
    } else {
      if (passed()) return false;
      changed_.wait_until(lock, *deadline);
    }
  }
  return true;
}

bool Flight::wait_for_event(tuttiEvent_t event, std::optional<Clock::time_point> deadline) {
  if (!deadline.has_value()) {
    settle(tuttiEventSynchronize(event));
    return true;
  }
  for (auto pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    const tuttiResult_t result = tuttiEventQuery(event);
    if (result != tuttiInProgress) {
      settle(result);
      return true;
    }
    if (Clock::now() >= *deadline) return false;
    std::this_thread::sleep_for(pause);
  }
}

std::exception_ptr Flight::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

float Flight::milliseconds() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::chrono::duration<float, std::milli>((done_ ? ended_ : Clock::now()) - begun_).count();
}

}  // namespace tutti_torch
