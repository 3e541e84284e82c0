#include "streams/completion.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "executor/engine.h"
#include "executor/turn_taking.h"
#include "os/clock.h"

namespace tutti::internal {

void Completion::Followers::append(Followers more) {
  if (more.first == nullptr) return;
  (first == nullptr ? first : last->next_behind) = more.first;
  last = more.last;
}

Follower* Completion::Followers::take_first() {
  Follower* const taken = first;
  if (taken != nullptr) first = std::exchange(taken->next_behind, nullptr);
  return taken;
}

// A loop instead of recursion: also releases the completions that only these keep alive.
Completion::~Completion() {
  Followers all = behind_;
  while (Follower* const follower = all.take_first()) {
    const std::shared_ptr<Completion> one = std::move(follower->completion);
    if (one == nullptr) {
      const std::unique_ptr<Continuation> not_run(static_cast<Continuation*>(follower));
    } else if (one.use_count() == 1) {
      const MutexLock lock(one->mutex_);
      all.append(std::exchange(one->behind_, {}));
    }
  }
}

std::shared_ptr<Completion> Completion::both(const std::shared_ptr<Completion>& a,
                                             const std::shared_ptr<Completion>& b) {
  if (a == b || b->done()) return a;
  if (a->done()) return b;
  auto together = std::make_shared<Completion>();
  link(together, &together->edges_[0], *a);
  link(together, &together->edges_[1], *b);
  const MutexLock lock(together->mutex_);
  together->ended_ = true;
  (void)together->count_down();  // nothing follows it yet
  return together;
}

void Completion::follow(const std::shared_ptr<Completion>& one, const std::shared_ptr<Completion>& before) noexcept {
  if (before != nullptr) link(one, &one->edges_[0], *before);
}

void Completion::link(const std::shared_ptr<Completion>& one, Follower* edge, Completion& before) noexcept {
  edge->completion = one;
  // Must happen before that can end.
  one->left_.fetch_add(1, std::memory_order_relaxed);
  if (before.add(edge)) return;
  edge->completion.reset();
  one->left_.fetch_sub(1, std::memory_order_relaxed);
}

bool Completion::add(Follower* follower) noexcept {
  if (done()) return false;
  const MutexLock lock(mutex_);
  if (done_.load(std::memory_order_relaxed)) return false;
  behind_.append({follower, follower});
  return true;
}

Completion::Followers Completion::count_down() noexcept {
  if (left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return {};
  done_.store(true, std::memory_order_release);
  return std::exchange(behind_, {});
}

void Completion::complete(Status status) {
  Followers behind;
  {
    const MutexLock lock(mutex_);
    status_ = std::move(status);
    ended_ = true;
    behind = count_down();
    changed_.notify_all();
  }
  release(behind);
  // Tasks of the engine may wait for this, but rarely do.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (tasks_behind().load(std::memory_order_relaxed) > 0) executor::Engine::wake_current();
}

std::atomic<int>& Completion::tasks_behind() {
  static std::atomic<int> count{0};
  return count;
}

void Completion::release(Followers followers) noexcept {
  while (Follower* const follower = followers.take_first()) {
    const std::shared_ptr<Completion> one = std::move(follower->completion);
    if (one == nullptr) {
      auto* const what = static_cast<Continuation*>(follower);
      what->run(std::unique_ptr<Continuation>(what));
      continue;
    }
    const MutexLock lock(one->mutex_);
    followers.append(one->count_down());
    if (one->done_.load(std::memory_order_relaxed)) one->changed_.notify_all();
  }
}

void Completion::then(Completion& one, std::unique_ptr<Continuation> what) noexcept {
  Continuation* const follower = what.release();
  if (!one.add(follower)) follower->run(std::unique_ptr<Continuation>(follower));
}

// Yields for a while, because short operations end before a thread could sleep and be woken. Yielding gives the
// processor to other threads, including the one that runs the operation. Beside a program that does not yield, it
// sleeps in the next waits.
void Completion::yield_until_done() const {
  thread_local executor::YieldTrials trials;
  if (done() || trials.sleeps()) return;
  const std::int64_t begin_ns = now_ns();
  std::int64_t longest_ns = 0;
  for (std::int64_t last_ns = begin_ns; !done() && last_ns - begin_ns < kYieldNs;) {
    ::sched_yield();
    const std::int64_t now = now_ns();
    longest_ns = std::max(longest_ns, now - last_ns);
    last_ns = now;
  }
  trials.note(longest_ns);
}

void Completion::wait_until_done() const {
  yield_until_done();
  const MutexLock lock(mutex_);
  while (!done_.load(std::memory_order_relaxed)) changed_.wait(mutex_);
}

bool Completion::wait_for_ms(std::int64_t ms) const {
  const Deadline deadline = Deadline::after_ms(ms);
  const MutexLock lock(mutex_);
  while (!done_.load(std::memory_order_relaxed) && changed_.wait_until(mutex_, deadline)) {
  }
  return done_.load(std::memory_order_relaxed);
}

Status Completion::wait_until_ended() const {
  yield_until_done();
  const MutexLock lock(mutex_);
  while (!ended_) changed_.wait(mutex_);
  return status_;
}

Status Completion::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

Status Completion::tell() const {
  const MutexLock lock(mutex_);
  if (!status_.is_ok() && failure_ != nullptr) failure_->set_told();
  return status_;
}

}  // namespace tutti::internal
