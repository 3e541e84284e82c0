// Staged operations; backend_direct.cc has the direct ones.
#include "device/backend.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "calls/descriptions.h"
#include "device/buffers.h"

namespace tutti::internal {

const char* DeviceBackend::describe_kernel(Collective collective, std::size_t bytes) {
  Call call;
  call.collective = collective;
  if (!may_run_directly(call)) return nullptr;
  if (rendezvous_->is_one_device(failure_)) return "direct";
  const bool by_windows = has_windows_ && bytes >= rendezvous_->windows().least_bytes && has_data(collective);
  return by_windows ? "direct by windows" : nullptr;
}

Status DeviceBackend::enqueue(std::shared_ptr<const Batch> batch, std::span<void* const> streams) {
  auto begun = begin(std::move(batch), streams);
  return begun.is_ok() ? end(begun->get()) : begun.status();
}

Status DeviceBackend::check(const Batch& batch, std::span<void* const> streams) const {
  const memory::CudaDevice& device = open_->device();
  const memory::CudaCurrent current = device.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  std::uint64_t capture = 0;
  if (Status s = find_capture(streams, &capture); !s.is_ok()) return s;
  return check_device_buffers(batch, rank(), ranks(), device);
}

// *capture: 0 if no stream captures.
Status DeviceBackend::find_capture(std::span<void* const> streams, std::uint64_t* capture) const {
  *capture = 0;
  for (void* const stream : streams) {
    std::uint64_t id = 0;
    if (Status s = open_->device().find_capture(memory::CudaDevice::stream_of(stream), &id); !s.is_ok()) return s;
    if (id != 0) *capture = id;
  }
  if (*capture == 0 || streams.size() == 1) return {};
  return Status::invalid_usage("a captured group has calls in several streams. Use one stream for all of its calls");
}

// An error to queue the batch fails the communicator, because the peers have queued theirs, unless it is a refusal or
// the batch was to be captured: then nothing runs yet.
Status DeviceBackend::judge_queued(const Batch& batch, Status status, bool captures) {
  if (status.is_ok()) return status;
  return owner_.fail(name_of(batch), captures ? status.with_code(Code::kInvalidUsage) : std::move(status));
}

Result<std::unique_ptr<DeviceSubmission>> DeviceBackend::begin(std::shared_ptr<const Batch> batch,
                                                               std::span<void* const> streams) {
  look_at_reports();
  if (Status s = owner_.begin_call(); !s.is_ok()) return s;
  bool captures = false;
  std::unique_ptr<DeviceSubmission> begun;
  Status status = guarded([&]() -> Status {
    const memory::CudaCurrent current = open_->device().use();
    if (Status s = current.status(); !s.is_ok()) return s;
    std::uint64_t capture = 0;
    if (Status s = find_capture(streams, &capture); !s.is_ok()) return s;
    captures = capture != 0;
    if (captures) return this->capture(batch, capture, streams.front());
    begun = std::make_unique<DeviceSubmission>(this, batch, streams);
    begun->own_thread = std::any_of(streams.begin(), streams.end(), memory::CudaDevice::is_of_thread);
    if (!rendezvous_->batches() || batch->calls.empty()) {
      begun->state = DeviceSubmission::State::kAlone;
    } else {
      begun->direct =
          batch->transfers.empty() && std::all_of(batch->calls.begin(), batch->calls.end(), [&](const Call& call) {
            return is_empty(call) || (may_run_directly(call) && check_direct_buffers(call).is_ok());
          });
    }
    return {};
  });
  if (!status.is_ok()) return judge_queued(*batch, std::move(status), captures);
  // After the device is no longer current: the last rank to arrive makes other devices current.
  if (begun != nullptr && begun->state == DeviceSubmission::State::kUnderWay) {
    Status brought = guarded([&] { return bring(begun.get()), Status(); });
    if (!brought.is_ok()) return judge_queued(*batch, std::move(brought), false);
  }
  return begun;
}

Status DeviceBackend::end(DeviceSubmission* begun) {
  if (begun == nullptr) return {};
  rendezvous_->wait(begun, failure_);
  if (begun->state == DeviceSubmission::State::kAlone) begun->status = guarded([&] { return queue_alone(begun); });
  return judge_queued(*begun->batch, std::move(begun->status), false);
}

Status DeviceBackend::queue_alone(DeviceSubmission* own) {
  if (Status s = begin_staged(own); !s.is_ok()) return s;
  for (std::size_t step = 0; step < own->plan->steps(); ++step) {
    if (Status s = step_staged(*own, step); !s.is_ok()) return s;
  }
  return end_staged(*own);
}

void DeviceBackend::submit_staged(std::span<DeviceSubmission* const> all) {
  const auto of_each = [&](auto&& what) {
    for (DeviceSubmission* const one : all) {
      if (one->status.is_ok()) one->status = guarded([&] { return what(one); });
    }
  };
  of_each([](DeviceSubmission* one) { return one->backend->begin_staged(one); });
  std::size_t steps = 0;
  for (const DeviceSubmission* const one : all) {
    if (one->status.is_ok()) steps = std::max(steps, one->plan->steps());
  }
  for (std::size_t step = 0; step < steps; ++step) {
    of_each([&](const DeviceSubmission* one) { return one->backend->step_staged(*one, step); });
  }
  of_each([](const DeviceSubmission* one) { return one->backend->end_staged(*one); });
}

// In the order of the calls, for all streams: each call waits until the previous one is back in the device, which also
// frees the slots, before it reports that its stream has reached it.
Status DeviceBackend::gather_streams(const DeviceSubmission& own) {
  const memory::CudaDevice& device = open_->device();
  const auto stream = memory::CudaDevice::stream_of(own.streams.front());
  if (Status s = open_->follow(stream); !s.is_ok()) return s;
  for (void* const other : std::span(own.streams).subspan(1)) {
    if (Status s = device.record(memory::CudaDevice::stream_of(other), open_->event()); !s.is_ok()) return s;
    if (Status s = device.wait_for(stream, open_->event()); !s.is_ok()) return s;
  }
  return {};
}

DevicePlan::Setting DeviceBackend::setting_of_plan(DeviceChannel& channel) const {
  const bool by_windows = has_windows_ && !owner_.is_forced();
  return {rank(), ranks(), channel, open_->device(), by_windows ? rendezvous_ : nullptr};
}

Status DeviceBackend::begin_staged(DeviceSubmission* own) {
  const memory::CudaDevice& device = open_->device();
  const memory::CudaCurrent current = device.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  if (Status s = gather_streams(*own); !s.is_ok()) return s;
  auto made = DevicePlan::make(own->batch, setting_of_plan(open_->channel()));
  if (!made.is_ok()) return made.status();
  own->plan = std::move(*made);
  open_->set_last_direct(false);
  auto coming = std::make_unique<ComingBatch>(open_->gate(*this), own->plan);
  coming_.fetch_add(1, std::memory_order_relaxed);
  if (Status s =
          device.call(memory::CudaDevice::stream_of(own->streams.front()), &ComingBatch::come_once, coming.get());
      !s.is_ok()) {
    coming_.fetch_sub(1, std::memory_order_relaxed);
    return s;
  }
  (void)coming.release();  // the driver has it
  return {};
}

Status DeviceBackend::step_staged(const DeviceSubmission& own, std::size_t step) {
  if (step >= own.plan->steps()) return {};
  const memory::CudaCurrent current = own.backend->open_->device().use();
  if (Status s = current.status(); !s.is_ok()) return s;
  return own.plan->put_step(step, memory::CudaDevice::stream_of(own.streams.front()));
}

Status DeviceBackend::end_staged(const DeviceSubmission& own) {
  const memory::CudaDevice& device = open_->device();
  const memory::CudaCurrent current = device.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  for (void* const other : std::span(own.streams).subspan(1)) {
    const std::uint32_t* const returned = open_->channel().word(DeviceChannel::Word::kReturned);
    if (Status s = device.wait_for(memory::CudaDevice::stream_of(other), returned, own.plan->end()); !s.is_ok())
      return s;
  }
  return {};
}

// Also in the order of the calls. The words start again at 0 whenever the graph runs.
Status DeviceBackend::capture_staged(std::shared_ptr<const Batch> batch, std::uint64_t capture, void* stream) {
  const memory::CudaDevice& device = open_->device();
  const auto at = memory::CudaDevice::stream_of(stream);
  const bool first = open_->begins_capture(capture);
  auto channel = open_->captured_channel(capture);
  if (!channel.is_ok()) return channel.status();
  const DeviceChannel& words = (*channel)->channel();
  auto plan = DevicePlan::make(std::move(batch), setting_of_plan((*channel)->channel()));
  if (!plan.is_ok()) return plan.status();
  auto coming = std::make_unique<ComingBatch>(open_->gate(*this), *plan, std::move(*channel));
  if (!first) {
    if (Status s = device.wait_for(at, open_->captured_event()); !s.is_ok()) return s;
  }
  ComingBatch* const given = coming.release();
  if (Status s = device.give_to_graph(at, given, &ComingBatch::destroy); !s.is_ok()) return s;
  for (const auto word : {DeviceChannel::Word::kEntered, DeviceChannel::Word::kRun}) {
    if (Status s = device.write(at, words.word(word), 0); !s.is_ok()) return s;
  }
  if (Status s = device.call(at, &ComingBatch::come, given); !s.is_ok()) return s;
  if (Status s = (*plan)->put_into(at); !s.is_ok()) return s;
  if (Status s = device.record(at, open_->captured_event()); !s.is_ok()) return s;
  open_->set_captured(capture);
  return {};
}

void DeviceBackend::stream_has_come(const std::shared_ptr<const DevicePlan>& plan, bool once) {
  Status status = guarded([&]() -> Status {
    if (Status s = owner_.begin_queued(!once); !s.is_ok()) return s;
    if (!plan->begin()) {
      return owner_.fail(
          name_of(plan->batch()),
          Status(Code::kInternalError, "a graph runs twice at the same time, but its operations share memory"));
    }
    return owner_.queue(std::make_unique<DeviceRun>(plan, timeout_ms_));
  });
  if (!status.is_ok()) plan->let_go();
  if (!once) return;
  // In this order: a batch is queued before it is no longer counted as coming.
  coming_.fetch_sub(1, std::memory_order_release);
  owner_.has_come();
}

void DeviceBackend::look() {
  if (failure_.failed()) return;
  look_at_reports();
  if (Status works = open_->check(); !works.is_ok()) (void)owner_.fail("device", std::move(works));
}

void DeviceBackend::stop() noexcept {
  rendezvous_->stop(rank());
}

void DeviceBackend::leave() {
  rendezvous_->leave(rank());
}

void DeviceBackend::release(std::int64_t longest_ms) {
  if (has_windows_ && !failure_.failed() && open_->await_return(longest_ms)) rendezvous_->set_quiet(rank());
}

}  // namespace tutti::internal
