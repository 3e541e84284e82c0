#include "communicator/queue_task.h"

#include <utility>

#include "calls/descriptions.h"
#include "communicator/survivor_mode.h"

namespace tutti::internal {

using executor::Progress;

// Goes on to the next operation, or continues the current one as far as possible without waiting.
Progress QueueTask::advance(std::int64_t now_ns) {
  Progress all = step(now_ns);
  // With a limit, because other communicators are waiting to be advanced.
  for (int steps = 0; steps < kMostSteps && all != Progress::kDone; ++steps) {
    if (state_ != State::kBehind && state_ != State::kBegin && state_ != State::kDevice) break;
    if (step(now_ns) == Progress::kIdle) break;
    all = Progress::kMoved;
  }
  return all;
}

Progress QueueTask::step(std::int64_t now_ns) {
  switch (state_) {
    case State::kNext: return take_next() ? Progress::kMoved : Progress::kDone;
    case State::kBehind:
      // The result of `before` does not concern this communicator; only its own failure ends the wait.
      if (!item_.before->done() && !has_failed()) {
        operations_.history().ring().set_behind(true);
        return Progress::kIdle;
      }
      operations_.history().ring().set_behind(false);
      Completion::tasks_behind().fetch_sub(1);
      state_ = State::kBegin;
      break;
    case State::kDevice: return go_on_with_device(now_ns);
    case State::kBegin: begin_next(); break;
    case State::kMaking: return go_on_making();
    case State::kMoving: {
      auto progress = guarded_result([&]() -> Result<Progress> {
        if (!trouble_.is_ok()) return std::exchange(trouble_, {});
        return operations_.executor().advance(now_ns);
      });
      if (progress.is_ok() && *progress == Progress::kIdle) return Progress::kIdle;
      go_on(progress);
      break;
    }
    case State::kAway:
      if (!back_.load(std::memory_order_acquire)) return Progress::kIdle;
      away_.join();
      if (making_ != nullptr) {
        state_ = State::kMaking;
      } else {
        end_operation();
      }
      break;
    case State::kFailed:
      if (operation_ != nullptr && !executor::CpuExecutor::reclaimed(*operation_)) return Progress::kIdle;
      end_operation();
      break;
  }
  return Progress::kMoved;
}

bool QueueTask::arm(const transport::EventSet& set) {
  switch (state_) {
    case State::kMoving: {
      armed_in_ = &set;
      auto quiet = guarded_result([&]() -> Result<bool> { return epoch_.waiter().arm(set); });
      if (!quiet.is_ok()) trouble_ = quiet.status();
      return quiet.is_ok() && *quiet;
    }
    // Peers ring the wakeup fd when they have made theirs.
    case State::kMaking: return trouble_.is_ok();
    case State::kBehind: return !item_.before->done();
    case State::kAway: return !back_.load(std::memory_order_acquire);
    default: return false;
  }
}

void QueueTask::disarm() {
  if (state_ != State::kMoving) return;
  Status status = guarded([&] { return epoch_.waiter().disarm(), Status(); });
  if (!status.is_ok()) trouble_ = std::move(status);
}

bool QueueTask::release() {
  return queue_.keeps_task();
}

bool QueueTask::take_next() {
  if (!queue_.take(&item_)) return false;
  calls_ = {};
  transfers_ = {};
  if (item_.batch != nullptr) {
    calls_ = item_.batch->calls;
    transfers_ = item_.batch->transfers;
  } else if (item_.device == nullptr) {
    calls_ = {&item_.call, 1};
  }
  first_ = {};
  state_ = State::kBegin;
  if (item_.before != nullptr) {
    Completion::tasks_behind().fetch_add(1);
    state_ = State::kBehind;
  }
  return true;
}

// Continues with the host's next part of a device's batch, if the copies have progressed that far.
Progress QueueTask::go_on_with_device(std::int64_t now_ns) {
  if (first_.is_ok() && (failures_.has_ended())) note(failures_.refuse());
  if (!first_.is_ok()) item_.device->stop();
  HostPart part;
  auto state = guarded_result([&] { return item_.device->advance(&part, now_ns); });
  if (!state.is_ok()) {
    note(failures_.fail(name_of(item_.device->batch()), state.status()));
    end_item();
    return Progress::kMoved;
  }
  switch (*state) {
    case DeviceRun::State::kWaits: return Progress::kIdle;
    case DeviceRun::State::kDone: end_item(); break;
    case DeviceRun::State::kHost:
      calls_ = part.calls;
      transfers_ = part.transfers;
      state_ = State::kBegin;
      break;
  }
  return Progress::kMoved;
}

// In survivor mode a death has failed the communicator, but not its calls.
bool QueueTask::has_failed() const {
  const SurvivorMode* const mode = queue_.survivor_mode();
  return mode != nullptr ? !mode->status().is_ok() : failures_.failed();
}

// Each part of the item runs or fails, so that the ranks' histories stay alike.
void QueueTask::begin_next() {
  if (calls_.empty() && transfers_.empty()) {
    if (item_.device == nullptr) return end_item();
    state_ = State::kDevice;
    return;
  }
  if (queue_.survivor_mode() != nullptr) return run_away();  // which also fails them
  if (failures_.has_ended()) {
    note(failures_.refuse());
    calls_ = {};
    transfers_ = {};
    return item_.device == nullptr ? end_item() : void(state_ = State::kDevice);
  }
  if (!calls_.empty()) {
    together_.emplace(calls_, epoch_.plans(), epoch_.rank(), epoch_.ranks());
    const std::size_t n = together_->calls().size();
    if (!stays(calls_.first(n))) return run_away();
    const Call& first = calls_.front();
    calls_ = calls_.subspan(n);
    return n == 1 ? begin_call(first) : begin_together();
  }
  begin_transfers();
}

// Whether the engine's thread can run them: one call, or several coalesced ones. It does not run calls that are checked
// (TUTTI_CHECK=strict, TUTTI_CHECKSUM), use user-defined functions, write or prove a long schedule, or copy much.
bool QueueTask::stays(std::span<const Call> calls) {
  const Call& first = calls.front();
  if (calls.size() > 1) return !epoch_.settings().strict && !epoch_.settings().checksum;
  if (first.custom != nullptr && first.custom->user) return false;
  // If memory is missing, the operation fails in the other thread.
  auto at_once = guarded_result([&]() -> Result<bool> { return operations_.bound().begins_at_once(first); });
  return at_once.is_ok() && *at_once &&
         (!needs_copy(first) || operations_.bound().planned_bytes(first) <= kMostCopiedBytes);
}

void QueueTask::begin_call(const Call& call) {
  together_.reset();
  call_ = &call;
  operations_.history().set_inside(true, observe::Whose::kProcess);
  fingerprint_ = operations_.begin(call);
  if (is_empty(call)) return end_well();
  make(guarded_result([&] { return operations_.bound().begin_plan(call); }), fingerprint_.sequence);
}

void QueueTask::begin_together() {
  operations_.history().set_inside(true, observe::Whose::kProcess);
  fingerprint_ = operations_.begin(*together_);
  start(guarded_result([&] { return operations_.bound().bind(*together_, fingerprint_, &memory_); }),
        fingerprint_.sequence);
}

void QueueTask::begin_transfers() {
  operations_.history().set_inside(true, observe::Whose::kProcess);
  moving_ = std::exchange(transfers_, {});
  failures_.set_transfer(&moving_.front());
  make(guarded_result(
           [&]() -> Result<std::unique_ptr<Plans::Making>> { return operations_.bound().begin_links(moving_); }),
       operations_.history().sequence());
}

void QueueTask::make(Result<std::unique_ptr<Plans::Making>> making, std::uint32_t number) {
  number_ = number;
  operation_ = nullptr;
  if (!making.is_ok()) return fail_operation(making.status());
  making_ = std::move(*making);
  if (making_ == nullptr) return start_made();
  state_ = State::kMaking;
}

Progress QueueTask::go_on_making() {
  auto state = guarded_result([&]() -> Result<MakingLinks::State> {
    if (!trouble_.is_ok()) return std::exchange(trouble_, {});
    return epoch_.plans().advance(*making_);
  });
  Status status = state.status();
  if (status.is_ok()) {
    if (*state == MakingLinks::State::kWaits) return Progress::kIdle;
    if (*state == MakingLinks::State::kMade) {
      making_ = nullptr;
      start_made();
      return Progress::kMoved;
    }
    status = leave_engine([this] { trouble_ = guarded([&] { return making_->links->block(); }); });
  }
  if (!status.is_ok()) fail_operation(std::move(status));
  return Progress::kMoved;
}

void QueueTask::start_made() {
  start(guarded_result([&]() -> Result<const executor::Operation*> {
          BoundOperations& bound = operations_.bound();
          return moving_.empty() ? bound.bind(*call_, fingerprint_) : bound.bind(moving_);
        }),
        number_);
}

void QueueTask::start(Result<const executor::Operation*> operation, std::uint32_t number) {
  number_ = number;
  operation_ = operation.is_ok() ? *operation : nullptr;
  if (!operation.is_ok()) return go_on(operation.status());
  if (operation_ == nullptr) return end_well();
  state_ = State::kMoving;
  go_on(guarded_result([&] { return operations_.executor().start(*operation_, number); }));
}

void QueueTask::go_on(Result<Progress> progress) {
  if (!progress.is_ok()) {
    fail_operation(progress.status());
  } else if (*progress == Progress::kDone) {
    if (together_) together_->unpack(memory_);
    end_well();
  }
}

// Also of an operation that moves nothing.
void QueueTask::end_well() {
  if (together_) {
    operations_.measure(*together_);
  } else if (call_ != nullptr) {
    operations_.measure(*call_);
  } else {
    operations_.measure(moving_);
  }
  end_operation();
}

void QueueTask::end_operation() {
  if (!moving_.empty()) failures_.set_transfer(nullptr);
  call_ = nullptr;
  together_.reset();
  moving_ = {};
  operations_.history().set_inside(false);
  state_ = State::kBegin;
}

// After this, another thread may wait for the links and add new ones.
void QueueTask::leave_set() {
  if (armed_in_ != nullptr) epoch_.waiter().leave(*std::exchange(armed_in_, nullptr));
}

void QueueTask::end_item() {
  // Otherwise this error would not be reported anywhere.
  if (item_.device != nullptr && !first_.is_ok() && !failures_.failed()) {
    (void)failures_.fail(name_of(item_.device->batch()), first_.with_code(Code::kInternalError));
  }
  const std::shared_ptr<Completion> completion = std::move(item_.completion);
  const std::unique_ptr<DeviceRun> device = std::move(item_.device);
  item_ = {};
  state_ = State::kNext;
  // After the last item the program's own thread runs its next call.
  if (queue_.at_last()) leave_set();
  // Before the waiter is woken, so that it finds the queue empty.
  queue_.finish_item();
  completion->complete(std::move(first_));
  if (device != nullptr) device->end();
  queue_.look_again();  // wakes a thread in finalize
  failures_.tell_refusal([&] { return queue_.has_queued(); });
}

template <class Work>
Status QueueTask::leave_engine(Work work) {
  back_.store(false, std::memory_order_relaxed);
  leave_set();
  state_ = State::kAway;
  return guarded([&] {
    return away_.start(
        [this, work] {
          work();
          back_.store(true, std::memory_order_release);
          engine_.wake();
        },
        kWorkStackBytes);
  });
}

void QueueTask::run_away() {
  Status none = leave_engine([this] { run_rest(); });
  if (none.is_ok()) return;
  operation_ = nullptr;
  if (queue_.survivor_mode() != nullptr) {
    // The others wait for these calls, and would wait for all later ones. So other communicators wait meanwhile.
    run_rest();
    return end_operation();
  }
  note(failures_.fail(calls_.size() != 1 ? "group" : name_of(calls_.front().collective), std::move(none)));
  state_ = State::kFailed;
}

void QueueTask::fail_operation(Status status) {
  if (leave_engine([this, status] { find_cause(status); }).is_ok()) return;
  making_ = nullptr;
  if (operation_ != nullptr) executor::CpuExecutor::revoke(*operation_);
  note(failures_.fail(describe_current(), std::move(status)));
  state_ = State::kFailed;
}

void QueueTask::run_rest() {
  together_.reset();
  const InFloatMode of_caller(item_.float_mode);
  const auto calls = std::exchange(calls_, {});
  const auto transfers = std::exchange(transfers_, {});
  SurvivorMode* const mode = queue_.survivor_mode();
  note(mode != nullptr ? mode->run(calls, transfers) : operations_.run(calls, transfers));
}

void QueueTask::find_cause(Status status) {
  status = guarded([&] {
    const bool made = making_ == nullptr || making_->links == nullptr;
    return made ? epoch_.waiter().explain(status) : making_->links->explain(status);
  });
  making_ = nullptr;
  if (operation_ != nullptr) executor::CpuExecutor::reclaim(*operation_);
  if (!moving_.empty()) status = Transfers::explain(std::move(status));
  const std::string what = describe_current();
  note(failures_.fail(what, guarded([&] {
                        return failures_.await_root_cause(what, number_, std::move(status),
                                                          operations_.executor().unexplained());
                      })));
}

std::string QueueTask::describe_current() const noexcept {
  if (call_ != nullptr) return describe(*call_, fingerprint_);
  return together_ ? describe(together_->calls().front(), fingerprint_, true) : describe(moving_);
}

}  // namespace tutti::internal
