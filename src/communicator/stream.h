// Queued operations: completions and streams. A stream is an order among operations, possibly
// of several communicators; each communicator's progress thread runs its own operations in the order
// in which they were queued, and waits for the operation before in the same stream if that belongs to
// another communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/mutex.h"
#include "base/status.h"

namespace tutti::internal {

// The end of one operation, or of several together. Any thread.
class Completion {
 public:
  // `failure` is that of the operation's communicator.
  explicit Completion(std::shared_ptr<FailureState> failure = nullptr) : failure_(std::move(failure)) {}
  // The end of both, neither of which is null; one that has succeeded is left out where possible. The caller of
  // complete() calls it on the parts as well.
  static std::shared_ptr<Completion> both(const std::shared_ptr<Completion>& a, const std::shared_ptr<Completion>& b);
  // Before complete(): the operation fails for no other reason than that `before` has.
  void failed_behind(std::shared_ptr<Completion> before);
  void complete(Status status);
  [[nodiscard]] bool done() const;
  // Blocks until complete() was called, which every operation's deadline guarantees.
  Status wait();
  // Blocks for at most so long; whether it is done.
  [[nodiscard]] bool wait_for_ms(std::int64_t ms);
  // Ok if not done.
  [[nodiscard]] Status status() const;
  // status(), which the caller returns to the program: if it is an error the program has been told of it.
  [[nodiscard]] Status tell() const;

 private:
  [[nodiscard]] bool succeeded() const { return done() && status().is_ok(); }

  const std::shared_ptr<FailureState> failure_;
  std::vector<std::shared_ptr<Completion>> parts_;  // constant; of several together, none of which has parts
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::shared_ptr<Completion> cause_ TUTTI_GUARDED_BY(mutex_);
  bool done_ TUTTI_GUARDED_BY(mutex_) = false;
  Status status_ TUTTI_GUARDED_BY(mutex_);
};

// Any thread; the order of enqueueing is that of the calls.
class Stream {
 public:
  // Adds an operation; returns the one before it (null if none), which it must wait for.
  std::shared_ptr<Completion> append(const std::shared_ptr<Completion>& completion);
  // Adds a group that waits for `before`, which was the last one; what has come behind that meanwhile stays in the
  // stream beside it. `before` may be null.
  void append_behind(const std::shared_ptr<Completion>& before, const std::shared_ptr<Completion>& group);
  // What is appended from now on waits for `other` as well, and so does who waits for the stream. Not null.
  void wait_for(const std::shared_ptr<Completion>& other);
  // Waits for all; returns and clears the first error.
  Status synchronize();
  // kInProgress, or as synchronize().
  Status query();
  // Completes with all that is in the stream now.
  [[nodiscard]] std::shared_ptr<Completion> last() const;

 private:
  Status take_error(const Completion& end);
  mutable Mutex mutex_;
  std::shared_ptr<Completion> last_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal
