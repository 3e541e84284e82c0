// The steps of one operation as they ran, if TUTTI_TRACE is set: filled while the operation runs, then written into the
// trace (trace_file.h).
//
// Steps are kept of operations of at least kAllStepsBytes, and of every kStepsPeriod-th shorter one: for those, the
// readings of the counter take as long as the steps. The number of the operation decides, so that all ranks keep the
// steps of the same ones.
//
// Threads: the one that runs the operation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::internal::observe {

inline constexpr std::size_t kAllStepsBytes = std::size_t{64} << 10;
inline constexpr std::uint32_t kStepsPeriod = 64;
// Of one operation. Of a longer one the first ones are kept.
inline constexpr std::size_t kMostSteps = 4096;

// A step, or the part of it in one slice.
struct StepTimes {
  std::uint32_t step =
      0;  // its index in the schedule; if a receive and the kReduce behind it ran as one, of the receive
  std::uint32_t kind = 0;  // schedule::StepKind
  std::int32_t peer = -1;  // -1: a local step
  std::uint64_t bytes = 0;
  std::uint64_t begun = 0;  // ticks; before its first bytes moved
  std::uint64_t ended = 0;  // ticks; of a send: all bytes are with the transport
};

// The operation as the executor ran it.
struct StepsOf {
  std::uint32_t number = 0;
  std::uint32_t plan = 0;           // the hash of its identity
  std::uint64_t bytes = 0;          // of the whole vector; of operations that run as one, of all of them
  std::uint32_t element_bytes = 1;  // unit that is never cut
  bool uneven = false;              // its blocks have different sizes
  bool in_order = false;            // it began to run in the order of the schedule
};

class StepLog {
 public:
  // True: the operation's steps are to be kept.
  bool begin(const StepsOf& operation) {
    wanted_ = (operation.bytes >= kAllStepsBytes || operation.number % kStepsPeriod == 0) && has_memory();
    operation_ = operation;
    steps_.clear();
    left_out_ = 0;
    return wanted_;
  }
  void set_in_order() { operation_.in_order = true; }
  void forget() { wanted_ = false; }
  void add(const StepTimes& step) {
    if (steps_.size() < kMostSteps) {
      steps_.push_back(step);
    } else {
      ++left_out_;
    }
  }
  // After the operation has ended. REQUIRES: wanted().
  [[nodiscard]] bool wanted() const { return wanted_; }
  [[nodiscard]] const StepsOf& operation() const { return operation_; }
  [[nodiscard]] const std::vector<StepTimes>& steps() const { return steps_; }
  [[nodiscard]] std::uint64_t left_out() const { return left_out_; }

 private:
  // add() needs none. Programs make many communicators that they hardly use.
  bool has_memory() {
    try {
      steps_.reserve(kMostSteps);
      return true;
    } catch (...) {
      return false;
    }
  }

  bool wanted_ = false;
  StepsOf operation_;
  std::vector<StepTimes> steps_;
  std::uint64_t left_out_ = 0;
};

}  // namespace tutti::internal::observe
