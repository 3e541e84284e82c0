#include "control/comm_table.h"

#include <fmt/core.h>

#include <algorithm>

#include "control/comm_agent.h"

namespace tutti::internal::control {
namespace {

constexpr std::size_t kMaxLeft = 1024;  // of which other ranks may still send frames

}  // namespace

Status CommTable::enlist(CommAgent* comm) {
  const MutexLock lock(mutex_);
  if (closed_) return Status::invalid_usage("a communicator that has ended cannot be split");
  if (std::find(left_.begin(), left_.end(), comm->id()) != left_.end()) {
    return Status::invalid_usage(
        fmt::format("id {} has served a communicator already. Draw another id by tuttiCommGetGroupId", comm->id()));
  }
  if (!ids_.insert(comm->id()).second) {
    return Status::invalid_usage(fmt::format("another communicator of the job has the id {}", comm->id()));
  }
  arriving_.emplace(comm->id(), comm);
  return {};
}

void CommTable::await_release(CommId id) {
  const MutexLock lock(mutex_);
  while (!ended_ && ids_.contains(id)) changed_.wait(mutex_);
}

bool CommTable::has_ended() const {
  const MutexLock lock(mutex_);
  return ended_;
}

void CommTable::begin() {
  const MutexLock lock(mutex_);
  ended_ = false;
}

void CommTable::end() {
  const MutexLock lock(mutex_);
  closed_ = true;
  ended_ = true;
  changed_.notify_all();
}

CommAgent* CommTable::find(CommId comm) const {
  const auto found = all_.find(comm);
  return found == all_.end() ? nullptr : found->second;
}

CommAgent* CommTable::next_arriving() {
  const MutexLock lock(mutex_);
  if (arriving_.empty()) return nullptr;
  return all_.insert(arriving_.extract(arriving_.begin())).position->second;
}

bool CommTable::has_left(CommId comm) const {
  const MutexLock lock(mutex_);
  return std::find(left_.begin(), left_.end(), comm) != left_.end();
}

void CommTable::add_left(CommId comm) {
  const MutexLock lock(mutex_);
  left_.push_back(comm);
  if (left_.size() > kMaxLeft) left_.pop_front();
}

bool CommTable::remove(CommId comm) {
  all_.erase(comm);
  if (!all_.empty()) return false;
  const MutexLock lock(mutex_);
  closed_ = closed_ || arriving_.empty();
  return closed_;
}

void CommTable::release(CommId comm) {
  const MutexLock lock(mutex_);
  ids_.erase(comm);
  changed_.notify_all();
}

bool CommTable::all_over() const {
  return std::all_of(all_.begin(), all_.end(),
                     [](const auto& entry) { return entry.second->leave_notices().is_over(); });
}

bool CommTable::may_have_left(int job_rank, std::int64_t recent_ns) const {
  return std::all_of(all_.begin(), all_.end(), [&](const auto& entry) {
    return entry.second->leave_notices().may_have_left(job_rank, recent_ns);
  });
}

}  // namespace tutti::internal::control
