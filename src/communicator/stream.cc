#include "communicator/stream.h"

#include <algorithm>

namespace tutti::internal {

std::shared_ptr<Completion> Completion::both(const std::shared_ptr<Completion>& a,
                                             const std::shared_ptr<Completion>& b) {
  auto together = std::make_shared<Completion>();
  auto& parts = together->parts_;
  const auto add = [&](const std::shared_ptr<Completion>& part) {
    if (!part->succeeded() && std::find(parts.begin(), parts.end(), part) == parts.end()) parts.push_back(part);
  };
  for (const auto& each : {a, b}) {
    if (each->parts_.empty()) add(each);
    for (const auto& part : each->parts_) add(part);
  }
  if (parts.empty()) return a;
  return parts.size() == 1 ? parts.front() : together;
}

void Completion::complete(Status status) {
  const MutexLock lock(mutex_);
  status_ = std::move(status);
  done_ = true;
  changed_.notify_all();
}

bool Completion::done() const {
  if (!parts_.empty()) return std::all_of(parts_.begin(), parts_.end(), [](const auto& p) { return p->done(); });
  const MutexLock lock(mutex_);
  return done_;
}

void Completion::failed_behind(std::shared_ptr<Completion> before) {
  const MutexLock lock(mutex_);
  cause_ = std::move(before);
}

Status Completion::wait() {
  for (const auto& part : parts_) static_cast<void>(part->wait());
  if (!parts_.empty()) return status();
  const MutexLock lock(mutex_);
  while (!done_) changed_.wait(mutex_);
  return status_;
}

bool Completion::wait_for_ms(std::int64_t ms) {
  // The first that is not done takes the time; those behind it are asked when it is.
  if (!parts_.empty()) {
    return std::all_of(parts_.begin(), parts_.end(), [&](const auto& p) { return p->wait_for_ms(ms); });
  }
  const Deadline deadline = Deadline::after_ms(ms);
  const MutexLock lock(mutex_);
  while (!done_ && changed_.wait_until(mutex_, deadline)) {
  }
  return done_;
}

Status Completion::status() const {
  for (const auto& part : parts_) {
    if (Status s = part->status(); !s.is_ok()) return s;
  }
  const MutexLock lock(mutex_);
  return status_;
}

Status Completion::tell() const {
  Status first;
  for (const auto& part : parts_) {
    Status s = part->tell();
    if (first.is_ok()) first = std::move(s);
  }
  if (!parts_.empty()) return first;
  const MutexLock lock(mutex_);
  if (!status_.is_ok() && failure_ != nullptr) failure_->set_told();
  if (cause_ != nullptr) static_cast<void>(cause_->tell());
  return status_;
}

std::shared_ptr<Completion> Stream::append(const std::shared_ptr<Completion>& completion) {
  const MutexLock lock(mutex_);
  std::shared_ptr<Completion> before = std::move(last_);
  last_ = completion;
  return before;
}

void Stream::append_behind(const std::shared_ptr<Completion>& before, const std::shared_ptr<Completion>& group) {
  const MutexLock lock(mutex_);
  last_ = last_ == nullptr || last_ == before ? group : Completion::both(last_, group);
}

void Stream::wait_for(const std::shared_ptr<Completion>& other) {
  const MutexLock lock(mutex_);
  last_ = last_ == nullptr ? other : Completion::both(last_, other);
}

std::shared_ptr<Completion> Stream::last() const {
  const MutexLock lock(mutex_);
  return last_;
}

// An operation whose predecessor in the stream failed fails with the same error, so the last one has
// the first error.
Status Stream::take_error(const Completion& end) {
  Status latest = end.tell();
  if (latest.is_ok()) return latest;
  const MutexLock lock(mutex_);
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
