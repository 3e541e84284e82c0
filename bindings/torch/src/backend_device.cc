// The operations of Backend on the tensors of devices.
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <future>
#include <utility>

#include "backend.h"
#include "device_work.h"
#include "failure.h"
#include "run.h"

namespace tutti_torch {

std::vector<Backend::QueuePtr> Backend::device_queues() {
  const std::lock_guard<std::mutex> lock(queues_mutex_);
  std::vector<QueuePtr> all;
  for (const auto& [key, queue] : queues_) {
    if (queue.wait_for(std::chrono::seconds(0)) == std::future_status::ready) all.push_back(queue.get());
  }
  return all;
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  if (is_accelerator(device)) (void)queue_of(device);
}

// The first thread that asks for it makes it, without the lock: other ranks may want another one first.
Backend::QueuePtr Backend::queue_at(const QueueKey& key, const std::function<QueuePtr()>& make) {
  std::promise<QueuePtr> promise;
  std::shared_future<QueuePtr> known;
  {
    const std::lock_guard<std::mutex> lock(queues_mutex_);
    const auto at = queues_.find(key);
    if (at != queues_.end()) {
      known = at->second;
    } else {
      queues_[key] = promise.get_future().share();
    }
  }
  if (known.valid()) return known.get();
  try {
    QueuePtr made = make();
    if (closing_) {
      made->close();
      std::rethrow_exception(backend_error("init", "the process group has been shut down"));
    }
    promise.set_value(made);
    return made;
  } catch (...) {
    const std::lock_guard<std::mutex> lock(queues_mutex_);
    queues_.erase(key);
    promise.set_exception(std::current_exception());
    throw;
  }
}

// Ranks call this in one order, as all that is collective.
Backend::QueuePtr Backend::queue_of(at::Device device) {
  return queue_at({device.str(), -1}, [&] {
    const tuttiComm_t comm = collectives_->split_to(name_of_device(device), rank_, comm_timeout_);
    return std::make_shared<DeviceQueue>(device, comm, std::nullopt);
  });
}

Backend::QueuePtr Backend::queue_of_pair(const char* name, at::Device device, int peer) {
  QueuePtr queue = queue_at({"", peer}, [&] {
    const PairRanks ranks{std::min(rank_, peer), std::max(rank_, peer)};
    const std::string key = "device/" + std::to_string(ranks.sender) + "/" + std::to_string(ranks.receiver);
    const auto deadline = Clock::now() + comm_timeout_;
    const auto why_none = [&] { return no_pair(peer, deadline); };
    try {
      const Pair pair{collectives_->comm(), ranks.sender, ranks.receiver};
      const tuttiComm_t comm = join_pair(*own_store_, key, pair, rank_ == ranks.sender ? 0 : 1, comm_timeout_, why_none,
                                         name_of_device(device));
      return std::make_shared<DeviceQueue>(device, comm, ranks);
    } catch (const c10::Error&) {
      throw;
    } catch (const std::exception& e) {
      std::rethrow_exception(backend_error(name, e.what()));
    }
  });
  if (queue->device() == device) return queue;
  refuse(name, c10::str("messages to and from rank ", peer, " are those of tensors on ", queue->device(), ", not on ",
                        device));
}

bool Backend::is_coalescing() {
  const std::lock_guard<std::mutex> lock(coalescing_mutex_);
  return coalescing_;
}

WorkPtr Backend::begin_on_device(Operation operation) {
  {
    const std::lock_guard<std::mutex> lock(coalescing_mutex_);
    if (coalescing_) {
      coalesced_.on_device.push_back(std::move(operation));
      return nullptr;
    }
  }
  return begin_now_on_device(std::move(operation));
}

WorkPtr Backend::begin_now_on_device(Operation operation) {
  const Tensors touched = operation.touched();
  const auto queue = operation.queue != nullptr ? operation.queue : queue_of(device_of(touched));
  const std::uint64_t number = ++device_operations_;
  DeviceQueue::End end =
      queue->begin(operation.name, operation.call, operation.packing, touched, !operation.async, record(operation));
  DeviceWork::Operation told{operation.type,    operation.name,
                             operation.title,   operation.inputs.empty() ? operation.outputs : operation.inputs,
                             operation.outputs, number,
                             operation.sender,  operation.lists};
  return c10::make_intrusive<DeviceWork>(rank_, std::move(told), queue, std::move(end));
}

WorkPtr Backend::begin_coalesced_on_device(std::vector<Operation> operations) {
  Operation all = together(std::move(operations));
  all.async = true;
  check_one_device(all.name, all.inputs, all.outputs);
  return begin_now_on_device(std::move(all));
}

// torch does not tell for which of the group's devices a barrier is.
void Backend::wait_for_current_streams() {
  for (const QueuePtr& queue : device_queues()) {
    const c10::impl::VirtualGuardImpl guard(queue->device().type());
    guard.synchronizeStream(guard.getStream(queue->device()));
  }
}

// Coalesced messages use the group's communicator and its ranks; others use a communicator of two ranks.
WorkPtr Backend::transfer_on_device(bool sends, const Tensors& tensors, int peer) {
  const auto on_device = [] { return std::shared_ptr<Channel>(); };
  return run_in(on_device, [&] {
    const char* const name = sends ? "send" : "recv";
    check_peer(name, peer);
    const at::Tensor& tensor = check_single(name, tensors);
    Operation operation = sends ? Operation(c10d::OpType::SEND, name, "tutti:send", {tensor}, {})
                                : Operation(c10d::OpType::RECV, name, "tutti:recv", {}, {tensor});
    if (!sends) operation.sender = peer;
    operation.route = sends ? Recorder::Route{rank_, peer} : Recorder::Route{peer, rank_};
    const bool in_group = is_coalescing();
    if (!in_group) operation.queue = queue_of_pair(name, tensor.device(), peer);
    const int other = in_group ? peer : peer < rank_ ? 0 : 1;
    const at::Tensor packed = sends ? operation.read(tensor) : operation.write(tensor);
    operation.call = [sends, data = packed.data_ptr(), what = moved(tensor), count = moved(tensor).count(tensor),
                      other](tuttiComm_t comm, void* stream) {
      return sends ? tuttiSend(data, count, what.type, other, comm, stream)
                   : tuttiRecv(data, count, what.type, other, comm, stream);
    };
    return operation;
  });
}

}  // namespace tutti_torch
