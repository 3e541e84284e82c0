// The end of a queued operation, for whoever waits for it: streams, events, and what is queued behind it.
//
// Completions are the nodes of a graph without cycles, whose edges lead from what is waited for to what waits. "Done"
// is a state of each node: whatever makes one done passes that on along the edges, in a loop. So asking costs nothing,
// and of a chain of any length each edge is followed once.
//
// Ownership: what waits for another is kept by that until it is done; nothing is kept by what waits for it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/failure.h"
#include "base/status.h"
#include "os/mutex.h"

namespace tutti::internal {

class Completion;

// What is behind a completion: an edge to another, or a continuation.
struct Follower {
  Follower* next_behind = nullptr;
  std::shared_ptr<Completion> completion;  // while it is behind something; null: it is a Continuation
};

// What is to be done when a completion is done.
class Continuation : private Follower {
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
};

// The end of one operation, or of two completions together. An operation has ended when complete() was called; it is
// done when all that it follows is done as well. Any thread.
class Completion {
 public:
  // `failure` is that of the operation's communicator; null if it has none.
  explicit Completion(std::shared_ptr<FailureState> failure = nullptr) : failure_(std::move(failure)) {}
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  // Of one that is not done, which nothing will end any more: continuations are not run.
  ~Completion();
  // The end of both, neither of which is null; one that is done is left out. The caller of complete() calls it on the
  // parts.
  static std::shared_ptr<Completion> both(const std::shared_ptr<Completion>& a, const std::shared_ptr<Completion>& b);
  // Before complete(), once: `one` is not done before `before` is. Nothing if that is null. An operation whose
  // communicator fails ends although the one before it in its stream may go on for long.
  static void follow(const std::shared_ptr<Completion>& one, const std::shared_ptr<Completion>& before) noexcept;
  void complete(Status status);
  // How many tasks of the engine wait for a completion, which they look at after they have added themselves.
  static std::atomic<int>& tasks_behind();
  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  // Blocks until it is done: an operation has its deadline, a function of the program ends when it likes.
  void wait_until_done() const;
  // Blocks for at most so long; whether it is done.
  [[nodiscard]] bool wait_for_ms(std::int64_t ms) const;

  // Runs `what` when `one` is done, at once if it is so already. Allocates nothing.
  static void then(Completion& one, std::unique_ptr<Continuation> what) noexcept;

  // REQUIRES of what follows: it is that of one operation.
  // Blocks until the operation has ended.
  Status wait_until_ended() const;
  // Ok if the operation has not ended.
  [[nodiscard]] Status status() const;
  // status(), which the caller returns to the program: if it is an error the program has been told of it.
  [[nodiscard]] Status tell() const;
  [[nodiscard]] const std::shared_ptr<FailureState>& failure() const { return failure_; }

 private:
  // In the order in which they have come.
  struct Followers {
    Follower* first = nullptr;
    Follower* last = nullptr;
    void append(Followers more);
    Follower* take_first();
  };

  static constexpr std::int64_t kYieldNs = 50'000;
  void yield_until_done() const;
  static void link(const std::shared_ptr<Completion>& one, Follower* edge, Completion& before) noexcept;
  // Whether it is behind this one from now on; not if this is done.
  bool add(Follower* follower) noexcept;
  // Of what it waits for one has ended. If that was the last it is done, and what is behind it is returned.
  Followers count_down() noexcept TUTTI_REQUIRES(mutex_);
  // Tells them, and those behind them.
  static void release(Followers followers) noexcept;

  const std::shared_ptr<FailureState> failure_;
  std::array<Follower, 2> edges_;  // to this one: the second is used if it is of two together
  std::atomic<int> left_{1};       // that have to end: complete(), and what edges come from
  std::atomic<bool> done_{false};  // written under the mutex
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  bool ended_ TUTTI_GUARDED_BY(mutex_) = false;
  Status status_ TUTTI_GUARDED_BY(mutex_);
  Followers behind_ TUTTI_GUARDED_BY(mutex_);  // those that wait for it
};

}  // namespace tutti::internal
