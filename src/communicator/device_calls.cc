#include "communicator/device_calls.h"

#include <utility>

#include "base/collectives.h"
#include "calls/descriptions.h"
#include "selection/select.h"

namespace tutti::internal {

DeviceCalls::DeviceCalls(std::unique_ptr<OpenDevice> device, const Epoch& epoch, Failures& failures,
                         SubmissionQueue& queue)
    : epoch_(epoch),
      failures_(failures),
      queue_(queue),
      backend_(new DeviceBackend(std::move(device), *this, epoch.membership(), failures.state(), epoch.secret(),
                                 epoch.settings().timeout_ms)) {
  failures.stop_with(backend_.get());
  queue.set_device(backend_.get());
}

Status DeviceCalls::open_windows(Deadline deadline) {
  return backend_->open_windows([&](const std::string& own) { return epoch_.all_gather(own, deadline); });
}

Status DeviceCalls::enqueue(std::shared_ptr<const Batch> batch, void* stream) {
  Status checked = guarded([&]() -> Status {
    for (const Call& call : batch->calls) {
      if (is_empty(call)) continue;
      if (Status s = epoch_.plans().check_forced(call.collective, order_of(call)); !s.is_ok()) return s;
    }
    return backend_->check(*batch, {&stream, 1});
  });
  if (!checked.is_ok()) return failures_.fail(name_of(*batch), std::move(checked));
  return backend_->enqueue(std::move(batch), {&stream, 1});
}

Status DeviceCalls::begin_call() {
  failures_.accept();
  return failures_.has_ended() ? failures_.refuse() : Status();
}

Status DeviceCalls::begin_queued(bool again) {
  if (failures_.has_ended()) return failures_.refuse();
  if (again) failures_.withdraw_refusal();
  return {};
}

Status DeviceCalls::queue(std::unique_ptr<DeviceRun> run) {
  std::shared_ptr<Completion> completion;
  return queue_.submit(Queued(std::move(run)), nullptr, &completion);
}

void DeviceCalls::has_come() {
  queue_.look_again();
  failures_.tell_refusal([&] { return queue_.has_queued(); });
}

}  // namespace tutti::internal
