// The operations of Backend on the tensors of devices.
#include <algorithm>
#include <utility>

#include "backend.h"
#include "device_work.h"
#include "failure.h"
#include "recorder.h"
#include "run.h"

namespace tutti_torch {

std::vector<std::shared_ptr<DeviceQueue>> Backend::device_queues() {
  const std::lock_guard<std::mutex> lock(queues_mutex_);
  std::vector<std::shared_ptr<DeviceQueue>> all;
  for (const auto& [key, queue] : queues_) all.push_back(queue);
  return all;
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  if (is_accelerator(device)) (void)queue_of(device);
}

// Ranks call this in one order, as all that is collective.
std::shared_ptr<DeviceQueue> Backend::queue_of(at::Device device) {
  const std::lock_guard<std::mutex> lock(queues_mutex_);
  std::shared_ptr<DeviceQueue>& queue = queues_[{device.str(), -1}];
  if (queue == nullptr) {
    const tuttiComm_t comm = collectives_->split_to(name_of_device(device), rank_, comm_timeout_);
    queue = std::make_shared<DeviceQueue>(device, comm, std::nullopt);
  }
  return queue;
}

std::shared_ptr<DeviceQueue> Backend::queue_of_pair(at::Device device, int peer) {
  const QueueKey key{device.str(), peer};
  {
    const std::lock_guard<std::mutex> lock(queues_mutex_);
    const auto known = queues_.find(key);
    if (known != queues_.end()) return known->second;
  }
  // Without the lock: another thread may need another queue before the peer comes.
  const PairRanks ranks{std::min(rank_, peer), std::max(rank_, peer)};
  const std::string name = "device/" + std::to_string(ranks.sender) + "/" + std::to_string(ranks.receiver);
  const auto deadline = Clock::now() + comm_timeout_;
  const auto why_none = [&] { return no_pair(peer, deadline); };
  const tuttiComm_t comm =
      join_pair(*own_store_, name, rank_ == ranks.sender ? 0 : 1, comm_timeout_, why_none, name_of_device(device));
  const std::lock_guard<std::mutex> lock(queues_mutex_);
  return queues_[key] = std::make_shared<DeviceQueue>(device, comm, ranks);
}

bool Backend::is_coalescing() {
  const std::lock_guard<std::mutex> lock(coalescing_mutex_);
  return coalescing_;
}

WorkPtr Backend::begin_on_device(Operation operation) {
  {
    const std::lock_guard<std::mutex> lock(coalescing_mutex_);
    if (coalescing_) {
      coalesced_on_device_.push_back(std::move(operation));
      return nullptr;
    }
  }
  return begin_now_on_device(std::move(operation));
}

WorkPtr Backend::begin_now_on_device(Operation operation) {
  Tensors touched = operation.kept;
  touched.insert(touched.end(), operation.inputs.begin(), operation.inputs.end());
  touched.insert(touched.end(), operation.outputs.begin(), operation.outputs.end());
  const auto queue = operation.queue != nullptr ? operation.queue : queue_of(device_of(touched));
  const std::uint64_t number = ++device_operations_;
  const bool transfer = c10d::isP2POp(operation.type);
  auto entry = Recorder::get().add(pg_uid_, pg_desc_, operation.title, number, transfer, timeout_.load().count(),
                                   operation.inputs, operation.outputs);
  DeviceQueue::End end = queue->begin(operation.name, operation.call, operation.after, touched, !operation.async);
  DeviceWork::Operation told{operation.type,    operation.name,
                             operation.title,   operation.inputs.empty() ? operation.outputs : operation.inputs,
                             operation.outputs, number,
                             operation.sender};
  return c10::make_intrusive<DeviceWork>(rank_, std::move(told), queue, std::move(end), std::move(entry));
}

// Null: there is nothing of it.
WorkPtr Backend::end_coalescing_on_device() {
  std::vector<Operation> operations;
  bool others = false;
  {
    const std::lock_guard<std::mutex> lock(coalescing_mutex_);
    if (coalesced_on_device_.empty()) return nullptr;
    coalescing_ = false;
    operations = std::exchange(coalesced_on_device_, {});
    others = !coalesced_.empty();
  }
  Operation all = together(std::move(operations));
  all.async = true;
  if (others) {
    stop_coalescing();
    refuse(all.name, "cannot be coalesced with operations on the CPU");
  }
  check_one_device(all.name, all.inputs, all.outputs);
  return begin_now_on_device(std::move(all));
}

// What is coalesced runs in the group's communicator, whose ranks it names; else it is of two.
WorkPtr Backend::send_on_device(const at::Tensor& tensor, int to) {
  return run_on_device([&] {
    Operation operation(c10d::OpType::SEND, "send", "tutti:send", {tensor}, {});
    const bool in_group = is_coalescing();
    if (!in_group) operation.queue = queue_of_pair(tensor.device(), to);
    const int peer = in_group ? to : to < rank_ ? 0 : 1;
    operation.call = [data = tensor.data_ptr(), what = moved(tensor), count = moved(tensor).count(tensor), peer](
                         tuttiComm_t comm, void* stream) {
      return tuttiSend(data, count, what.type, peer, comm, stream);
    };
    return operation;
  });
}

WorkPtr Backend::recv_on_device(const at::Tensor& tensor, int from) {
  return run_on_device([&] {
    Operation operation(c10d::OpType::RECV, "recv", "tutti:recv", {}, {tensor});
    operation.sender = from;
    const bool in_group = is_coalescing();
    if (!in_group) operation.queue = queue_of_pair(tensor.device(), from);
    const int peer = in_group ? from : from < rank_ ? 0 : 1;
    operation.call = [data = tensor.data_ptr(), what = moved(tensor), count = moved(tensor).count(tensor), peer](
                         tuttiComm_t comm, void* stream) {
      return tuttiRecv(data, count, what.type, peer, comm, stream);
    };
    return operation;
  });
}

}  // namespace tutti_torch
