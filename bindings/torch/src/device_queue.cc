#include "device_queue.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <utility>
#include <vector>

#include "capture.h"

namespace tutti_torch {

using c10::impl::VirtualGuardImpl;

std::string name_of_device(at::Device device) {
  return "cuda:" + std::to_string(static_cast<int>(device.index()));
}

namespace {

// Of the process. Never destroyed: queues may be freed by destructors of static objects.
struct Queues {
  std::mutex mutex;
  std::vector<DeviceQueue*> all;
};

Queues& queues() {
  static auto* const made = new Queues;
  return *made;
}

}  // namespace

bool DeviceQueue::End::has_come() const {
  if (captured) return true;
  const AsksInCaptures asks;
  return event->query();
}

DeviceQueue::DeviceQueue(at::Device device, tuttiComm_t comm, std::optional<PairRanks> ranks)
    : device_(device),
      ranks_(ranks),
      comm_(comm),
      stream_(VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false)) {
  const std::lock_guard<std::mutex> lock(queues().mutex);
  queues().all.push_back(this);
}

DeviceQueue::~DeviceQueue() {
  close();
  const std::lock_guard<std::mutex> lock(queues().mutex);
  std::erase(queues().all, this);
}

void DeviceQueue::settle_all() {
  const std::lock_guard<std::mutex> lock(queues().mutex);
  for (DeviceQueue* const queue : queues().all) (void)queue->settle();
}

std::string DeviceQueue::text_of(tuttiResult_t result) const {
  std::string text = failure_text(result, comm_);
  return ranks_ ? told_of_pair(std::move(text), *ranks_) : text;
}

DeviceQueue::End DeviceQueue::begin(const std::string& operation, const Call& call, const Packing& packing,
                                    const Tensors& touched, bool here, const Recorder::Entries& entries) {
  const std::lock_guard<std::mutex> lock(order_);
  (void)settle();
  try {
    End end = put(operation, call, packing, touched, here);
    entries.start();
    const std::lock_guard<std::mutex> of_pending(pending_mutex_);
    pending_.push_back({end, entries});
    return end;
  } catch (const c10::DistBackendError&) {
    entries.end(false);
    throw;
  } catch (...) {
    entries.end(false);
    entries.withdraw();
    throw;
  }
}

DeviceQueue::End DeviceQueue::put(const std::string& operation, const Call& call, const Packing& packing,
                                  const Tensors& touched, bool here) {
  const tuttiComm_t comm = comm_;
  if (comm == nullptr) std::rethrow_exception(backend_error(operation, "the process group has been shut down"));
  const VirtualGuardImpl guard(device_.type());
  const c10::Stream current = guard.getStream(device_);
  const c10::Stream stream = here ? current : stream_;
  if (!here) {
    c10::Event ready(device_.type());
    ready.record(current);
    ready.block(stream);
  }
  const c10::StreamGuard inside(stream);
  for (const at::Tensor& tensor : touched) {
    if (!here && tensor.has_storage()) guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }
  packing.pack();
  if (const tuttiResult_t result = call(comm, stream.native_handle()); result != tuttiSuccess) {
    if (result == tuttiInvalidArgument) refuse(operation, error_text(result, nullptr));
    told_ = true;
    std::rethrow_exception(backend_error(operation, text_of(result)));
  }
  packing.unpack();
  End end{std::make_shared<c10::Event>(device_.type()), stream, is_capturing(stream)};
  end.event->record(stream);
  return end;
}

bool DeviceQueue::settle() {
  const std::lock_guard<std::mutex> lock(pending_mutex_);
  bool failed = has_failed();
  const auto has_ended = [&](const End& end) {
    try {
      return failed || end.has_come();
    } catch (const c10::Error&) {
      return failed = true;
    }
  };
  while (!pending_.empty() && has_ended(pending_.front().end)) {
    pending_.front().entries.end(!failed);
    pending_.pop_front();
  }
  return pending_.empty();
}

std::string DeviceQueue::failure() const {
  const tuttiComm_t comm = comm_;
  if (comm == nullptr) {
    const std::lock_guard<std::mutex> lock(ended_mutex_);
    return ended_why_;
  }
  tuttiResult_t failed = tuttiSuccess;
  if (tuttiCommGetAsyncError(comm, &failed) != tuttiSuccess || failed == tuttiSuccess) return {};
  return text_of(failed);
}

std::exception_ptr DeviceQueue::error(const std::string& operation) {
  const std::string why = failure();
  if (why.empty()) return nullptr;
  told_ = true;
  return backend_error(operation, why);
}

void DeviceQueue::revoke() {
  told_ = true;
  if (const tuttiComm_t comm = comm_; comm != nullptr) (void)tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT);
}

// The handle stays while it is destroyed, so that it can be revoked.
void DeviceQueue::close() {
  const std::lock_guard<std::mutex> lock(order_);
  const tuttiComm_t comm = comm_;
  if (comm == nullptr) return;
  const tuttiResult_t finalized = tuttiCommFinalize(comm);
  std::string why = failure();
  if (why.empty() && finalized != tuttiSuccess) why = text_of(finalized);
  {
    const std::lock_guard<std::mutex> of_end(ended_mutex_);
    ended_why_ = why;
  }
  (void)tuttiCommDestroy(comm);
  comm_ = nullptr;
  (void)settle();
  if (!why.empty() && !told_)
    TORCH_WARN("tutti: operations on ", device_, " have failed, and no call has reported it: ", why);
}

}  // namespace tutti_torch
