#include "device_queue.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <utility>

namespace tutti_torch {

using c10::impl::VirtualGuardImpl;

std::string name_of_device(at::Device device) {
  return "cuda:" + std::to_string(static_cast<int>(device.index()));
}

DeviceQueue::DeviceQueue(at::Device device, tuttiComm_t comm, std::optional<PairRanks> ranks)
    : device_(device),
      ranks_(ranks),
      comm_(comm),
      stream_(VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, false)) {}

std::string DeviceQueue::told(tuttiResult_t result) const {
  std::string text = error_text(result, comm_);
  return ranks_ ? told_of_pair(std::move(text), *ranks_) : text;
}

DeviceQueue::End DeviceQueue::begin(const std::string& operation, const Call& call, const std::function<void()>& after,
                                    const Tensors& touched, bool here) {
  const std::lock_guard<std::mutex> lock(order_);
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
  if (const tuttiResult_t result = call(comm, stream.native_handle()); result != tuttiSuccess) {
    if (result == tuttiInvalidArgument) refuse(operation, error_text(result, nullptr));
    std::rethrow_exception(backend_error(operation, told(result)));
  }
  if (after) after();
  End end{c10::Event(device_.type()), stream};
  end.event.record(stream);
  for (const at::Tensor& tensor : touched) {
    if (!here && tensor.has_storage()) guard.recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
  }
  return end;
}

std::string DeviceQueue::failure() const {
  const tuttiComm_t comm = comm_;
  tuttiResult_t failed = tuttiSuccess;
  if (comm == nullptr || tuttiCommGetAsyncError(comm, &failed) != tuttiSuccess || failed == tuttiSuccess) return {};
  return told(failed);
}

void DeviceQueue::revoke() {
  if (const tuttiComm_t comm = comm_; comm != nullptr) (void)tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT);
}

void DeviceQueue::close() {
  const std::lock_guard<std::mutex> lock(order_);
  if (const tuttiComm_t comm = comm_.exchange(nullptr); comm != nullptr) (void)tuttiCommDestroy(comm);
}

}  // namespace tutti_torch
