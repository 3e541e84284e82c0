#include "device_work.h"

#include <ATen/core/ivalue.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <thread>
#include <utility>

#include "future_value.h"

namespace tutti_torch {
namespace {

constexpr std::chrono::microseconds kPause{50};

std::optional<std::vector<at::Tensor>> profiled(const Tensors& tensors) {
  if (tensors.empty()) return std::nullopt;
  return tensors;
}

}  // namespace

DeviceWork::DeviceWork(int rank, Operation operation, std::shared_ptr<DeviceQueue> queue, DeviceQueue::End end)
    : c10d::Work(rank, operation.type, operation.title, profiled(operation.shown)),
      operation_(std::move(operation)),
      queue_(std::move(queue)),
      end_(std::move(end)) {
  // Profiles show the call; what the device does they have from the device.
  if (recordFunctionEndCallback_) std::exchange(recordFunctionEndCallback_, nullptr)();
}

bool DeviceWork::isCompleted() {
  return queue_->has_failed() || end_.has_come();
}

bool DeviceWork::isSuccess() const {
  return end_.has_come() && exception() == nullptr;
}

std::exception_ptr DeviceWork::exception() const {
  return queue_->error(operation_.name);
}

int DeviceWork::sourceRank() const {
  TORCH_CHECK(operation_.sender >= 0, "sourceRank() may only be called on work that receives");
  return operation_.sender;
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  const at::Device device = queue_->device();
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  end_.event->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  if (timeout == kNoTimeout) return true;
  for (const auto deadline = Clock::now() + timeout; !isCompleted(); std::this_thread::sleep_for(kPause)) {
    if (Clock::now() < deadline) continue;
    std::rethrow_exception(
        backend_error(operation_.name, "Timed out waiting " + std::to_string(timeout.count()) + "ms for it to end"));
  }
  if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  const std::lock_guard<std::mutex> lock(future_mutex_);
  if (future_ != nullptr) return future_;
  const auto made = c10::make_intrusive<c10::ivalue::Future>(future_type(operation_.lists),
                                                             std::vector<c10::Device>{queue_->device()});
  const c10::StreamGuard inside(end_.stream);
  made->markCompleted(future_value(operation_.outputs, operation_.lists));
  future_ = made;
  return future_;
}

}  // namespace tutti_torch
