// Which ranks of one job live in this process, and from which threads they are used: a thread that serves several
// ranks cannot finalize them all at the same time, so none of them may wait for the others.
//
// Threads: enter() and leave() by the thread that makes and ends the communicator, touch() by the one that runs its
// operations, others_may_come() by any.
#pragma once

#include <atomic>
#include <thread>

#include "join/unique_id.h"

namespace tutti::internal {

class ProcessRank {
 public:
  ProcessRank() = default;
  ProcessRank(const ProcessRank&) = delete;
  ProcessRank& operator=(const ProcessRank&) = delete;
  ~ProcessRank() { leave(); }

  // The rank belongs to the job with this secret, and to no thread yet. Called once, before all other functions.
  void enter(const Secret& job);
  // The calling thread runs the rank's operations.
  void touch() { thread_.store(std::this_thread::get_id(), std::memory_order_relaxed); }
  // Whether the job's other ranks in this process can finalize while the calling thread waits for them: true if, as far
  // as known, the thread serves only this rank.
  [[nodiscard]] bool others_may_come() const;
  // The rank is finalized.
  void leave();

 private:
  Secret job_{};
  bool entered_ = false;
  std::atomic<std::thread::id> thread_{};
};

}  // namespace tutti::internal
