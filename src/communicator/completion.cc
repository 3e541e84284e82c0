#include "communicator/completion.h"

#include <algorithm>
#include <utility>

#include "executor/engine.h"

namespace tutti::internal {

std::shared_ptr<Completion> Completion::both(const std::shared_ptr<Completion>& a,
                                             const std::shared_ptr<Completion>& b) {
  auto together = std::make_shared<Completion>();
  auto& parts = together->parts_;
  std::size_t of_a = 0;  // which are different ones
  const auto add = [&](const std::shared_ptr<Completion>& part) {
    const auto end = parts.begin() + static_cast<std::ptrdiff_t>(of_a);
    if (!part->done() && std::find(parts.begin(), end, part) == end) parts.push_back(part);
  };
  for (const auto& each : {a, b}) {
    if (each->parts_.empty()) add(each);
    for (const auto& part : each->parts_) add(part);
    of_a = parts.size();
  }
  if (parts.empty()) return a;
  return parts.size() == 1 ? parts.front() : together;
}

void Completion::follow(std::shared_ptr<Completion> before) {
  const MutexLock lock(mutex_);
  before_ = std::move(before);
}

void Completion::complete(Status status) {
  std::shared_ptr<Completion> before;  // freed without the lock
  {
    const MutexLock lock(mutex_);
    before = std::move(before_);
  }
  // Of many that end early, each then refers to what they all wait for, not to the one before it.
  std::shared_ptr<Completion> owner = before;
  const Completion* const next = before == nullptr ? nullptr : next_to_end(before.get(), &owner);
  std::unique_ptr<Continuation> behind;
  {
    const MutexLock lock(mutex_);
    if (next != nullptr) before_ = std::move(owner);
    status_ = std::move(status);
    ended_ = true;
    behind = std::move(behind_);
    changed_.notify_all();
  }
  while (behind != nullptr) {
    std::unique_ptr<Continuation> rest = std::move(behind->next);
    advance(std::exchange(behind, std::move(rest)));
  }
  executor::Engine::wake_current();  // whose tasks may wait for this
}

void Completion::then(std::shared_ptr<Completion> one, std::unique_ptr<Continuation> what) noexcept {
  what->after_ = std::move(one);
  advance(std::move(what));
}

void Completion::advance(std::unique_ptr<Continuation> what) noexcept {
  for (;;) {
    std::shared_ptr<Completion> owner = what->after_;
    const Completion* next = next_to_end(owner.get(), &owner);
    // Of several together, one after the other.
    while (next != nullptr && !next->parts_.empty()) {
      const Completion* left = nullptr;
      for (const auto& part : next->parts_) {
        std::shared_ptr<Completion> owner_of_left = part;
        left = next_to_end(part.get(), &owner_of_left);
        if (left == nullptr) continue;
        owner = std::move(owner_of_left);
        break;
      }
      next = left;
    }
    if (next == nullptr) break;
    const MutexLock lock(next->mutex_);
    if (next->ended_) continue;
    what->next = std::move(next->behind_);
    next->behind_ = std::move(what);
    return;
  }
  Continuation* const one = what.get();
  one->run(std::move(what));
}

// `*owner` keeps what is returned, unless that is `one`. A loop, since many may have ended before what they follow.
const Completion* Completion::next_to_end(const Completion* one, std::shared_ptr<Completion>* owner) {
  for (;;) {
    if (!one->parts_.empty()) {
      const bool done = std::all_of(one->parts_.begin(), one->parts_.end(), [](const auto& p) { return p->done(); });
      return done ? nullptr : one;
    }
    std::shared_ptr<Completion> before;
    {
      const MutexLock lock(one->mutex_);
      if (!one->ended_) return one;
      before = one->before_;
    }
    if (before == nullptr) return nullptr;
    one = before.get();
    *owner = std::move(before);
  }
}

// What is done follows nothing any more: of a long chain each is looked through once.
bool Completion::done() const {
  std::shared_ptr<Completion> owner;
  if (next_to_end(this, &owner) != nullptr) return false;
  std::shared_ptr<Completion> before;  // freed without the lock
  const MutexLock lock(mutex_);
  before = std::move(before_);
  return true;
}

void Completion::wait_until_done() const {
  // As long as it takes: a deadline far away, renewed.
  constexpr std::int64_t kHourMs = 3'600'000;
  while (!wait_for_ms(kHourMs)) {
  }
}

bool Completion::wait_for_ms(std::int64_t ms) const {
  const Deadline deadline = Deadline::after_ms(ms);
  std::shared_ptr<Completion> owner;
  while (const Completion* const next = next_to_end(this, &owner)) {
    // The first part that is not done takes the time.
    const auto part_done = [&](const auto& part) { return part->wait_for_ms(deadline.left_ms(static_cast<int>(ms))); };
    const auto& parts = next->parts_;
    const bool in_time =
        parts.empty() ? next->wait_until_ended(deadline) : std::all_of(parts.begin(), parts.end(), part_done);
    if (!in_time) return false;
  }
  return true;
}

bool Completion::wait_until_ended(Deadline deadline) const {
  const MutexLock lock(mutex_);
  while (!ended_ && changed_.wait_until(mutex_, deadline)) {
  }
  return ended_;
}

Status Completion::wait_until_ended() const {
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
