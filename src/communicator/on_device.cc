#include "communicator/on_device.h"

#include <utility>

#include "communicator/communicator.h"

namespace tutti::internal {

void CapturedBatch::run(void* captured) {
  const auto& self = *static_cast<const CapturedBatch*>(captured);
  const bool there = self.gate_->enter([&](Communicator& comm) { comm.queue_captured(self.plan_); });
  if (!there) self.plan_->let_go();
}

Result<std::unique_ptr<OnDevice>> OnDevice::open(int ordinal) {
  std::unique_ptr<OnDevice> made(new OnDevice);
  auto device = memory::CudaDevice::get(ordinal);
  if (!device.is_ok()) return device.status();
  made->device_ = *device;
  auto event = made->device_->make_event();
  if (!event.is_ok()) return event.status();
  made->event_ = *event;
  auto channel = DeviceChannel::take(*made->device_);
  if (!channel.is_ok()) return channel.status();
  made->channel_ = *channel;
  return made;
}

OnDevice::~OnDevice() {
  if (channel_ != nullptr) channel_->give_back();
  if (event_ != nullptr) device_->destroy_event(event_);
}

Result<std::shared_ptr<const CapturedChannel>> OnDevice::captured_channel(std::uint64_t capture, void* stream) {
  auto last = captured_.lock();
  if (last != nullptr && last->is_of(capture, stream)) return last;
  auto channel = DeviceChannel::take(*device_);
  if (!channel.is_ok()) return channel.status();
  std::shared_ptr<const CapturedChannel> made = std::make_shared<CapturedChannel>(**channel, capture, stream);
  captured_ = made;
  return made;
}

const std::shared_ptr<GraphGate>& OnDevice::gate(Communicator& comm) {
  if (gate_ == nullptr) gate_ = std::make_shared<GraphGate>(comm);
  return gate_;
}

void OnDevice::close() {
  if (gate_ != nullptr) gate_->close();
}

}  // namespace tutti::internal
