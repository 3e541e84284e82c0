// tutti as a backend of torch.distributed, for tensors on the CPU and on CUDA devices: one object for each process
// group.
//
// Collectives run in the group's communicator, one after the other. Sends and receives are independent of them and of
// each other, as with gloo: messages of one rank to another have a communicator of their own, made when both have come
// to the first of them, and are matched in order; those with a tag other than 0 have another one, and are matched by
// tag (tagged.h). An operation with async_op=False runs in the calling thread, if none is queued before it; all others
// are queued, and run in tutti's.
//
// On a device, operations keep the rules of NCCL's backend (device_work.h): they are in the order of streams, one
// communicator for each device, which is made when it is first needed, by all ranks of the group. Sends and receives
// have a communicator for each pair of ranks, made when both have called the first of them; those that are coalesced
// have the group's. Tags are not looked at. If one rank refuses a call there, the others get no message.
//
// What an operation takes is what torch.distributed's documentation says. A refused operation throws a
// RuntimeError and leaves the group as it was; ranks that wait in it get the reason. A failed operation throws a
// DistBackendError with tutti's text; after that the group can only be shrunk or destroyed.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "channel.h"
#include "device_queue.h"
#include "packing.h"
#include "recorder.h"
#include "rendezvous.h"
#include "tagged.h"
#include "work.h"

namespace tutti_torch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Any thread; the operations of a group in the same order on all ranks.
class Backend final : public c10d::Backend {
 public:
  // Returns when all ranks of the group have come.
  Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options);
  // Operations in progress end with an error on all ranks, unless shutdown() has waited for them.
  ~Backend() override;

  const std::string getBackendName() const override { return "tutti"; }
  // A copy: torch writes into it what it asks of a group that is split off.
  c10::intrusive_ptr<Options> getBackendOptions() override { return c10::make_intrusive<Options>(*options_); }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  bool supportsShrinking() const override { return true; }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override {
    return allreduce(tensors, opts);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  // Behind what the current streams of devices have that the group has been used on, for which the thread waits.
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  // Through the store: rank 0 names the ranks that have not come, all of them or the first.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  // Makes the communicator of that device. Collective.
  void eagerConnectSingleDevice(at::Device device) override;

  // Calls between the two start at the end, collectives as one group. If a call is refused, none of them starts, and
  // the end throws the first refusal.
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  // tuttiCommAgree, tuttiCommGetFailed and tuttiCommGetContributors, of this group.
  std::uint64_t agree(std::uint64_t flag);
  std::vector<int> failed();
  std::vector<int> contributors();
  // For torch.distributed.shrink_group(), which numbers the ranks of the new group by its list: an error on all ranks,
  // without effect, if another rank has died.
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags,
                                           const c10::intrusive_ptr<Options>& opts_override) override;
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 private:
  using QueuePtr = std::shared_ptr<DeviceQueue>;
  using ListRanks = tuttiResult_t (*)(tuttiComm_t, int*, int, int*);
  std::vector<int> listed(ListRanks list, const char* what);
  // A call as the flight recorder sees it.
  struct Recorded {
    Recorder::Call call;
    Tensors inputs;
    Tensors outputs;
  };
  struct Operation {
    Operation() = default;
    Operation(c10d::OpType its_type, const char* its_name, const char* its_title, Tensors in, Tensors out)
        : type(its_type), name(its_name), title(its_title), inputs(std::move(in)), outputs(std::move(out)) {}
    template <class AnyOptions>
    Operation(c10d::OpType its_type, const char* its_name, const char* its_title, Tensors in, Tensors out,
              const AnyOptions& options)
        : Operation(its_type, its_name, its_title, std::move(in), std::move(out)) {
      async = options.asyncOp;
      timeout = options.timeout;
      if constexpr (requires { options.rootRank; }) root = static_cast<int>(options.rootRank);
    }
    // The tensor that is moved in place of the caller's.
    at::Tensor read(const at::Tensor& tensor, bool copies = false) { return packing.read(tensor, copies); }
    at::Tensor write(const at::Tensor& tensor) { return packing.write(name, tensor); }
    at::Tensor update(const at::Tensor& tensor) { return packing.update(name, tensor); }
    Blocks read(const Tensors& tensors, bool copies = false) { return Blocks(packing.read(tensors, copies)); }
    Blocks write(const Tensors& tensors) { return Blocks(packing.write(name, tensors)); }
    // All that it needs until its end.
    [[nodiscard]] Tensors touched() const;
    c10d::OpType type = c10d::OpType::UNKNOWN;
    const char* name = "";
    const char* title = "";
    Tensors inputs;
    Tensors outputs;
    bool async = true;
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    Call call;
    std::function<void()> after;  // see Flight
    Packing packing;              // of its tensors
    int sender = -1;
    std::shared_ptr<TaggedReceives> receives;  // of a receive with a tag, which has these instead of `call`
    TaggedReceives::Wanted wanted;
    Recorder::Route route;           // of a message
    std::vector<Recorded> messages;  // of a coalesced call, and the collectives among them; empty: it has none
    std::size_t lists = 1;           // of outputs, see future_value.h
    int root = -1;                   // of a collective that has one
    bool alone = false;              // what its call does depends on what it has received: no part of a group
    QueuePtr queue;                  // of two ranks; null: the group's, if it is for a device
    // The caller's, of an all-to-all's input and output. Empty: it has none, or there is no profile.
    std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>> splits;
  };
  // Messages of one rank to another.
  struct Messages {
    std::shared_ptr<Channel> channel;
    std::shared_ptr<TaggedReceives> receives;  // those with tags, if this rank receives them; else null
    std::future<void> joined;                  // a thread has made the channel's communicator, or has given up
    int ended = 0;                             // channels before this one
  };
  struct Direction {
    int from = 0;
    int to = 0;
    bool tagged = false;
    bool operator<(const Direction& other) const {
      return std::tie(from, to, tagged) < std::tie(other.from, other.to, other.tagged);
    }
  };
  // The calls of one list.
  struct Coalesced {
    std::vector<Operation> on_device;
    std::vector<std::pair<std::shared_ptr<Channel>, Operation>> in_channels;
    std::exception_ptr refusal;  // the first; null: no call was refused
  };
  // Of devices: by device for all ranks, and by the other rank for two, whatever the device.
  using QueueKey = std::pair<std::string, int>;

  // With the communicator of a group that has been split.
  Backend(const Joined& joined, const c10::intrusive_ptr<c10d::Store>& store,
          const c10::intrusive_ptr<c10d::Store>& connection, int rank, int size, c10::intrusive_ptr<Options> options);
  // In the default group.
  [[nodiscard]] std::vector<int> global_ranks() const;
  // As the default group: others may share its connections.
  void become_world();
  void open(const Joined& joined, const c10::intrusive_ptr<c10d::Store>& store,
            const c10::intrusive_ptr<c10d::Store>& connection);
  // Runs `make`, which checks arguments and returns an Operation, and begins that.
  template <class Make>
  WorkPtr run(at::Device device, Make make);
  // In the channel that `find` returns. Null: the operation is for a device.
  template <class Find, class Make>
  WorkPtr run_in(Find find, Make make);
  // Calls `begin`, which takes the operation away, inside an event of profiles.
  WorkPtr begin_in_profile(const Operation& operation, const std::function<WorkPtr()>& begin);
  WorkPtr begin_on_device(Operation operation);
  WorkPtr begin_now_on_device(Operation operation);
  WorkPtr begin_coalesced_on_device(std::vector<Operation> operations);
  WorkPtr begin_coalesced(std::vector<std::pair<std::shared_ptr<Channel>, Operation>> coalesced);
  // The group's on that device, and that of two ranks. Returns when all of them have come.
  QueuePtr queue_at(const QueueKey& key, const std::function<QueuePtr()>& make);
  QueuePtr queue_of(at::Device device);
  QueuePtr queue_of_pair(const char* name, at::Device device, int peer);
  [[nodiscard]] bool is_coalescing();
  void wait_for_current_streams();
  WorkPtr transfer_on_device(bool sends, const Tensors& tensors, int peer);
  // Those that are made.
  std::vector<QueuePtr> device_queues();
  WorkPtr begin(const std::shared_ptr<Channel>& channel, Operation operation);
  [[nodiscard]] std::string told_of_group() const;
  // REQUIRES: an exception is handled. Tells the other ranks of the channel, unless that is null, and throws the
  // exception again. While calls are coalesced, keeps both for endCoalescing() instead, and returns null: after an
  // exception inside its context manager, torch would keep all later collectives of the group to itself.
  WorkPtr end_refused(const std::shared_ptr<Channel>& channel);
  std::shared_ptr<const Recorder::Group> record_group();
  Recorder::Entries record(const Operation& operation);
  [[nodiscard]] Recorded recorded(const Operation& operation) const;
  Work::InFlight begin_flight(const std::shared_ptr<Channel>& channel, Operation& operation, bool here);
  c10::intrusive_ptr<Work> make_work(const Channel& channel, const Operation& operation) const;
  void check_peer(const char* name, int peer) const;
  // Why there is nothing more to wait for before two ranks can exchange messages; empty: there is.
  [[nodiscard]] std::string no_pair(int peer, Clock::time_point deadline) const;
  Messages& messages_of(const Direction& direction);
  std::pair<std::shared_ptr<Channel>, std::shared_ptr<TaggedReceives>> messages(const Direction& direction);
  void join_messages(const Direction& direction, const std::string& name, const std::shared_ptr<Channel>& channel,
                     const std::shared_ptr<TaggedReceives>& receives);
  // copies: the tensor is moved through a copy.
  static Operation all_reduce(const at::Tensor& tensor, const c10d::AllreduceOptions& opts, bool copies = false);
  // Of several tensors that a rank has in one list, all of one type and number of elements.
  static Operation all_reduce_list(const Tensors& tensors, const c10d::AllreduceOptions& opts);
  Operation broadcast_list(const Tensors& tensors, const c10d::BroadcastOptions& opts) const;
  Operation all_gather_list(const std::vector<Tensors>& outputs, const Tensors& inputs,
                            const c10d::AllgatherOptions& opts) const;
  Operation all_reduce_sparse(const Tensors& tensors, const c10d::AllreduceOptions& opts) const;
  // written: all tensors that are written meanwhile. An input that overlaps them is copied, unless it lies in its own
  // output where tutti's in-place rule has it.
  Operation all_gather(const at::Tensor& output, const at::Tensor& input, const c10d::AllgatherOptions& opts,
                       const Tensors& written) const;
  Operation all_gather_blocks(const Tensors& outputs, const at::Tensor& input, const c10d::AllgatherOptions& opts,
                              const Tensors& written) const;
  Operation reduce_scatter_whole(const at::Tensor& output, const at::Tensor& input,
                                 const c10d::ReduceScatterOptions& opts, const Tensors& written) const;
  // Collectives that are called together, as one operation.
  [[nodiscard]] Operation together(std::vector<Operation> operations) const;

  std::string name_;                            // of the group, see Joined
  c10::intrusive_ptr<c10d::Store> store_;       // the program's, for this group alone
  c10::intrusive_ptr<c10d::Store> connection_;  // see store_connection.h
  // In it, for threads of the backend: the program's may be in use for as long as the program waits for something in
  // it. The connection is made while the store is there: when its rank has died, that would take until the timeout.
  c10::intrusive_ptr<c10d::Store> own_store_;
  const c10::intrusive_ptr<Options> options_;
  const std::chrono::milliseconds comm_timeout_;
  std::atomic<std::chrono::milliseconds> timeout_;
  std::shared_ptr<Channel> collectives_;
  std::atomic<bool> closing_{false};
  std::uint64_t monitored_barriers_ = 0;
  std::uint64_t splits_ = 0;
  std::uint64_t shrinks_ = 0;
  bool is_world_ = false;  // the default group

  std::mutex messages_mutex_;
  std::map<Direction, Messages> messages_;
  std::vector<Messages> ended_messages_;

  std::mutex queues_mutex_;
  std::map<QueueKey, std::shared_future<QueuePtr>> queues_;  // also those that a thread is about to make
  std::atomic<std::uint64_t> device_operations_{0};

  std::mutex record_mutex_;
  std::shared_ptr<const Recorder::Group> record_group_;  // when it has a name: from its first operation on

  std::mutex coalescing_mutex_;
  bool coalescing_ = false;  // calls are kept in coalesced_, until the end
  Coalesced coalesced_;
};

}  // namespace tutti_torch
