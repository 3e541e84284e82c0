// Operations on the memory of a CUDA device: queued in the order of the calls, each begins when its streams have come
// to it and lets them go on when it has ended. See device_plan.h for what runs.
#include <algorithm>
#include <memory>
#include <utility>

#include "communicator/communicator.h"

namespace tutti::internal {
namespace {

// The stream has come to a batch, whose Completion's owner is this: a HostFunction, which frees it.
void come(void* begun) {
  const std::unique_ptr<std::shared_ptr<Completion>> owner(static_cast<std::shared_ptr<Completion>*>(begun));
  (void)guarded([&] { return (*owner)->complete({}), Status(); });
}

memory::CudaDevice::Stream stream_of(void* stream) {
  return static_cast<memory::CudaDevice::Stream>(stream);
}

}  // namespace

Result<std::string> Communicator::describe_plan(Collective collective, std::size_t bytes) const {
  if (!is_on_device()) return plans_->describe(collective, bytes);
  auto text = plans_->describe(collective, std::min(bytes, DevicePlan::kPieceBytes));
  if (text.is_ok()) *text += " through the host";
  return text;
}

const char* Communicator::name_of_batch(const Batch& batch) {
  if (batch.calls.size() + batch.transfers.size() != 1) return "group";
  if (batch.calls.size() == 1) return name_of(batch.calls.front().collective);
  return batch.transfers.front().sends ? "send" : "recv";
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
  return enqueue_on_device(std::move(batch), {&stream, 1});
}

Status Communicator::enqueue_on_device(const Transfer& transfer, void* stream) {
  std::shared_ptr<const Batch> batch;
  if (Status s = copy({&transfer, 1}, &batch); !s.is_ok()) return s;
  return enqueue_on_device(std::move(batch), {&stream, 1});
}

// What cannot be queued fails the communicator: the peers have queued theirs.
Status Communicator::enqueue_on_device(std::shared_ptr<const Batch> batch, std::span<void* const> streams) {
  if (shares_process_) process_rank_.touch();
  if (finalized_ || failure_->failed()) return refuse();
  const char* const name = name_of_batch(*batch);
  Status status = guarded([&]() -> Status {
    std::uint64_t capture = 0;
    for (void* const stream : streams) {
      std::uint64_t id = 0;
      if (Status s = on_device_->device().find_capture(stream_of(stream), &id); !s.is_ok()) return s;
      if (id != 0) capture = id;
    }
    if (capture == 0) return queue_on_device(std::move(batch), streams);
    if (streams.size() == 1) return capture_on_device(std::move(batch), capture, streams.front());
    return Status::invalid_usage("a group that is captured in a graph must have all of its calls in one stream");
  });
  return status.is_ok() ? status : fail(name, std::move(status));
}

Status Communicator::queue_on_device(std::shared_ptr<const Batch> batch, std::span<void* const> streams) {
  const memory::CudaDevice& device = on_device_->device();
  DeviceChannel& channel = on_device_->channel();
  auto plan = DevicePlan::make(std::move(batch), rank(), ranks(), channel, device);
  if (!plan.is_ok()) return plan.status();
  auto begun = std::make_shared<Completion>();
  auto told = std::make_unique<std::shared_ptr<Completion>>(begun);
  Queued next(std::make_unique<DeviceRun>(*plan, settings_.timeout_ms));
  next.before = std::move(begun);
  std::shared_ptr<Completion> completion;
  if (Status s = queue(std::move(next), nullptr, &completion); !s.is_ok()) return s;
  // Slots are free when what was called before, in whatever stream, is back in the device.
  const auto stream = stream_of(streams.front());
  const std::uint32_t* const returned = channel.word(DeviceChannel::Word::kReturned);
  if (Status s = device.wait_for(stream, returned, (*plan)->first()); !s.is_ok()) return s;
  const auto others = streams.subspan(1);
  for (void* const other : others) {
    if (Status s = device.wait_for(stream, stream_of(other), on_device_->event()); !s.is_ok()) return s;
  }
  if (Status s = device.call(stream, &come, told.get()); !s.is_ok()) return s;
  (void)told.release();  // the driver has it
  if (Status s = (*plan)->put_into(stream, device); !s.is_ok()) return s;
  for (void* const other : others) {
    if (Status s = device.wait_for(stream_of(other), returned, (*plan)->end()); !s.is_ok()) return s;
  }
  return {};
}

// The words begin anew whenever the graph runs.
Status Communicator::capture_on_device(std::shared_ptr<const Batch> batch, std::uint64_t capture, void* stream) {
  const memory::CudaDevice& device = on_device_->device();
  auto channel = on_device_->captured_channel(capture, stream);
  if (!channel.is_ok()) return channel.status();
  const DeviceChannel& words = (*channel)->channel();
  auto plan = DevicePlan::make(std::move(batch), rank(), ranks(), (*channel)->channel(), device);
  if (!plan.is_ok()) return plan.status();
  auto captured = std::make_unique<CapturedBatch>(on_device_->gate(*this), *plan, std::move(*channel));
  for (const auto word : {DeviceChannel::Word::kEntered, DeviceChannel::Word::kRun}) {
    if (Status s = device.write(stream_of(stream), words.word(word), 0); !s.is_ok()) return s;
  }
  CapturedBatch* const given = captured.release();
  if (Status s = device.give_to_graph(stream_of(stream), given, &CapturedBatch::destroy); !s.is_ok()) return s;
  if (Status s = device.call(stream_of(stream), &CapturedBatch::run, given); !s.is_ok()) return s;
  return (*plan)->put_into(stream_of(stream), device);
}

void Communicator::queue_captured(const std::shared_ptr<const DevicePlan>& plan) {
  Status status = guarded([&]() -> Status {
    if (finalized_ || failure_->failed()) return refuse();
    std::shared_ptr<Completion> completion;
    return queue(Queued(std::make_unique<DeviceRun>(plan, settings_.timeout_ms)), nullptr, &completion);
  });
  if (!status.is_ok()) plan->let_go();
}

void Communicator::look_at_device() {
  if (on_device_ == nullptr || failure_->failed()) return;
  if (Status works = on_device_->check(); !works.is_ok()) (void)fail("device", std::move(works));
}

}  // namespace tutti::internal
