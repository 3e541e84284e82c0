// What has failed a communicator or was refused on it: how this rank finds out why, and how it and the others hear of
// it.
//
// Threads: any, unless a function says otherwise.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/failure.h"
#include "base/status.h"
#include "communicator/refusals.h"
#include "communicator/stalls.h"
#include "epoch/call_history.h"
#include "epoch/epoch.h"
#include "os/mutex.h"

namespace tutti::internal {

class DeviceBackend;

class Failures {
 public:
  // The epoch outlives this, but for its control tree's calls: the tree has left before this is destroyed.
  Failures(const Epoch& epoch, std::shared_ptr<CallHistory> history);
  Failures(const Failures&) = delete;
  Failures& operator=(const Failures&) = delete;
  ~Failures();
  // The end of the communicator's set-up: from now on it hears of the other ranks.
  Status watch();
  // Is stopped when the communicator fails here. Null: there is none.
  void stop_with(DeviceBackend* device) { device_ = device; }

  [[nodiscard]] FailureState& state() const { return *state_; }
  [[nodiscard]] bool failed() const { return state_->failed(); }
  [[nodiscard]] bool is_finalized() const { return finalized_.load(std::memory_order_acquire); }
  [[nodiscard]] bool has_ended() const { return is_finalized() || failed(); }
  // Whether no call takes the fast path: the communicator has ended, or a refusal stands.
  [[nodiscard]] bool goes_slowly() const { return state_->failed() || goes_slowly_.load(std::memory_order_relaxed); }

  // Fails the communicator by `status`, which the operation `what` has met; returns what has failed it. A refusal is
  // noted alone.
  Status fail(std::string_view what, Status status);
  // Fails every operation, here and on the peers. Waits for none. Nothing if the communicator has failed already.
  void abort();
  void revoke() { (void)end_all(revoked_here_, revoked_there_); }
  // By this rank.
  [[nodiscard]] bool is_aborted() const { return aborted_.load(std::memory_order_acquire); }
  // From now on all is refused.
  void set_finalized() { goes_slowly_ = finalized_ = true; }
  // A failure that another thread has begun here has been told to the peers.
  void wait_until_told() TUTTI_EXCLUDES(telling_mutex_) { const MutexLock told(telling_mutex_); }

  // Of an operation on a communicator that has failed or ended.
  Status refuse();
  // Of what was refused: the communicator is as it was.
  void set_last_error(const Status& status) TUTTI_EXCLUDES(mutex_);
  // What has failed the communicator, or else what was refused last.
  [[nodiscard]] Status last_error() const TUTTI_EXCLUDES(mutex_);

  // ---- Refusals, of which the other ranks are told
  // A call was refused for which the other ranks wait. has_queued(): whether operations are under way; then
  // tell_refusal() is to follow.
  template <class HasQueued>
  void note_refusal(const Status& status, HasQueued has_queued) TUTTI_EXCLUDES(mutex_);
  // An operation has ended. Of a refusal since it began the other ranks are told now, unless others are under way.
  template <class HasQueued>
  void tell_refusal(HasQueued has_queued) TUTTI_EXCLUDES(mutex_);
  // Each call of the program that is not refused begins with this. By the thread that makes the calls.
  void accept() {
    epoch_.touch();
    withdraw_refusal();
  }
  // The same without a call of the program's, as when a graph runs again.
  void withdraw_refusal() {
    if (goes_slowly_.load(std::memory_order_relaxed) && !is_finalized()) [[unlikely]]
      withdraw();
  }

  // ---- Causes. By the thread that runs the operation.
  // Why operation `what`, the `sequence`th, has failed, if `status` may be no more than the sign of it: gives the
  // control tree time to tell. unexplained: it is a mismatch that does not say what differs.
  Status await_root_cause(const std::string& what, std::uint32_t sequence, Status status, bool unexplained) const;
  // Gives the control tree time to tell in which calls ranks differ.
  Status explain(Status mismatch) const;
  // The wait that begins is for this; null: for a collective again.
  void set_transfer(const Transfer* transfer) const {
    if (stalls_ != nullptr) stalls_->set_transfer(transfer);
  }

 private:
  // Whether it was this that has failed the communicator.
  bool end_all(const Status& here, const Status& there) TUTTI_EXCLUDES(telling_mutex_);
  void withdraw();
  void note_failure(const Status& status) TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] Status with_refusals(Status failure) const {
    return refusals_ == nullptr ? failure : refusals_->explain(std::move(failure));
  }

  const Epoch& epoch_;
  const std::shared_ptr<CallHistory> history_;
  const std::shared_ptr<FailureState> state_;
  std::unique_ptr<Refusals> refusals_;  // null for a single rank
  std::unique_ptr<Stalls> stalls_;      // the same
  DeviceBackend* device_ = nullptr;
  // What abort() and revoke() say, made beforehand: they must work without memory.
  const Status aborted_here_;
  const Status aborted_there_;
  const Status revoked_here_;
  const Status revoked_there_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> finalized_{false};
  std::atomic<bool> goes_slowly_{false};  // it is finalized, or a refusal stands

  Mutex telling_mutex_;  // while a failure begins here, until the peers will be told of it
  mutable Mutex mutex_;
  Status last_error_ TUTTI_GUARDED_BY(mutex_);    // of what was refused
  Status failure_text_ TUTTI_GUARDED_BY(mutex_);  // the failure, with the operation that met it

  // For the neighbours to hear of a refusal before the program ends the process because of it.
  static constexpr std::int64_t kTellRefusalMs = 100;
};

template <class HasQueued>
void Failures::note_refusal(const Status& status, HasQueued has_queued) {
  set_last_error(status);
  if (refusals_ == nullptr || has_ended()) return;
  const Status noted = guarded([&] {
    bool idle = false;
    {
      // See tell_refusal().
      const MutexLock lock(mutex_);
      refusals_->refuse(status.message());
      goes_slowly_.store(true, std::memory_order_relaxed);
      idle = !has_queued();
    }
    if (idle) refusals_->tell(kTellRefusalMs);
    return Status();
  });
  // Without memory the others find out by the timeout.
  (void)noted;
}

template <class HasQueued>
void Failures::tell_refusal(HasQueued has_queued) {
  {
    // Whoever refuses a call meanwhile finds this operation under way, or it is seen here that the refusal stands.
    const MutexLock lock(mutex_);
  }
  if (refusals_ == nullptr || !refusals_->stands() || has_queued()) return;
  const Status told = guarded([&] { return refusals_->tell(0), Status(); });
  (void)told;
}

}  // namespace tutti::internal
