#include "communicator/stream.h"

#include <chrono>

namespace tutti::internal {

void Completion::complete(Status status) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
  done_ = true;
  changed_.notify_all();
}

bool Completion::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void Completion::failed_behind(std::shared_ptr<Completion> before) {
  const std::lock_guard lock(mutex_);
  cause_ = std::move(before);
}

Status Completion::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  return status_;
}

bool Completion::wait_for_ms(std::int64_t ms) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(ms), [&] { return done_; });
}

Status Completion::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

Status Completion::tell() const {
  const std::lock_guard lock(mutex_);
  if (!status_.is_ok() && failure_ != nullptr) failure_->set_told();
  if (cause_ != nullptr) static_cast<void>(cause_->tell());
  return status_;
}

std::shared_ptr<Completion> Stream::append(const std::shared_ptr<Completion>& completion) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Completion> before = std::move(last_);
  last_ = completion;
  return before;
}

std::shared_ptr<Completion> Stream::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

// An operation whose predecessor in the stream failed fails with the same error, so the last one has
// the first error.
Status Stream::take_error(const Completion& end) {
  Status latest = end.tell();
  if (latest.is_ok()) return latest;
  const std::lock_guard lock(mutex_);
  if (last_ != nullptr && last_->done()) last_.reset();
  return latest;
}

Status Stream::synchronize() {
  const std::shared_ptr<Completion> end = last();
  if (end == nullptr) return {};
  static_cast<void>(end->wait());
  return take_error(*end);
}

Status Stream::query() {
  const std::shared_ptr<Completion> end = last();
  if (end == nullptr) return {};
  if (!end->done()) return {Code::kInProgress, "operations are still running"};
  return take_error(*end);
}

}  // namespace tutti::internal
