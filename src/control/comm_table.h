// This rank's communicators of the job: those that the tree's thread serves, and those that are arriving.
//
// Threads: as stated for each part.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>

#include "base/status.h"
#include "control/control_messages.h"
#include "os/mutex.h"

namespace tutti::internal::control {

class CommAgent;

class CommTable {
 public:
  // ---- Any thread
  // From now on next_arriving() finds it. It must exist until it is released.
  Status enlist(CommAgent* comm) TUTTI_EXCLUDES(mutex_);
  // Waits until it is released, or the tree's thread has ended.
  void await_release(CommId id) TUTTI_EXCLUDES(mutex_);
  // The tree's thread has ended, or has never been started.
  [[nodiscard]] bool has_ended() const TUTTI_EXCLUDES(mutex_);
  // begin(): before the thread is started; end(): when it has ended, or could not be started.
  void begin() TUTTI_EXCLUDES(mutex_);
  void end() TUTTI_EXCLUDES(mutex_);

  // ---- The tree's thread
  [[nodiscard]] const std::map<CommId, CommAgent*>& all() const { return all_; }
  [[nodiscard]] CommAgent* find(CommId comm) const;
  // Moves an enlisted communicator to all(). Null: there is none.
  CommAgent* next_arriving() TUTTI_EXCLUDES(mutex_);
  // Whether this rank has left that communicator recently.
  [[nodiscard]] bool has_left(CommId comm) const TUTTI_EXCLUDES(mutex_);
  void add_left(CommId comm) TUTTI_EXCLUDES(mutex_);
  // Removes it from all(). True if it was the last one, and none is arriving: then none can be enlisted any more.
  bool remove(CommId comm) TUTTI_EXCLUDES(mutex_);
  void release(CommId comm) TUTTI_EXCLUDES(mutex_);
  // Whether all members of each communicator have left.
  [[nodiscard]] bool all_over() const;
  // Whether, in each communicator of which the rank is a member, it has left or its leave notice may be in flight,
  // because another one has arrived since `recent_ns`.
  [[nodiscard]] bool may_have_left(int job_rank, std::int64_t recent_ns) const;

 private:
  std::map<CommId, CommAgent*> all_;

  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::map<CommId, CommAgent*> arriving_ TUTTI_GUARDED_BY(mutex_);
  std::set<CommId> ids_ TUTTI_GUARDED_BY(mutex_);     // of all that are enlisted
  std::deque<CommId> left_ TUTTI_GUARDED_BY(mutex_);  // the last communicators that this rank has left
  bool closed_ TUTTI_GUARDED_BY(mutex_) = false;      // no communicator can be enlisted any more
  bool ended_ TUTTI_GUARDED_BY(mutex_) = true;
};

}  // namespace tutti::internal::control
