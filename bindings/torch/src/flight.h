// One operation on its way: what it needs until it is complete, and how it has ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "recorder.h"
#include "tensors.h"

namespace tutti_torch {

using Clock = std::chrono::steady_clock;

// Any thread.
class Flight {
 public:
  // The text that the caller of a failed operation gets.
  using Explain = std::function<std::string(tuttiResult_t)>;

  // kept: all tensors, until then, and the memory that they have now, also if they get another. `after` runs once, when
  // it has succeeded, before anybody hears of it.
  Flight(std::string operation, Tensors kept, Explain explain, std::function<void()> after, Recorder::Entries entries);
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight();

  // Its call begins in the caller's thread.
  void set_running() { entries_.start(); }
  // It is in a stream, and ends with the event, which is the flight's from now on.
  void set_queued(tuttiEvent_t event);
  // It has ended; the first call counts.
  void settle(tuttiResult_t result);
  // It has failed with that result, for this reason.
  void settle_with(const std::string& why, tuttiResult_t result = tuttiInvalidUsage);
  // Settles it if it has ended.
  bool poll();
  // Until it has ended; false at the deadline. Does not throw for what has failed.
  bool wait(std::optional<Clock::time_point> deadline);
  // Null: it has succeeded, or has not ended.
  [[nodiscard]] std::exception_ptr error() const;
  [[nodiscard]] const std::string& operation() const { return operation_; }
  [[nodiscard]] Clock::time_point begun() const { return begun_; }
  [[nodiscard]] float milliseconds() const;

 private:
  void end(tuttiResult_t result, const Explain& explain, const std::function<void()>& after);
  [[nodiscard]] bool wait_for_event(tuttiEvent_t event, std::optional<Clock::time_point> deadline);

  const std::string operation_;
  const Clock::time_point begun_ = Clock::now();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool settling_ = false;
  bool done_ = false;
  tuttiEvent_t event_ = nullptr;
  Tensors kept_;
  std::vector<c10::Storage> memory_;
  Explain explain_;
  std::function<void()> after_;
  std::exception_ptr error_;
  Clock::time_point ended_;
  const Recorder::Entries entries_;
};

}  // namespace tutti_torch
