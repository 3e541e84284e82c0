// The failures of a communicator and the calls refused on it: finds the cause, and tells this rank's caller and the
// other ranks.
//
// Threads: any, unless a function says otherwise.
#pragma once

#include <atomic>
#include <functional>
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
  // The epoch outlives this, except calls from its control tree: the tree has left before this is destroyed.
  Failures(const Epoch& epoch, std::shared_ptr<CallHistory> history);
  Failures(const Failures&) = delete;
  Failures& operator=(const Failures&) = delete;
  ~Failures();
  // Called at the end of the communicator's set-up: from now on it receives the other ranks' reports.
  // `decided`: what other ranks tell by ControlTree::tell_decision().
  Status watch(std::function<void(const std::string&)> decided);
  // The device that stops when the communicator fails here. Null: there is none.
  void stop_with(DeviceBackend* device) { device_ = device; }

  [[nodiscard]] FailureState& state() const { return *state_; }
  [[nodiscard]] bool failed() const { return state_->failed(); }
  [[nodiscard]] bool is_finalized() const { return finalized_.load(std::memory_order_acquire); }
  [[nodiscard]] bool has_ended() const { return is_finalized() || failed(); }
  // Whether calls must not take the fast path: the communicator has ended, or a refusal stands.
  [[nodiscard]] bool goes_slowly() const { return state_->failed() || goes_slowly_.load(std::memory_order_relaxed); }

  // Fails the communicator with `status`, the error of operation `what`; returns the error that has failed it. If
  // `status` is a refusal, only notes it.
  Status fail(std::string_view what, Status status);
  // Fails every operation, here and on the peers. Waits for no operation. Does nothing if the communicator has failed
  // already.
  void abort();
  void revoke() { (void)end_all(revoked_here_, revoked_there_); }
  // Whether this rank aborted it.
  [[nodiscard]] bool is_aborted() const { return aborted_.load(std::memory_order_acquire); }
  // From now on every call is refused.
  void set_finalized() { goes_slowly_ = finalized_ = true; }
  // Returns when the peers have been told of a failure that another thread has begun here.
  void wait_until_told() TUTTI_EXCLUDES(telling_mutex_) { const MutexLock told(telling_mutex_); }

  // The error of an operation on a communicator that has failed or ended.
  Status refuse();
  // Notes a refused call; the communicator stays usable.
  void set_last_error(const Status& status) TUTTI_EXCLUDES(mutex_);
  // The error that has failed the communicator, or else the last refusal.
  [[nodiscard]] Status last_error() const TUTTI_EXCLUDES(mutex_);

  // Also if the communicator has failed.
  [[nodiscard]] Status last_refusal() const TUTTI_EXCLUDES(mutex_);

  // ---- Refusals, which are reported to the other ranks
  // A call was refused for which the other ranks wait. has_queued(): whether operations are in flight; if so,
  // tell_refusal() must follow.
  template <class HasQueued>
  void note_refusal(const Status& status, HasQueued has_queued) TUTTI_EXCLUDES(mutex_);
  // An operation has ended. Reports a refusal since it began to the other ranks, unless other operations are in flight.
  template <class HasQueued>
  void tell_refusal(HasQueued has_queued) TUTTI_EXCLUDES(mutex_);
  // Each call of the program that is not refused begins with this. Called by the thread that makes the calls.
  void accept() {
    epoch_.touch();
    withdraw_refusal();
  }
  // The same without a call by the program, for example when a graph is launched again.
  void withdraw_refusal() {
    if (goes_slowly_.load(std::memory_order_relaxed) && !is_finalized()) [[unlikely]]
      withdraw();
  }

  // Not ok if other ranks' refusals of the last operation, or of earlier ones, have stood for the notice time, and this
  // rank has waited for so long. See Stalls, which does the same while an operation waits.
  [[nodiscard]] Status check_refusals(std::int64_t waited_ms) const;

  // ---- Causes. Called by the thread that runs the operation.
  // Why operation `what` with number `sequence` has failed, if `status` may be only a symptom: gives the control tree
  // time to report. unexplained: `status` is a mismatch that does not say what differs.
  Status await_root_cause(const std::string& what, std::uint32_t sequence, Status status, bool unexplained) const;
  // Gives the control tree time to find the calls in which ranks differ.
  Status explain(Status mismatch) const;
  // Of what other processes see.
  [[nodiscard]] observe::EventRing& ring() const { return history_->ring(); }
  // The next wait is for this transfer; null: for a collective again.
  void set_transfer(const Transfer* transfer) const {
    if (stalls_ != nullptr) stalls_->set_transfer(transfer);
    if (transfer != nullptr) ring().set_transfer(transfer->sends, transfer->peer, bytes_of(*transfer));
  }

 private:
  // Whether this call has failed the communicator.
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
  // The errors of abort() and revoke(), made in advance: they must not need memory.
  const Status aborted_here_;
  const Status aborted_there_;
  const Status revoked_here_;
  const Status revoked_there_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> finalized_{false};
  std::atomic<bool> goes_slowly_{false};  // the communicator is finalized, or a refusal stands

  Mutex telling_mutex_;  // held while a failure begins here, until the peers have been told
  mutable Mutex mutex_;
  Status last_error_ TUTTI_GUARDED_BY(mutex_);    // of the last refused call
  Status failure_text_ TUTTI_GUARDED_BY(mutex_);  // the failure, with the operation in which it occurred

  // Time for the neighbours to hear of a refusal before the program ends the process because of it.
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
  // if memory is missing, the other ranks notice by the timeout
  (void)noted;
}

template <class HasQueued>
void Failures::tell_refusal(HasQueued has_queued) {
  {
    // Either a thread that refuses a call meanwhile sees this operation in flight, or this thread sees that the refusal
    // stands.
    const MutexLock lock(mutex_);
  }
  if (refusals_ == nullptr || !refusals_->stands() || has_queued()) return;
  const Status told = guarded([&] { return refusals_->tell(0), Status(); });
  (void)told;
}

}  // namespace tutti::internal
