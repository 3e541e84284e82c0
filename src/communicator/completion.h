// The end of a queued operation, for whoever waits for it: streams, events, and what is queued behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/failure.h"
#include "base/mutex.h"
#include "base/status.h"

namespace tutti::internal {

class Completion;

// What is to be done when a completion is done.
class Continuation {
 public:
  Continuation() = default;
  Continuation(const Continuation&) = delete;
  Continuation& operator=(const Continuation&) = delete;
  virtual ~Continuation() = default;
  // Called once, by the thread that has ended the last operation, or by the one that has asked for it. Must not block.
  virtual void run(std::unique_ptr<Continuation> self) noexcept = 0;
  // The next one of a list of its owner's.
  std::unique_ptr<Continuation> next;

 private:
  friend class Completion;
  std::shared_ptr<Completion> after_;
};

// The end of one operation, or of several together. An operation has ended when complete() was called; it is done when
// all that it follows is done as well. Any thread.
class Completion {
 public:
  // `failure` is that of the operation's communicator; null if it has none.
  explicit Completion(std::shared_ptr<FailureState> failure = nullptr) : failure_(std::move(failure)) {}
  // The end of both, neither of which is null; one that is done is left out where possible. The caller of complete()
  // calls it on the parts.
  static std::shared_ptr<Completion> both(const std::shared_ptr<Completion>& a, const std::shared_ptr<Completion>& b);
  // Before complete(): this is not done before `before` is, which may be null. An operation whose communicator fails
  // ends although the one before it in its stream may go on for long.
  void follow(std::shared_ptr<Completion> before);
  void complete(Status status);
  [[nodiscard]] bool done() const;
  // Blocks until it is done, which every operation's deadline guarantees.
  void wait_until_done() const;
  // Blocks for at most so long; whether it is done.
  [[nodiscard]] bool wait_for_ms(std::int64_t ms) const;

  // Runs `what` when `one` is done, at once if it is so already. Allocates nothing.
  static void then(std::shared_ptr<Completion> one, std::unique_ptr<Continuation> what) noexcept;

  // REQUIRES of what follows: it is that of one operation.
  // Blocks until the operation has ended.
  Status wait_until_ended() const;
  // Ok if the operation has not ended.
  [[nodiscard]] Status status() const;
  // status(), which the caller returns to the program: if it is an error the program has been told of it.
  [[nodiscard]] Status tell() const;
  [[nodiscard]] const std::shared_ptr<FailureState>& failure() const { return failure_; }

 private:
  // What has to end before `one` is done, or null if that is done.
  static const Completion* next_to_end(const Completion* one, std::shared_ptr<Completion>* owner);
  [[nodiscard]] bool wait_until_ended(Deadline deadline) const;
  // Has it run, or come back when the next operation has ended that it waits for.
  static void advance(std::unique_ptr<Continuation> what) noexcept;

  const std::shared_ptr<FailureState> failure_;
  std::vector<std::shared_ptr<Completion>> parts_;  // constant; of several together, none of which has parts
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  mutable std::shared_ptr<Completion> before_ TUTTI_GUARDED_BY(mutex_);  // what it follows, unless that is done
  bool ended_ TUTTI_GUARDED_BY(mutex_) = false;
  Status status_ TUTTI_GUARDED_BY(mutex_);
  mutable std::unique_ptr<Continuation> behind_ TUTTI_GUARDED_BY(mutex_);  // a list: those that wait for the end
};

}  // namespace tutti::internal
