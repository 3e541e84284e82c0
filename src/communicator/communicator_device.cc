// A communicator whose buffers are in the memory of a CUDA device (device/backend.h).
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "calls/descriptions.h"
#include "communicator/communicator.h"

namespace tutti::internal {

Result<std::vector<std::string>> Communicator::describe_plan(Collective collective, std::size_t bytes,
                                                             bool at_length) const {
  std::size_t piece = bytes;
  if (is_on_device()) {
    if (const char* const way = device_->direct_way(collective, bytes)) return std::vector<std::string>{way};
    if (!varies(collective)) piece = std::min(bytes, DevicePlan::kPieceBytes);
  }
  auto text = plans_->describe(collective, piece);
  if (!text.is_ok()) return text.status();
  std::vector<std::string> lines{std::move(*text)};
  if (is_on_device()) lines.front() += " through the host";
  if (!at_length) return lines;
  for (std::string& line : plans_->describe_choice(collective, piece)) lines.push_back(std::move(line));
  if (piece < bytes && lines.size() > 1) lines[1] += fmt::format("; each piece of {} bytes takes", piece);
  return lines;
}

Status Communicator::enqueue_on_device(const Call& call, void* stream) {
  std::shared_ptr<Batch> batch;
  Status made = guarded([&] {
    batch = std::make_shared<Batch>();
    Call& kept = batch->calls.emplace_back(call);
    if (call.custom != nullptr) batch->operators.push_back(named_operator_);
    if (call.varying == nullptr) return Status();
    batch->counts.push_back(std::make_shared<VaryingCopy>(call, ranks(), rank()));
    kept.varying = &batch->counts.back()->counts();
    return Status();
  });
  if (!made.is_ok()) return fail(name_of(call.collective), std::move(made));
  return check_and_enqueue_on_device(std::move(batch), stream);
}

Status Communicator::enqueue_on_device(const Transfer& transfer, void* stream) {
  std::shared_ptr<const Batch> batch;
  if (Status s = copy({&transfer, 1}, &batch); !s.is_ok()) return s;
  return check_and_enqueue_on_device(std::move(batch), stream);
}

Status Communicator::check_and_enqueue_on_device(std::shared_ptr<const Batch> batch, void* stream) {
  Status checked = guarded([&]() -> Status {
    for (const Call& call : batch->calls) {
      if (is_empty(call)) continue;
      if (Status s = check_forced(call); !s.is_ok()) return s;
    }
    return device_->check(*batch, {&stream, 1});
  });
  if (!checked.is_ok()) return fail(name_of(*batch), std::move(checked));
  return device_->enqueue(std::move(batch), {&stream, 1});
}

// Of a failed communicator no stream is waited for that has still to come. In this order: what comes is pending before
// it is no longer coming.
bool Communicator::has_queued() const {
  return (device_ != nullptr && device_->coming() != 0 && !failure_->failed()) ||
         pending_.load(std::memory_order_acquire) != 0;
}

Status Communicator::begin_call() {
  accept();
  return finalized_ || failure_->failed() ? refuse() : Status();
}

Status Communicator::begin_queued(bool again) {
  if (finalized_ || failure_->failed()) return refuse();
  if (again && goes_slowly_.load(std::memory_order_relaxed)) withdraw_refusal();
  return {};
}

Status Communicator::queue(std::unique_ptr<DeviceRun> run) {
  std::shared_ptr<Completion> completion;
  return queue(Queued(std::move(run)), nullptr, &completion);
}

void Communicator::has_come() {
  {
    const MutexLock lock(mutex_);
    queue_changed_.notify_all();
  }
  tell_refusal();
}

Status Communicator::open_windows(Deadline deadline) {
  if (device_ == nullptr || tree_ == nullptr) return {};
  return device_->open_windows([&](const std::string& own) { return tree_->all_gather(own, deadline); });
}

}  // namespace tutti::internal
