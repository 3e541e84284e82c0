// Moves the calling thread to another processor. Linux has no call for that; forbidding the thread its processor for a
// moment has this effect.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/config.h"

namespace tutti::internal::executor {

class Affinity {
 public:
  // An Affinity with Moves::kStart moves threads for this long after its creation: the scheduler may have put ranks on
  // one processor, and beside busy programs leaves them there.
  static constexpr std::int64_t kSettleNs = 1'000'000'000;

  // `moves`: below kStart no thread is moved, with kAll threads are moved at any time. The present mask of the calling
  // thread is taken as one that the application has not chosen.
  explicit Affinity(Moves moves);

  // Moves the calling thread to another of its allowed processors, without confining it there. Returns false and does
  // nothing if there is no other, or if the application has chosen processors for this thread since. A mask that
  // another thread sets during this call stays, too, unless it is set between two of its system calls, or equals the
  // mask of the move (likely on two processors). Linux cannot set a mask on condition that it is unchanged. So tutti
  // moves threads only if a setting asks for it.
  bool leave_processor() const;
  // The same, to this processor.
  bool move_to(int processor) const;

 private:
  bool pass_through(const cpu_set_t& processors) const;

  cpu_set_t usual_{};
  std::int64_t until_ns_;  // moves no thread after this time
};

}  // namespace tutti::internal::executor
