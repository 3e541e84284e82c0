// The queue of one communicator as a task of the progress engine: runs its operations one after the other, each after
// the preceding one in its stream.
//
// Work that waits for more than a peer's data, or would delay other communicators, moves from the engine's thread to a
// helper thread, which ends with it: see stays(). A failed operation also moves there until its cause is known.
#pragma once

#include <atomic>
#include <optional>
#include <span>

#include "base/service_thread.h"
#include "communicator/coalesced.h"
#include "communicator/failures.h"
#include "communicator/operations.h"
#include "communicator/submission_queue.h"
#include "epoch/epoch.h"
#include "executor/engine.h"

namespace tutti::internal {

// Threads: the engine's, and the helper thread that it starts, while that runs.
class QueueTask final : public executor::Task {
 public:
  // All outlive it.
  QueueTask(const Epoch& epoch, SubmissionQueue& queue, Operations& operations, Failures& failures,
            executor::Engine& engine)
      : epoch_(epoch), queue_(queue), operations_(operations), failures_(failures), engine_(engine) {}

  executor::Progress advance(std::int64_t now_ns) override;
  bool arm(const transport::EventSet& set) override;
  void disarm() override;
  [[nodiscard]] int wakeup_fd() const override { return waits_for_peers() ? epoch_.waiter().wakeup_fd() : -1; }
  [[nodiscard]] bool takes_turns() const override { return waits_for_peers() && epoch_.waiter().takes_turns(); }
  bool release() override;

 private:
  enum class State {
    kNext,    // no item: takes the first one of the queue
    kBehind,  // waits for the preceding item in its stream
    kDevice,  // waits for a device
    kBegin,   // begins the next operation of the item
    kMaking,  // makes the links that the next operation needs
    kMoving,  // the executor runs an operation of it
    kAway,    // a helper thread runs it
    kFailed,  // no helper thread could find the cause: waits until the buffers are reclaimed
  };
  [[nodiscard]] bool has_failed() const;
  [[nodiscard]] bool waits_for_peers() const { return state_ == State::kMaking || state_ == State::kMoving; }

  executor::Progress step(std::int64_t now_ns);
  bool take_next();
  void begin_next();
  executor::Progress go_on_with_device(std::int64_t now_ns);
  void begin_call(const Call& call);
  void begin_together();
  void begin_transfers();
  void make(Result<std::unique_ptr<Plans::Making>> making, std::uint32_t number);
  executor::Progress go_on_making();
  void start_made();
  void start(Result<const executor::Operation*> operation, std::uint32_t number);
  void go_on(Result<executor::Progress> progress);
  void end_well();
  void end_operation();
  void end_item();
  void leave_set();
  void note(Status status) {
    if (first_.is_ok()) first_ = std::move(status);
  }
  // Continues `work` in a helper thread. An error if no thread could be started.
  template <class Work>
  Status leave_engine(Work work);
  [[nodiscard]] bool stays(std::span<const Call> calls);
  void run_away();
  void fail_operation(Status status);
  // Run by the helper thread. run_rest(): all of the item that has not begun; find_cause(): why the current operation
  // has failed with `status`.
  void run_rest();
  void find_cause(Status status);
  [[nodiscard]] std::string describe_current() const noexcept;

  static constexpr int kMostSteps = 4;  // after the first step of one advance()
  // Helper threads copy longer inputs.
  static constexpr std::size_t kMostCopiedBytes = std::size_t{1} << 20;

  const Epoch& epoch_;
  SubmissionQueue& queue_;
  Operations& operations_;
  Failures& failures_;
  executor::Engine& engine_;
  State state_ = State::kNext;
  Queued item_;
  // Of the item: the part that has not begun, and the first error.
  std::span<const Call> calls_;
  std::span<const Transfer> transfers_;
  Status first_;
  // The current operation: one of the three.
  const Call* call_ = nullptr;
  std::optional<Coalesced> together_;
  std::span<const Transfer> moving_;
  std::byte* memory_ = nullptr;  // packed buffers of together_
  transport::Fingerprint fingerprint_;
  std::uint32_t number_ = 0;
  const executor::Operation* operation_ = nullptr;
  std::unique_ptr<Plans::Making> making_;  // links or plan that the operation needs first
  Status trouble_;  // an error while the engine went to sleep, or in the thread that made connections

  const transport::EventSet* armed_in_ = nullptr;  // the set that may watch links of the operations
  ServiceThread away_;
  std::atomic<bool> back_{false};  // the helper thread has finished
};

}  // namespace tutti::internal
