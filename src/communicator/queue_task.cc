#include "communicator/queue_task.h"

#include <algorithm>
#include <utility>

#include "calls/descriptions.h"

namespace tutti::internal {

using executor::Progress;

// On to the next operation, or as far into it as it gets without waiting.
Progress Communicator::QueueTask::advance(std::int64_t now_ns) {
  Progress all = step(now_ns);
  // Not for ever: other communicators wait for their turn.
  for (int steps = 0; steps < kMostSteps && all != Progress::kDone; ++steps) {
    if (state_ != State::kBehind && state_ != State::kBegin && state_ != State::kDevice) break;
    if (step(now_ns) == Progress::kIdle) break;
    all = Progress::kMoved;
  }
  return all;
}

Progress Communicator::QueueTask::step(std::int64_t now_ns) {
  switch (state_) {
    case State::kNext: return take_next() ? Progress::kMoved : Progress::kDone;
    case State::kBehind:
      // How that ends is no matter of this communicator, whose own failure ends the waiting.
      if (!item_.before->done() && !comm_.failure_->failed()) return Progress::kIdle;
      Completion::tasks_behind().fetch_sub(1);
      state_ = State::kBegin;
      break;
    case State::kDevice: return go_on_with_device(now_ns);
    case State::kBegin: begin_next(); break;
    case State::kMaking: return go_on_making();
    case State::kMoving: {
      auto progress = guarded_result([&]() -> Result<Progress> {
        if (!trouble_.is_ok()) return std::exchange(trouble_, {});
        return comm_.executor_->advance(now_ns);
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

bool Communicator::QueueTask::arm(const transport::EventSet& set) {
  switch (state_) {
    case State::kMoving: {
      armed_in_ = &set;
      auto quiet = guarded_result([&]() -> Result<bool> { return comm_.waiter_->arm(set); });
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

void Communicator::QueueTask::disarm() {
  if (state_ != State::kMoving) return;
  Status status = guarded([&] { return comm_.waiter_->disarm(), Status(); });
  if (!status.is_ok()) trouble_ = std::move(status);
}

bool Communicator::QueueTask::release() {
  const MutexLock lock(comm_.mutex_);
  if (!comm_.queue_.empty()) return true;
  comm_.queue_runs_ = false;
  comm_.queue_changed_.notify_all();  // who destroys the communicator
  return false;
}

bool Communicator::QueueTask::take_next() {
  const MutexLock lock(comm_.mutex_);
  if (comm_.queue_.empty()) return false;
  item_ = std::move(comm_.queue_.front());
  comm_.queue_.pop_front();
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

// To what the host has to do next for a batch of a device, if the copies are so far.
Progress Communicator::QueueTask::go_on_with_device(std::int64_t now_ns) {
  if (first_.is_ok() && (comm_.failure_->failed() || comm_.finalized_)) note(comm_.refuse());
  if (!first_.is_ok()) item_.device->stop();
  HostPart part;
  auto state = guarded_result([&] { return item_.device->advance(&part, now_ns); });
  if (!state.is_ok()) {
    note(comm_.fail(name_of(item_.device->batch()), state.status()));
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

// Every part of the item takes place, or fails, so that the ranks' histories stay alike.
void Communicator::QueueTask::begin_next() {
  if (calls_.empty() && transfers_.empty()) {
    if (item_.device == nullptr) return end_item();
    state_ = State::kDevice;
    return;
  }
  if (comm_.failure_->failed() || comm_.finalized_) {
    note(comm_.refuse());
    calls_ = {};
    transfers_ = {};
    return item_.device == nullptr ? end_item() : void(state_ = State::kDevice);
  }
  if (!calls_.empty()) {
    together_.emplace(calls_, *comm_.plans_, comm_.rank(), comm_.ranks());
    const std::size_t n = together_->calls().size();
    if (!stays(calls_.first(n))) return run_away();
    const Call& first = calls_.front();
    calls_ = calls_.subspan(n);
    return n == 1 ? begin_call(first) : begin_together();
  }
  begin_transfers();
}

// Whether the engine can run them: one call, or some that are coalesced. Not where every call is checked beforehand
// (TUTTI_CHECK=strict), nor what calls functions of the program's, writes or proves a long schedule, or copies much.
bool Communicator::QueueTask::stays(std::span<const Call> calls) {
  const Call& first = calls.front();
  if (calls.size() > 1) return !comm_.membership_.strict;
  if (first.custom != nullptr && first.custom->user) return false;
  // For want of memory: then the operation fails there.
  auto at_once = guarded_result([&]() -> Result<bool> { return comm_.begins_at_once(first); });
  return at_once.is_ok() && *at_once && (!needs_copy(first) || comm_.planned_bytes(first) <= kMostCopiedBytes);
}

void Communicator::QueueTask::begin_call(const Call& call) {
  together_.reset();
  call_ = &call;
  comm_.busy_.store(true, std::memory_order_relaxed);
  fingerprint_ = comm_.begin(call);
  if (is_empty(call)) return end_operation();
  make(guarded_result([&] { return comm_.begin_plan(call); }), fingerprint_.sequence);
}

void Communicator::QueueTask::begin_together() {
  comm_.busy_.store(true, std::memory_order_relaxed);
  fingerprint_ = comm_.begin(*together_);
  start(guarded_result([&] { return comm_.bind(*together_, fingerprint_, &memory_); }), fingerprint_.sequence);
}

void Communicator::QueueTask::begin_transfers() {
  comm_.busy_.store(true, std::memory_order_relaxed);
  moving_ = std::exchange(transfers_, {});
  if (comm_.stalls_ != nullptr) comm_.stalls_->set_transfer(&moving_.front());
  make(guarded_result([&]() -> Result<std::unique_ptr<Plans::Making>> {
         std::vector<int> peers;
         for (const Transfer& t : moving_) {
           if (!comm_.plans_->is_connected(t.peer)) peers.push_back(t.peer);
         }
         std::sort(peers.begin(), peers.end());
         peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
         return comm_.plans_->begin_links(std::move(peers));
       }),
       comm_.history_->sequence());
}

void Communicator::QueueTask::make(Result<std::unique_ptr<Plans::Making>> making, std::uint32_t number) {
  number_ = number;
  operation_ = nullptr;
  if (!making.is_ok()) return fail_operation(making.status());
  making_ = std::move(*making);
  if (making_ == nullptr) return start_made();
  state_ = State::kMaking;
}

Progress Communicator::QueueTask::go_on_making() {
  auto state = guarded_result([&]() -> Result<MakingLinks::State> {
    if (!trouble_.is_ok()) return std::exchange(trouble_, {});
    return comm_.plans_->advance(*making_);
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

void Communicator::QueueTask::start_made() {
  if (!moving_.empty()) {
    start(guarded_result([&]() -> Result<const executor::Operation*> {
            const executor::Operation* const again = comm_.transfers_->repeat(moving_);
            if (again != nullptr) return again;
            return comm_.transfers_->bind(moving_, *comm_.plans_);
          }),
          number_);
    return;
  }
  start(guarded_result([&]() -> Result<const executor::Operation*> {
          const executor::Operation* const again = comm_.bind_again(*call_, fingerprint_);
          return again != nullptr ? again : comm_.bind(*call_, fingerprint_);
        }),
        number_);
}

void Communicator::QueueTask::start(Result<const executor::Operation*> operation, std::uint32_t number) {
  number_ = number;
  operation_ = operation.is_ok() ? *operation : nullptr;
  if (!operation.is_ok()) return go_on(operation.status());
  if (operation_ == nullptr) return end_operation();
  state_ = State::kMoving;
  go_on(guarded_result([&] { return comm_.executor_->start(*operation_, number); }));
}

void Communicator::QueueTask::go_on(Result<Progress> progress) {
  if (!progress.is_ok()) {
    fail_operation(progress.status());
  } else if (*progress == Progress::kDone) {
    if (together_) together_->unpack(memory_);
    end_operation();
  }
}

void Communicator::QueueTask::end_operation() {
  if (!moving_.empty() && comm_.stalls_ != nullptr) comm_.stalls_->set_transfer(nullptr);
  call_ = nullptr;
  together_.reset();
  moving_ = {};
  comm_.busy_.store(false, std::memory_order_relaxed);
  state_ = State::kBegin;
}

// Then another thread may wait for the links, and add some.
void Communicator::QueueTask::leave_set() {
  if (armed_in_ != nullptr) comm_.waiter_->leave(*std::exchange(armed_in_, nullptr));
}

void Communicator::QueueTask::end_item() {
  // Nobody else hears of it.
  if (item_.device != nullptr && !first_.is_ok() && !comm_.failure_->failed()) {
    (void)comm_.fail(name_of(item_.device->batch()), first_.with_code(Code::kInternalError));
  }
  const std::shared_ptr<Completion> completion = std::move(item_.completion);
  const std::unique_ptr<DeviceRun> device = std::move(item_.device);
  item_ = {};
  state_ = State::kNext;
  // Behind the last item the program runs its next call by itself.
  if (comm_.pending_.load(std::memory_order_acquire) == 1) leave_set();
  // Before the waiter is woken, so that it may.
  comm_.pending_.fetch_sub(1, std::memory_order_acq_rel);
  completion->complete(std::move(first_));
  if (device != nullptr) device->end();
  {
    const MutexLock lock(comm_.mutex_);
    comm_.queue_changed_.notify_all();  // who finalizes
  }
  comm_.tell_refusal();
}

template <class Work>
Status Communicator::QueueTask::leave_engine(Work work) {
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

void Communicator::QueueTask::run_away() {
  Status none = leave_engine([this] { run_rest(); });
  if (none.is_ok()) return;
  operation_ = nullptr;
  note(comm_.fail(calls_.size() != 1 ? "group" : name_of(calls_.front().collective), std::move(none)));
  state_ = State::kFailed;
}

void Communicator::QueueTask::fail_operation(Status status) {
  if (leave_engine([this, status] { find_cause(status); }).is_ok()) return;
  making_ = nullptr;
  if (operation_ != nullptr) executor::CpuExecutor::revoke(*operation_);
  note(comm_.fail(describe_current(), std::move(status)));
  state_ = State::kFailed;
}

void Communicator::QueueTask::run_rest() {
  together_.reset();
  const InFloatMode of_caller(item_.float_mode);
  note(comm_.execute(std::exchange(calls_, {}), std::exchange(transfers_, {})));
}

void Communicator::QueueTask::find_cause(Status status) {
  status = guarded([&] {
    const bool made = making_ == nullptr || making_->links == nullptr;
    return made ? comm_.waiter_->explain(status) : making_->links->explain(status);
  });
  making_ = nullptr;
  if (operation_ != nullptr) executor::CpuExecutor::reclaim(*operation_);
  if (!moving_.empty()) status = Transfers::explain(std::move(status));
  const std::string what = describe_current();
  note(comm_.fail(what, guarded([&] { return comm_.await_root_cause(what, number_, std::move(status)); })));
}

std::string Communicator::QueueTask::describe_current() const noexcept {
  if (call_ != nullptr) return describe(*call_, fingerprint_);
  return together_ ? describe(together_->calls().front(), fingerprint_, true) : describe(moving_);
}

}  // namespace tutti::internal
