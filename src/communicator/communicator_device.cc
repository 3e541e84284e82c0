// Operations on the memory of a CUDA device, in the order of the calls: into streams, together with other ranks'
// (device_convoy.h) or alone, or into a graph. Here what is staged; see device_plan.h for what runs, and
// communicator_direct.cc for what a kernel does.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "communicator/communicator.h"
#include "communicator/descriptions.h"
#include "communicator/device_buffers.h"

namespace tutti::internal {

Result<std::vector<std::string>> Communicator::describe_plan(Collective collective, std::size_t bytes,
                                                             bool at_length) const {
  std::size_t piece = bytes;
  if (is_on_device()) {
    Call call;
    call.collective = collective;
    const bool directly = may_run_directly(call);
    if (directly && convoy_ != nullptr && convoy_->is_one_device(*failure_)) return std::vector<std::string>{"direct"};
    const bool by_windows = windows_ != nullptr && directly && bytes >= windows_->least_bytes();
    if (by_windows && has_data(collective)) return std::vector<std::string>{"direct by windows"};
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
    return check_on_device(*batch, {&stream, 1});
  });
  if (!checked.is_ok()) return fail(name_of(*batch), std::move(checked));
  return enqueue_on_device(std::move(batch), {&stream, 1});
}

Status Communicator::check_on_device(const Batch& batch, std::span<void* const> streams) const {
  const memory::CudaDevice& device = on_device_->device();
  const memory::CudaCurrent current = device.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  std::uint64_t capture = 0;
  if (Status s = find_capture(streams, &capture); !s.is_ok()) return s;
  return check_device_buffers(batch, rank(), ranks(), device);
}

// *capture: 0 if none of them captures.
Status Communicator::find_capture(std::span<void* const> streams, std::uint64_t* capture) const {
  *capture = 0;
  for (void* const stream : streams) {
    std::uint64_t id = 0;
    if (Status s = on_device_->device().find_capture(memory::CudaDevice::stream_of(stream), &id); !s.is_ok()) return s;
    if (id != 0) *capture = id;
  }
  if (*capture == 0 || streams.size() == 1) return {};
  return Status::invalid_usage("a group that is captured in a graph must have all of its calls in one stream");
}

// What cannot be queued fails the communicator, as the peers have queued theirs, unless it is refused, or was to be
// captured: then nothing runs yet.
Status Communicator::judge_queued(const Batch& batch, Status status, bool captures) {
  if (status.is_ok()) return status;
  return fail(name_of(batch), captures ? status.with_code(Code::kInvalidUsage) : std::move(status));
}

Result<std::unique_ptr<DeviceSubmission>> Communicator::begin_on_device(std::shared_ptr<const Batch> batch,
                                                                        std::span<void* const> streams) {
  accept();
  look_at_meetings();
  if (finalized_ || failure_->failed()) return refuse();
  bool captures = false;
  std::unique_ptr<DeviceSubmission> begun;
  Status status = guarded([&]() -> Status {
    const memory::CudaCurrent current = on_device_->device().use();
    if (Status s = current.status(); !s.is_ok()) return s;
    std::uint64_t capture = 0;
    if (Status s = find_capture(streams, &capture); !s.is_ok()) return s;
    captures = capture != 0;
    if (captures) return capture_on_device(batch, capture, streams.front());
    begun = std::make_unique<DeviceSubmission>(*this, batch, streams);
    begun->own_thread = std::any_of(streams.begin(), streams.end(), memory::CudaDevice::is_of_thread);
    if (convoy_ == nullptr || batch->calls.empty()) {
      begun->state = DeviceSubmission::State::kApart;
    } else {
      begun->direct =
          batch->transfers.empty() && std::all_of(batch->calls.begin(), batch->calls.end(), [&](const Call& call) {
            return is_empty(call) || (may_run_directly(call) && check_direct_buffers(call).is_ok());
          });
    }
    return {};
  });
  if (!status.is_ok()) return judge_queued(*batch, std::move(status), captures);
  // Not while the device is current: the last one that comes makes others current.
  if (begun != nullptr && begun->state == DeviceSubmission::State::kUnderWay) {
    Status come = guarded([&] { return convoy_->come(rank(), begun.get()), Status(); });
    if (!come.is_ok()) return judge_queued(*batch, std::move(come), false);
  }
  return begun;
}

Status Communicator::end_on_device(DeviceSubmission* begun) {
  if (begun == nullptr) return {};
  if (convoy_ != nullptr) convoy_->wait(begun, *failure_);
  if (begun->state == DeviceSubmission::State::kApart) begun->status = guarded([&] { return queue_alone(begun); });
  return judge_queued(*begun->batch, std::move(begun->status), false);
}

Status Communicator::queue_alone(DeviceSubmission* own) {
  if (Status s = begin_staged(own); !s.is_ok()) return s;
  for (std::size_t step = 0; step < own->plan->steps(); ++step) {
    if (Status s = step_staged(*own, step); !s.is_ok()) return s;
  }
  return end_staged(*own);
}

void Communicator::submit_together(std::span<DeviceSubmission* const> all, bool direct) {
  if (direct) {
    const Status status = guarded([&] { return submit_directly(all); });
    for (DeviceSubmission* const one : all) one->status = status;
    return;
  }
  const auto of_each = [&](auto&& what) {
    for (DeviceSubmission* const one : all) {
      if (one->status.is_ok()) one->status = guarded([&] { return what(one); });
    }
  };
  of_each([](DeviceSubmission* one) { return one->comm.begin_staged(one); });
  std::size_t steps = 0;
  for (const DeviceSubmission* const one : all) {
    if (one->status.is_ok()) steps = std::max(steps, one->plan->steps());
  }
  for (std::size_t step = 0; step < steps; ++step) {
    of_each([&](const DeviceSubmission* one) { return one->comm.step_staged(*one, step); });
  }
  of_each([](const DeviceSubmission* one) { return one->comm.end_staged(*one); });
}

// In the order of the calls, whatever their streams: each waits until the one before is back in the device, which also
// frees the slots, before it tells that it has come.
Status Communicator::gather_streams(const DeviceSubmission& own) {
  const memory::CudaDevice& device = on_device_->device();
  const auto stream = memory::CudaDevice::stream_of(own.streams.front());
  if (Status s = on_device_->follow(stream); !s.is_ok()) return s;
  for (void* const other : std::span(own.streams).subspan(1)) {
    if (Status s = device.record(memory::CudaDevice::stream_of(other), on_device_->event()); !s.is_ok()) return s;
    if (Status s = device.wait_for(stream, on_device_->event()); !s.is_ok()) return s;
  }
  return {};
}

DevicePlan::Setting Communicator::setting_of_plan(DeviceChannel& channel) const {
  const bool direct = windows_ != nullptr && membership_.algorithm.empty();
  return {rank(), ranks(), channel, on_device_->device(), direct ? windows_.get() : nullptr};
}

Status Communicator::begin_staged(DeviceSubmission* own) {
  const memory::CudaDevice& device = on_device_->device();
  const memory::CudaCurrent current = device.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  if (Status s = gather_streams(*own); !s.is_ok()) return s;
  auto made = DevicePlan::make(own->batch, setting_of_plan(on_device_->channel()));
  if (!made.is_ok()) return made.status();
  own->plan = std::move(*made);
  on_device_->set_last_direct(false);
  auto coming = std::make_unique<ComingBatch>(on_device_->gate(*this), own->plan);
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

Status Communicator::step_staged(const DeviceSubmission& own, std::size_t step) {
  if (step >= own.plan->steps()) return {};
  const memory::CudaCurrent current = own.comm.on_device_->device().use();
  if (Status s = current.status(); !s.is_ok()) return s;
  return own.plan->put_step(step, memory::CudaDevice::stream_of(own.streams.front()));
}

Status Communicator::end_staged(const DeviceSubmission& own) {
  const memory::CudaDevice& device = on_device_->device();
  const memory::CudaCurrent current = device.use();
  if (Status s = current.status(); !s.is_ok()) return s;
  for (void* const other : std::span(own.streams).subspan(1)) {
    const std::uint32_t* const returned = on_device_->channel().word(DeviceChannel::Word::kReturned);
    if (Status s = device.wait_for(memory::CudaDevice::stream_of(other), returned, own.plan->end()); !s.is_ok())
      return s;
  }
  return {};
}

// In the order of the calls, too. The words begin anew whenever the graph runs.
Status Communicator::capture_staged(std::shared_ptr<const Batch> batch, std::uint64_t capture, void* stream) {
  const memory::CudaDevice& device = on_device_->device();
  const auto at = memory::CudaDevice::stream_of(stream);
  const bool first = on_device_->begins_capture(capture);
  auto channel = on_device_->captured_channel(capture);
  if (!channel.is_ok()) return channel.status();
  const DeviceChannel& words = (*channel)->channel();
  auto plan = DevicePlan::make(std::move(batch), setting_of_plan((*channel)->channel()));
  if (!plan.is_ok()) return plan.status();
  if ((*plan)->uses_windows()) windows_->set_captured();
  auto coming = std::make_unique<ComingBatch>(on_device_->gate(*this), *plan, std::move(*channel));
  if (!first) {
    if (Status s = device.wait_for(at, on_device_->captured_event()); !s.is_ok()) return s;
  }
  ComingBatch* const given = coming.release();
  if (Status s = device.give_to_graph(at, given, &ComingBatch::destroy); !s.is_ok()) return s;
  for (const auto word : {DeviceChannel::Word::kEntered, DeviceChannel::Word::kRun}) {
    if (Status s = device.write(at, words.word(word), 0); !s.is_ok()) return s;
  }
  if (Status s = device.call(at, &ComingBatch::come, given); !s.is_ok()) return s;
  if (Status s = (*plan)->put_into(at); !s.is_ok()) return s;
  if (Status s = device.record(at, on_device_->captured_event()); !s.is_ok()) return s;
  on_device_->set_captured(capture);
  return {};
}

void Communicator::stream_has_come(const std::shared_ptr<const DevicePlan>& plan, bool once) {
  Status status = guarded([&]() -> Status {
    if (finalized_ || failure_->failed()) return refuse();
    if (!once && goes_slowly_.load(std::memory_order_relaxed)) withdraw_refusal();  // a graph runs
    if (!plan->begin()) {
      return fail(
          name_of(plan->batch()),
          Status(Code::kInternalError, "a graph runs twice at the same time, and its operations have one memory"));
    }
    std::shared_ptr<Completion> completion;
    return queue(Queued(std::make_unique<DeviceRun>(plan, settings_.timeout_ms)), nullptr, &completion);
  });
  if (!status.is_ok()) plan->let_go();
  if (!once) return;
  {
    const MutexLock lock(mutex_);
    coming_.fetch_sub(1, std::memory_order_release);
    queue_changed_.notify_all();
  }
  tell_refusal();
}

// Of a failed communicator no stream is waited for that has still to come. In this order: what comes is pending before
// it is no longer coming.
bool Communicator::has_queued() const {
  return (coming_.load(std::memory_order_acquire) != 0 && !failure_->failed()) ||
         pending_.load(std::memory_order_acquire) != 0;
}

void Communicator::look_at_device() {
  if (on_device_ == nullptr || failure_->failed()) return;
  look_at_meetings();
  if (Status works = on_device_->check(); !works.is_ok()) (void)fail("device", std::move(works));
}

}  // namespace tutti::internal
