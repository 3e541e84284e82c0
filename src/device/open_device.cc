#include "device/open_device.h"

#include "device/backend.h"
#include "os/look_again.h"

namespace tutti::internal {

void ComingBatch::come(void* batch) {
  const auto& self = *static_cast<const ComingBatch*>(batch);
  const bool once = self.channel_ == nullptr;
  const bool there = self.gate_->enter([&](DeviceBackend& backend) { backend.stream_has_come(self.plan_, once); });
  if (!there) self.plan_->let_go();
}

void ComingBatch::come_once(void* batch) {
  come(batch);
  destroy(batch);
}

Result<std::unique_ptr<OpenDevice>> OpenDevice::open(int ordinal) {
  std::unique_ptr<OpenDevice> made(new OpenDevice);
  auto device = memory::CudaDevice::get(ordinal);
  if (!device.is_ok()) return device.status();
  made->device_ = *device;
  const memory::CudaCurrent current = made->device_->use();
  if (Status s = current.status(); !s.is_ok()) return s;
  auto kernels = DirectKernels::of(*made->device_);
  if (!kernels.is_ok()) return kernels.status();
  made->kernels_ = *kernels;
  for (auto* event : {&made->event_, &made->captured_event_, &made->direct_event_}) {
    auto one = made->device_->make_event();
    if (!one.is_ok()) return one.status();
    *event = *one;
  }
  auto channel = DeviceChannel::take(*made->device_);
  if (!channel.is_ok()) return channel.status();
  made->channel_ = *channel;
  return made;
}

OpenDevice::~OpenDevice() {
  if (device_ == nullptr) return;
  if (channel_ != nullptr) channel_->give_back();
  const memory::CudaCurrent current = device_->use();
  for (const auto event : {event_, captured_event_, direct_event_}) {
    if (event != nullptr) device_->destroy_event(event);
  }
}

Result<std::shared_ptr<const CapturedChannel>> OpenDevice::captured_channel(std::uint64_t capture) {
  auto last = captured_.lock();
  if (last != nullptr && last->capture() == capture) return last;
  auto channel = DeviceChannel::take(*device_);
  if (!channel.is_ok()) return channel.status();
  std::shared_ptr<const CapturedChannel> made = std::make_shared<CapturedChannel>(**channel, capture);
  captured_ = made;
  return made;
}

const std::shared_ptr<StreamGate>& OpenDevice::gate(DeviceBackend& backend) {
  if (gate_ == nullptr) gate_ = std::make_shared<StreamGate>(backend);
  return gate_;
}

bool OpenDevice::runs_kernel() const {
  if (!last_is_direct_) return false;
  const memory::CudaCurrent current = device_->use();
  auto reached = device_->has_reached(direct_event_);
  return !reached.is_ok() || !*reached;
}

bool OpenDevice::await_return(std::int64_t longest_ms) const {
  const auto returned = [&] {
    return DeviceChannel::reached(channel_->load(DeviceChannel::Word::kReturned), channel_->count());
  };
  const Deadline deadline = Deadline::after_ms(longest_ms);
  for (LookAgain look; !returned() && !deadline.passed();) look.pause();
  return returned();
}

Status OpenDevice::check() const {
  const memory::CudaCurrent current = device_->use();
  Status used = current.status();
  return used.is_ok() ? device_->check(event_) : used;
}

void OpenDevice::close() {
  if (gate_ != nullptr) gate_->close();
}

}  // namespace tutti::internal
