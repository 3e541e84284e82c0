#include "work.h"

#include <ATen/core/ivalue.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "failure.h"
#include "future_value.h"

namespace tutti_torch {
namespace {

// A wait for several parts becomes longer by at most this share of it.
constexpr int kPausesInTime = 16;
constexpr std::chrono::microseconds kShortestPause{10};  // a shorter sleep takes longer than that
constexpr std::chrono::milliseconds kLongestPause{1};

std::optional<std::vector<at::Tensor>> profiled(const Tensors& inputs) {
  if (inputs.empty()) return std::nullopt;
  return inputs;
}

}  // namespace

Work::Work(int rank, c10d::OpType type, const char* title, const Tensors& inputs, Tensors outputs,
           std::uint64_t sequence, std::chrono::milliseconds timeout, int sender, std::size_t lists)
    : c10d::Work(rank, type, title, profiled(inputs)),
      outputs_(std::move(outputs)),
      sequence_(sequence),
      timeout_(timeout),
      sender_(sender),
      lists_(lists) {}

void Work::add(InFlight part) {
  parts_.push_back(std::move(part));
}

void Work::end_range_when_done() {
  if (!recordFunctionEndCallback_) return;
  range_ = std::make_shared<RangeEnd>(std::exchange(recordFunctionEndCallback_, nullptr));
  when_done([] {});
}

bool Work::all_ended() const {
  // All of them: a later one may have failed.
  bool ended = true;
  for (const InFlight& part : parts_) ended = part.flight->poll() && ended;
  if (ended && range_ != nullptr) range_->end();
  return ended;
}

bool Work::isCompleted() {
  return all_ended();
}

bool Work::isSuccess() const {
  return all_ended() && error_of(parts_) == nullptr;
}

std::exception_ptr Work::error_of(const std::vector<InFlight>& parts) {
  for (const InFlight& part : parts) {
    if (std::exception_ptr error = part.flight->error()) return error;
  }
  return nullptr;
}

std::exception_ptr Work::exception() const {
  return error_of(parts_);
}

int Work::sourceRank() const {
  TORCH_CHECK(sender_ >= 0, "sourceRank() may only be called on work that receives");
  return sender_;
}

// Asks the parts again and again, for three reasons. They end in any order. One that fails ends the wait, also while
// parts before it have not ended: to wait for them in turn would hide the failure until their timeout. And tutti has no
// wait for one of several events, and none with a deadline.
bool Work::wait_for_parts(std::optional<Clock::time_point> deadline) const {
  if (parts_.size() == 1) return parts_.front().flight->wait(deadline);
  const auto begun = Clock::now();
  while (!all_ended() && error_of(parts_) == nullptr) {
    const auto now = Clock::now();
    if (deadline.has_value() && now >= *deadline) return false;
    const Clock::duration pause = std::min<Clock::duration>((now - begun) / kPausesInTime, kLongestPause);
    if (pause < kShortestPause) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
    }
  }
  return true;
}

bool Work::wait(std::chrono::milliseconds timeout) {
  const auto limit = timeout == kNoTimeout ? timeout_ : timeout;
  std::optional<Clock::time_point> deadline;
  if (limit > kNoTimeout) deadline = Clock::now() + limit;
  if (!wait_for_parts(deadline)) {
    const auto late =
        std::find_if(parts_.begin(), parts_.end(), [](const InFlight& part) { return !part.flight->poll(); });
    const InFlight& named = late != parts_.end() ? *late : parts_.back();
    std::rethrow_exception(backend_error(named.flight->operation(),
                                         "Timed out waiting " + std::to_string(limit.count()) + "ms for it to end"));
  }
  if (range_ != nullptr) (void)all_ended();
  if (const std::exception_ptr error = error_of(parts_)) std::rethrow_exception(error);
  return true;
}

void Work::abort() {
  for (const InFlight& part : parts_) part.channel->revoke();
}

// The parts were begun in this order, in channels of their own or in one: the thread that waits for the last one finds
// the others ended, or waits for them.
void Work::when_done(std::function<void()> told) {
  if (all_ended()) return told();
  const InFlight& last = parts_.back();
  last.channel->tell(last.flight, [parts = parts_, range = range_, told = std::move(told)] {
    for (const InFlight& part : parts) (void)part.flight->wait(std::nullopt);
    if (range != nullptr) range->end();
    told();
  });
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture() {
  const std::lock_guard<std::mutex> lock(futures_mutex_);
  if (future_ != nullptr) return future_;
  const auto made = c10::make_intrusive<c10::ivalue::Future>(future_type(lists_));
  when_done([future = made, outputs = outputs_, lists = lists_, parts = parts_] {
    if (const std::exception_ptr error = error_of(parts)) return future->setErrorIfNeeded(error);
    future->markCompleted(future_value(outputs, lists));
  });
  future_ = made;
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult() {
  const std::lock_guard<std::mutex> lock(futures_mutex_);
  if (future_result_ != nullptr) return future_result_;
  const auto made = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  when_done([future = made, parts = parts_] {
    const auto result = error_of(parts) == nullptr ? c10d::WorkResult::SUCCESS : c10d::WorkResult::COMM_ERROR;
    future->markCompleted(c10::IValue(static_cast<std::int64_t>(result)));
  });
  future_result_ = made;
  return future_result_;
}

float Work::getDuration() const {
  float longest = 0;
  for (const InFlight& part : parts_) longest = std::max(longest, part.flight->milliseconds());
  return longest;
}

}  // namespace tutti_torch
