// The end of a queued operation, for streams, events and later operations that wait for it.
//
// Completions are the nodes of an acyclic graph, whose edges lead from a completion to its followers. "Done" is a state
// of each node: the thread that makes a node done passes that on along the edges, in a loop. So a query costs nothing,
// and in a chain of any length each edge is followed once.
//
// Ownership: a completion keeps its followers alive until it is done; a follower does not keep its predecessor alive.
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

// A follower of a completion: an edge to another completion, or a continuation.
struct Follower {
  Follower* next_behind = nullptr;
  std::shared_ptr<Completion> completion;  // the follower, while it waits; null: it is a Continuation
};

// Work to run when a completion is done.
class Continuation : private Follower {
 public:
  Continuation() = default;
  Continuation(const Continuation&) = delete;
  Continuation& operator=(const Continuation&) = delete;
  virtual ~Continuation() = default;
  // Called once, by the thread that has ended the last operation, or by the thread that calls then(). Must not block.
  virtual void run(std::unique_ptr<Continuation> self) noexcept = 0;
  // The next one in a list of its owner.
  std::unique_ptr<Continuation> next;

 private:
  friend class Completion;
};

// The end of one operation, or of two completions together. An operation has ended after complete(); it is done when
// all of its predecessors are done as well. Any thread.
class Completion {
 public:
  // `failure` is that of the operation's communicator; null if it has none.
  explicit Completion(std::shared_ptr<FailureState> failure = nullptr) : failure_(std::move(failure)) {}
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  // If it is not done, nothing can end it any more: its continuations are not run.
  ~Completion();
  // The end of both; neither is null; a done one is omitted. complete() is called on the parts.
  static std::shared_ptr<Completion> both(const std::shared_ptr<Completion>& a, const std::shared_ptr<Completion>& b);
  // Called at most once, before complete(): `one` is not done before `before` is. Does nothing if that is null. If a
  // communicator fails, its operation ends although its predecessor in the stream may run for long.
  static void follow(const std::shared_ptr<Completion>& one, const std::shared_ptr<Completion>& before) noexcept;
  void complete(Status status);
  // The number of the engine's tasks that wait for a completion; they check the completion after they have added
  // themselves.
  static std::atomic<int>& tasks_behind();
  [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
  // Blocks until it is done. An operation has a deadline; a host function has none.
  void wait_until_done() const;
  // Blocks for at most `ms`; returns whether it is done.
  [[nodiscard]] bool wait_for_ms(std::int64_t ms) const;

  // Runs `what` when `one` is done, at once if it is already done. Allocates nothing.
  static void then(Completion& one, std::unique_ptr<Continuation> what) noexcept;

  // The following functions REQUIRE that it belongs to one operation. Blocks until the operation has ended.
  Status wait_until_ended() const;
  // Ok if the operation has not ended.
  [[nodiscard]] Status status() const;
  // status(), which the caller returns to the program: marks an error as reported.
  [[nodiscard]] Status tell() const;
  [[nodiscard]] const std::shared_ptr<FailureState>& failure() const { return failure_; }

 private:
  // In the order of their registration.
  struct Followers {
    Follower* first = nullptr;
    Follower* last = nullptr;
    void append(Followers more);
    Follower* take_first();
  };

  static constexpr std::int64_t kYieldNs = 50'000;
  void yield_until_done() const;
  static void link(const std::shared_ptr<Completion>& one, Follower* edge, Completion& before) noexcept;
  // Adds a follower; false if this is done.
  bool add(Follower* follower) noexcept;
  // One of its predecessors has ended. If that was the last, it is done, and its followers are returned.
  Followers count_down() noexcept TUTTI_REQUIRES(mutex_);
  // Notifies them, and their followers.
  static void release(Followers followers) noexcept;

  const std::shared_ptr<FailureState> failure_;
  std::array<Follower, 2> edges_;  // to this one: the second is used if it combines two completions
  std::atomic<int> left_{1};       // missing ends: complete(), and the predecessors
  std::atomic<bool> done_{false};  // written under the mutex
  mutable Mutex mutex_;
  mutable ConditionVariable changed_;
  bool ended_ TUTTI_GUARDED_BY(mutex_) = false;
  Status status_ TUTTI_GUARDED_BY(mutex_);
  Followers behind_ TUTTI_GUARDED_BY(mutex_);  // its followers
};

}  // namespace tutti::internal
