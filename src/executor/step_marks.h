// When the steps of an operation that runs by lanes began and ended: beside the states of LaneRunner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "executor/plan.h"
#include "observe/step_log.h"

namespace tutti::internal::executor {

// Used by one thread at a time.
class StepMarks {
 public:
  // Null: no steps are kept.
  void set_log(observe::StepLog* log) { log_ = log; }
  [[nodiscard]] bool keeps() const { return log_ != nullptr; }
  // `states`: one for each step in each slice of the window.
  void begin(std::size_t states) {
    if (log_ != nullptr) begun_.assign(states, 0);
  }
  // The steps of a new slice have not begun. REQUIRES: keeps().
  void reset(std::size_t state, std::size_t steps) {
    std::fill_n(begun_.begin() + static_cast<std::ptrdiff_t>(state), steps, 0);
  }
  // It is not to be added: it has ended before.
  void leave_out(std::size_t state) {
    if (log_ != nullptr) begun_[state] = kEnded;
  }
  // It has moved bytes since `before`, and has ended if `ended` is not 0. REQUIRES: keeps().
  void note(std::size_t state, const schedule::Step& step, std::uint32_t index, std::size_t bytes, std::uint64_t before,
            std::uint64_t ended) {
    if (begun_[state] == kEnded) return;
    if (begun_[state] == 0) begun_[state] = before;
    if (ended == 0) return;
    log_->add({index, static_cast<std::uint32_t>(step.kind), step.peer, bytes, begun_[state], ended});
    begun_[state] = kEnded;
  }

 private:
  static constexpr std::uint64_t kEnded = UINT64_MAX;

  observe::StepLog* log_ = nullptr;
  std::vector<std::uint64_t> begun_;  // ticks; 0: not yet
};

}  // namespace tutti::internal::executor
