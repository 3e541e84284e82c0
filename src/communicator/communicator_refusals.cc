// Calls of this rank that were refused for their arguments: the other ranks hear of them (refusals.h).
#include "communicator/communicator.h"

namespace tutti::internal {
namespace {

// For the neighbours to hear of a refusal before the program ends the process because of it.
constexpr std::int64_t kTellMs = 100;

}  // namespace

void Communicator::note_refusal(const Status& status) {
  set_last_error(status);
  if (refusals_ == nullptr || finalized_ || failure_->failed()) return;
  const Status noted = guarded([&] {
    bool idle = false;
    {
      // The end of an operation takes the lock before it looks whether anything was refused meanwhile.
      const MutexLock lock(mutex_);
      refusals_->refuse(status.message());
      goes_slowly_.store(true, std::memory_order_relaxed);
      idle = !has_queued();
    }
    if (idle) refusals_->tell(kTellMs);
    return Status();
  });
  // Without memory the others find out by the timeout.
  (void)noted;
}

void Communicator::withdraw_refusal() {
  if (finalized_) return;
  goes_slowly_.store(false, std::memory_order_relaxed);
  const Status told = guarded([&] { return refusals_->withdraw(), Status(); });
  (void)told;
}

void Communicator::tell_refusal() {
  if (refusals_ == nullptr || !refusals_->stands() || has_queued()) return;
  const Status told = guarded([&] { return refusals_->tell(0), Status(); });
  (void)told;
}

}  // namespace tutti::internal
