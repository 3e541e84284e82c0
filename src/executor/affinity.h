// Moving the calling thread to another processor. Linux has no call for that; what does it is to forbid the thread
// its processor for a moment.
#pragma once

#include <sched.h>

#include <cstdint>

#include "base/config.h"

namespace tutti::internal::executor {

class Affinity {
 public:
  // For so long after it is made an Affinity with Moves::kStart moves threads: the scheduler may have put ranks on one
  // processor, and beside busy programs leaves them there.
  static constexpr std::int64_t kSettleNs = 1'000'000'000;

  // `moves`: below kStart no thread is moved, with kAll at any time. What the calling thread may use now is taken for
  // what nobody has pinned.
  explicit Affinity(Moves moves);

  // Moves the calling thread to another of the processors that it may use, and leaves it free to move on. False, and
  // nothing is done, where there is no other, or where the application has chosen processors for this thread since.
  // What somebody chooses while this runs stays, too, unless it falls between two of its system calls, or is the very
  // mask that this sets for the move (on two processors likely). Linux has no way to set a mask only if it is
  // unchanged. So tutti moves threads only where it has been asked to.
  bool leave_processor() const;
  // The same, to this one.
  bool move_to(int processor) const;

 private:
  bool pass_through(const cpu_set_t& processors) const;

  cpu_set_t usual_{};
  std::int64_t until_ns_;  // moves nobody from then on
};

}  // namespace tutti::internal::executor
