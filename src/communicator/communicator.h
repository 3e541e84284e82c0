// One rank's place in a job: composes the control tree, membership, links, plans, executor and failure state.
//
// Ownership: the communicator owns its links, plans, waiter, executor, and control tree; the
// progress engine is the process's.
// Threads: run(), enqueue() and finalize() by one thread at a time, all else by any. Nobody may be inside when it is
// destroyed: api/comm_table.h sees to both.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/failure.h"
#include "base/float_mode.h"
#include "base/status.h"
#include "base/types.h"
#include "calls/batch.h"
#include "calls/call.h"
#include "calls/operators.h"
#include "calls/registered_range.h"
#include "communicator/call_history.h"
#include "communicator/coalesced.h"
#include "communicator/last_bound.h"
#include "communicator/links.h"
#include "communicator/membership.h"
#include "communicator/plans.h"
#include "communicator/refusals.h"
#include "communicator/scratch.h"
#include "communicator/split.h"
#include "communicator/stalls.h"
#include "communicator/transfers.h"
#include "device/backend.h"
#include "executor/cpu_executor.h"
#include "executor/engine.h"
#include "executor/waiter.h"
#include "join/job.h"
#include "join/process_rank.h"
#include "os/mutex.h"
#include "streams/stream.h"

namespace tutti::internal {

class Communicator final : private DeviceOwner {
 public:
  // Collective. `settings`: with rank 0's transports. `thread_ranks` is set if all ranks are threads of this process
  // that were made together.
  static Result<std::unique_ptr<Communicator>> create(Job job, const Settings& settings,
                                                      std::shared_ptr<ThreadRanks> thread_ranks, Deadline deadline);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const { return membership_.rank; }
  [[nodiscard]] int ranks() const { return membership_.ranks(); }
  // Those it was made with, and of those that rank 0 decides rank 0's.
  [[nodiscard]] const Settings& settings() const { return settings_; }

  // Any thread.
  [[nodiscard]] MadeTable<CustomOperator>& operators() { return operators_; }
  [[nodiscard]] MadeTable<std::uint32_t>& datatypes() { return datatypes_; }  // bytes of an element
  [[nodiscard]] MadeTable<RegisteredRange>& registered_ranges() { return registered_ranges_; }
  // Makes `handle` the call's operator, which stays until the operation is complete. By the thread that then runs or
  // queues the call. kInvalidArgument for what is none of operators().
  Status set_operator(Call* call, int handle);
  // Whether an algorithm is forced that cannot run the call.
  [[nodiscard]] Status check_forced(const Call& call) const {
    return plans_->check_forced(call.collective, order_of(call));
  }

  // Runs the transfers together and returns when they are complete on this rank. REQUIRES: check_own() is ok.
  Status run(std::span<const Transfer> transfers);
  // The same of a batch: its calls in their order, then its transfers together.
  Status run(std::shared_ptr<const Batch> batch);
  // Queues it behind all that was queued here before, and behind `before`, which may be null. *completion: of the batch
  // as a whole; null if it is not queued.
  Status enqueue(std::shared_ptr<const Batch> batch, std::shared_ptr<Completion> before,
                 std::shared_ptr<Completion>* completion);
  // The transfer behind all that is in the stream.
  Status enqueue(const Transfer& transfer, Stream& stream);
  [[nodiscard]] bool is_finalized() const { return finalized_; }
  // Runs the call and returns when it is complete on this rank. Behind what is queued, if anything is.
  Status run(const Call& call);
  // The same the short way, if it is a call that was made lately, but perhaps for its buffers, whose messages are short
  // (transport/lines.h). kNo: nothing has been done; kBegun: go_on_repeated() is to follow. Takes any arguments; those
  // of no valid call are none that was made. `types`: the datatype and the operator in the program's numbers;
  // type_and_op(): which these are.
  enum class Repeated : std::uint8_t { kNo, kBegun, kDone };
  template <class TypeAndOp>
  [[gnu::always_inline]] Repeated repeat(Collective collective, std::uint64_t types, std::size_t count, int root,
                                         const void* send, void* recv, TypeAndOp type_and_op);
  // The rest of the call that has begun, and what has come of it. Whoever asks now finds this rank inside it.
  Status go_on_repeated();
  // Queues the call behind all that was queued before.
  Status enqueue(const Call& call, Stream& stream);

  // The CUDA device whose memory all buffers are in, or memory::kHost. One that has a device takes what follows alone.
  [[nodiscard]] int device() const { return device_ == nullptr ? memory::kHost : device_->ordinal(); }
  [[nodiscard]] bool is_on_device() const { return device_ != nullptr; }
  // Null: the buffers are in the host's memory.
  [[nodiscard]] DeviceBackend* device_backend() const { return device_.get(); }
  // See DeviceBackend::enqueue(); checks it as well.
  Status enqueue_on_device(const Call& call, void* stream);
  Status enqueue_on_device(const Transfer& transfer, void* stream);

  // Collective, behind all that is queued here: the ranks that name one color >= 0 make a communicator, ordered by
  // their keys and then by their ranks here. Null for a rank that names kNoColor. All of them are made or none: what
  // one rank refuses, or cannot make, is an error on every rank, and this communicator goes on. It and those that are
  // made of it fail and end apart from each other, but for a rank that dies.
  Result<std::unique_ptr<Communicator>> split(const SplitWish& wish);
  // Collective over the members alone, which is no operation of this communicator: a thread may be inside one, and
  // this communicator may have failed. Returns when all members have theirs, or fails after the init timeout.
  Result<std::unique_ptr<Communicator>> make_group(const GroupWish& wish) const;
  // For a group; drawn by no other rank, nor a second time.
  [[nodiscard]] std::uint64_t draw_group_id() const { return family_->next_id(); }
  // Whether a communicator that is split off may have these settings: it uses what this one has opened.
  [[nodiscard]] Status check_split(const Settings& settings) const;

  // Waits for what is queued, then tells the peers that this rank leaves, and waits a short time until they do so
  // too. kMismatch if the ranks have called different things. Later operations are refused.
  Status finalize();
  // Fails every operation, here and on the peers. Waits for none. Nothing if the communicator has failed already.
  void abort() {
    aborted_.store(true, std::memory_order_release);
    (void)end_all(aborted_here_, aborted_there_);
  }
  void revoke() { (void)end_all(revoked_here_, revoked_there_); }

  // Fails the communicator by `status`, which the operation `what` has met; returns what has failed it. A refusal is
  // noted alone. Any thread.
  Status fail(std::string_view what, Status status) override;
  // Ok, or what has failed the communicator.
  [[nodiscard]] Status async_error() {
    if (device_ != nullptr) device_->look_at_meetings();
    return failure_->status();
  }
  // Of what was refused: the communicator is as it was.
  void set_last_error(const Status& status);
  // The same of a call for which the other ranks wait: they are told.
  void note_refusal(const Status& status) TUTTI_EXCLUDES(mutex_);
  // What has failed the communicator, or else what was refused last.
  [[nodiscard]] Status last_error() const;
  // Whether a call has returned the communicator's failure, or a stream in which it has an operation. A caller
  // that returns it calls set_told().
  [[nodiscard]] bool told() const { return failure_->told(); }
  void set_told() { failure_->set_told(); }
  // "ring over shm", "ring over shm through the host"; `at_length`: where it is selected, behind that why, and what the
  // candidates are predicted to take, a line each.
  [[nodiscard]] Result<std::vector<std::string>> describe_plan(Collective collective, std::size_t bytes,
                                                               bool at_length) const;

 private:
  class QueueTask;
  // While it lives a thread is inside execute() or go_on_repeated().
  class Busy {
   public:
    explicit Busy(std::atomic<bool>& flag) : flag_(flag) { flag_.store(true, std::memory_order_relaxed); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    ~Busy() { flag_.store(false, std::memory_order_relaxed); }

   private:
    std::atomic<bool>& flag_;
  };
  struct Queued {
    Queued() = default;
    explicit Queued(const Call& one) : call(one) {}
    explicit Queued(std::shared_ptr<const Batch> all) : batch(std::move(all)) {}
    explicit Queued(std::unique_ptr<DeviceRun> all) : device(std::move(all)) {}
    std::shared_ptr<const Batch> batch;  // null: the call
    std::unique_ptr<DeviceRun> device;   // else null
    Call call;
    std::unique_ptr<VaryingCopy> varying;          // what the call refers to, if it does
    std::shared_ptr<const CustomOperator> custom;  // the same
    std::shared_ptr<Completion> completion;
    std::shared_ptr<Completion> before;  // in its stream
    FloatMode float_mode;                // of the thread that has queued it: the program's functions run in it
  };

  // A peer's connection closes just before or after the control tree tells why: for so long the tree's word is waited
  // for, which names the rank at fault rather than the one next to it.
  static constexpr std::int64_t kRootCauseMs = 200;

  Communicator() = default;
  Status set_up(Deadline deadline);
  // What needs to know of no peer.
  Status prepare();
  Status open_device();
  // The rest, once the membership and the maker of links are there.
  Status complete();
  // Tells all others what the transports need to be told, and hears it from them.
  Status tell_transports(PeerInfo* self, Deadline deadline);
  [[nodiscard]] const transport::WakeupFd& wakeup_fd() const {
    return thread_ranks_ != nullptr ? thread_ranks_->wakeup_fd(rank()) : *own_wakeup_fd_;
  }
  // Until nothing is queued.
  void wait_for_queue();
  // Waits, not for long, until the peers have what was sent to them: then this rank may leave.
  void deliver() const;
  Status watch_peers();
  Status set_up_links(Deadline deadline);
  // The peers, with what that has added to *self and theirs.
  Result<std::vector<PeerInfo>> meet_across_namespaces(std::vector<PeerInfo> known, const Transports& transports,
                                                       PeerInfo* self, Deadline deadline);
  // Through connector_, if there is one.
  void make_link_maker();
  // One of the exchanges of a split: `count` elements of each rank, by rank.
  Status exchange_of_split(const void* own, void* all, std::size_t count, DataType type);
  Result<std::unique_ptr<Communicator>> split_unguarded(const SplitWish& wish);
  // By rank. `bytes`: of each text, as all ranks know.
  Result<std::vector<std::string>> exchange_texts(const std::string& own, std::span<const std::uint32_t> bytes);
  [[nodiscard]] std::string pack_settings(const Settings& settings) const;
  Result<std::unique_ptr<Communicator>> make_child(const SplitGroup& group);
  Status set_up_from(const Communicator& parent, const SplitGroup& group);
  Status set_up_group(const Communicator& parent, const GroupWish& wish);
  // What the members of a group tell each other, and whether they list the same ones.
  Result<std::vector<std::string>> exchange_settings(const GroupWish& wish, const std::string& own, Deadline deadline);
  // The three parts of a set-up: the control tree; links; the rest, after which the peers are watched.
  Status join_tree_of(const Communicator& parent, const SplitGroup& group, ControlTree::GivesUp gives_up);
  Status link_as_in(const Communicator& parent, const SplitGroup& group);
  Status complete_split();
  // *transports: the parent's on entry; on return those that hold.
  Result<Membership> membership_from(const Communicator& parent, const SplitGroup& group,
                                     std::string* transports) const;
  // Whether all ranks have `own` ok; an error that names one that has not.
  Status agree(Status own);
  Result<std::vector<PeerInfo>> exchange(const PeerInfo& mine, Deadline deadline);
  Status run_behind(Queued next);
  Status run_copy_behind(std::span<const Transfer> transfers);
  Status copy(std::span<const Transfer> transfers, std::shared_ptr<const Batch>* batch);
  Status execute(const Call& call);
  Status execute(std::span<const Transfer> transfers);
  // What a batch has.
  Status execute(std::span<const Call> calls, std::span<const Transfer> transfers);
  Status execute(const Coalesced& coalesced);
  template <class Name, class Run>
  Status attempt(std::uint32_t sequence, Name name, Run run);
  // Numbers the operation.
  transport::Fingerprint begin(const Call& call) {
    const std::size_t uniform = call.whole_count == 0 ? call.count : call.whole_count;
    const std::uint64_t count = call.varying == nullptr ? uniform : hash_of_counts(call, ranks());
    return history_->begin(call.collective, call.type, call.op, call.root,
                           executor::count_with_element_bytes(call.opaque, count));
  }
  // Numbers all of them: the first one's.
  transport::Fingerprint begin(const Coalesced& coalesced);
  Status run_check(Collective collective, std::span<std::uint64_t> words, std::uint32_t sequence, int root = 0);
  Status check_beforehand(std::uint32_t sequence);
  Status check_counts_beforehand(const Call& call, const transport::Fingerprint& fingerprint);
  Status explain(Status status) const;
  [[nodiscard]] bool others_have_left() const;
  // Tells the peers what this rank has called in all, and hears the same of them.
  void part();
  Status run_call(const Call& call, const transport::Fingerprint& fingerprint);
  // A call that moves nothing, which is then one that was made lately.
  void keep_empty(const Call& call, const transport::Fingerprint& fingerprint) noexcept;
  // The call of this name, if it was made lately.
  [[gnu::noinline]] LastBound::Place* find_repeated(const CallName& name, DataType type, ReduceOp op) noexcept;
  // Finds out whether there is one.
  bool resolve(LastBound::Place* place, Collective collective) noexcept;
  // What the executor is to run; null: nothing. It stays until the next one is bound. Makes plans, which may wait for
  // peers and for a proof, unless the plan is there.
  Result<const executor::Operation*> bind(const Call& call, const transport::Fingerprint& fingerprint);
  Result<const executor::Operation*> bind_varying(const Call& call, const transport::Fingerprint& fingerprint);
  // The operation as it was bound last, if only the buffers are new; else null.
  [[nodiscard]] const executor::Operation* bind_again(const Call& call, const transport::Fingerprint& fingerprint) {
    const executor::Operation* const again = last_bound_.repeat(call, fingerprint);
    if (again != nullptr) [[likely]]
      history_->set_plan(again->plan->identity);
    return again;
  }
  // *memory: of the packed buffers.
  Result<const executor::Operation*> bind(const Coalesced& coalesced, const transport::Fingerprint& fingerprint,
                                          std::byte** memory);
  static const Call& meeting();
  // Whether nothing takes long before its peers are waited for: no check, no proof, no long schedule.
  [[nodiscard]] bool begins_at_once(const Call& call);
  static constexpr int kMostRanksPlannedAtOnce = 256;
  // Begins to make its plan; null: it has one, or needs none. REQUIRES: begins_at_once().
  Result<std::unique_ptr<Plans::Making>> begin_plan(const Call& call);
  [[nodiscard]] std::size_t planned_bytes(const Call& call) const;
  [[nodiscard]] std::size_t vector_bytes(const Call& call) const {
    return call.count * element_bytes_of(call) * blocks_of(call.collective, ranks());
  }
  Status bind_and_run(const Call& call, const transport::Fingerprint& fingerprint);
  Status bind_and_run(std::span<const Transfer> transfers, std::uint32_t number);
  Status run_coalesced(const Coalesced& coalesced, const transport::Fingerprint& fingerprint);
  Result<const executor::Plan*> plan_for(const Call& call, std::size_t bytes,
                                         const transport::Fingerprint& fingerprint);
  Status prepare_scratch(Call* call, std::size_t bytes, std::size_t input_bytes);
  [[nodiscard]] Setting setting() const {
    return {static_cast<std::size_t>(rank()), static_cast<std::size_t>(ranks()), scratch_.memory()};
  }
  Status refuse();
  // Each call of the program that is not refused begins with this.
  void accept() {
    if (shares_process_) process_rank_.touch();
    if (goes_slowly_.load(std::memory_order_relaxed)) [[unlikely]]
      withdraw_refusal();
  }
  void withdraw_refusal();
  // When what was under way may be complete: of a refusal since, the other ranks are told now.
  void tell_refusal();
  [[nodiscard]] Status with_refusals(Status failure) const {
    return refusals_ == nullptr ? failure : refusals_->explain(std::move(failure));
  }
  void note_failure(const Status& status);
  void tell_peers(const Status& status);
  // Whether it was this that has failed the communicator.
  bool end_all(const Status& here, const Status& there) TUTTI_EXCLUDES(telling_mutex_);
  // Of the operation `what`, the `sequence`th.
  Status await_root_cause(const std::string& what, std::uint32_t sequence, Status status) const;
  Status reserve_scratch(std::size_t bytes);
  // `stream`, if any, has it as its last from then on.
  Status queue(Queued next, Stream* stream, std::shared_ptr<Completion>* completion);
  Status check_and_enqueue_on_device(std::shared_ptr<const Batch> batch, void* stream);
  // See DeviceOwner.
  Status begin_call() override;
  Status begin_queued(bool again) override;
  Status queue(std::unique_ptr<DeviceRun> run) override;
  void has_come() override TUTTI_EXCLUDES(mutex_);
  [[nodiscard]] bool is_forced() const override { return !membership_.algorithm.empty(); }
  // Of a communicator of several processes, before it is complete().
  Status open_windows(Deadline deadline);
  // Whether something is queued, here or in streams of a device that have still to come.
  [[nodiscard]] bool has_queued() const;

  Settings settings_;
  Secret secret_{};
  std::string address_;  // Job::address
  std::shared_ptr<Family> family_;
  // Destroyed in reverse order: the tree's thread last but for the failure state that it writes.
  std::shared_ptr<FailureState> failure_ = std::make_shared<FailureState>();
  std::unique_ptr<ControlTree> tree_;
  DescriptorReservation descriptors_;  // for as long as links may be made
  std::shared_ptr<ThreadRanks> thread_ranks_;
  std::optional<transport::WakeupFd> own_wakeup_fd_;  // unless thread_ranks_ has it; of the family
  Membership membership_;
  std::unique_ptr<Connector> connector_;  // null for threads that need none
  std::unique_ptr<LinkMaker> link_maker_;
  std::shared_ptr<CallHistory> history_ = std::make_shared<CallHistory>();
  std::unique_ptr<Refusals> refusals_;  // null for a single rank
  std::unique_ptr<Stalls> stalls_;      // the same
  std::unique_ptr<executor::Waiter> waiter_;
  std::unique_ptr<Plans> plans_;
  std::unique_ptr<executor::CpuExecutor> executor_;

  MadeTable<CustomOperator> operators_{"operator"};
  MadeTable<std::uint32_t> datatypes_{"datatype"};
  std::shared_ptr<const CustomOperator> named_operator_;  // by the last call that has named one
  LastBound last_bound_;
  struct {
    const LastBound::Place* place = nullptr;
    std::size_t done = 0;      // of its steps
  } begun_;                    // by repeat()
  executor::Operation bound_;  // what is not kept there
  VaryingBlocks varying_blocks_;
  std::unique_ptr<Transfers> transfers_;
  Scratch scratch_;
  std::byte barrier_token_{};
  // What abort() and revoke() say, made beforehand: they must work without memory.
  Status aborted_here_;
  Status aborted_there_;
  std::atomic<bool> aborted_{false};  // by this rank
  Status revoked_here_;
  Status revoked_there_;
  std::atomic<bool> finalized_ = false;
  std::atomic<bool> goes_slowly_{false};  // no call takes the fast path: it is finalized, or a refusal stands
  std::atomic<bool> busy_{false};         // a thread is inside execute(), or go_on_repeated(): what other ranks ask
  ProcessRank process_rank_;
  bool shares_process_ = false;  // with other ranks of the job

  std::unique_ptr<DeviceBackend> device_;  // null: memory of the host

  Mutex telling_mutex_;  // while a failure begins here, until the peers will be told of it
  mutable Mutex mutex_;
  ConditionVariable queue_changed_;
  std::deque<Queued> queue_ TUTTI_GUARDED_BY(mutex_);
  std::shared_ptr<executor::Engine> engine_ TUTTI_GUARDED_BY(mutex_);  // from the first operation that is queued
  std::unique_ptr<QueueTask> queue_task_ TUTTI_GUARDED_BY(mutex_);     // the same
  bool queue_runs_ TUTTI_GUARDED_BY(mutex_) = false;                   // the engine has queue_task_
  Status last_error_ TUTTI_GUARDED_BY(mutex_);                         // of what was refused
  Status failure_text_ TUTTI_GUARDED_BY(mutex_);                       // the failure, with the operation that met it
  std::atomic<std::size_t> pending_{0};                                // queued and not complete
  MadeTable<RegisteredRange> registered_ranges_{"window"};
};

template <class TypeAndOp>
inline Communicator::Repeated Communicator::repeat(Collective collective, std::uint64_t types, std::size_t count,
                                                   int root, const void* send, void* recv, TypeAndOp type_and_op) {
  // What is queued binds calls, too: first of all, so that nothing is looked at meanwhile.
  if (pending_.load(std::memory_order_acquire) != 0) [[unlikely]]
    return Repeated::kNo;
  LastBound::Place* place = last_bound_.last();
  if (place == nullptr || !place->name.is(collective, types, count, root)) [[unlikely]] {
    const auto [type, op] = type_and_op();
    place = find_repeated({types, count, collective, root}, type, op);
    if (place == nullptr) return Repeated::kNo;
  }
  if (failure_->failed() || goes_slowly_) [[unlikely]]
    return Repeated::kNo;
  if (place->steps.empty()) {
    if (!place->empty) return Repeated::kNo;
    if (shares_process_) process_rank_.touch();
    history_->begin_empty(place->word, place->root);
    return Repeated::kDone;
  }
  if (send != place->send || recv != place->recv) {
    if (!place->suits(send, recv)) [[unlikely]]
      return Repeated::kNo;
    place->set_buffers(send, recv);
  }
  if (shares_process_) process_rank_.touch();
  const transport::Fingerprint fingerprint =
      history_->begin(place->word, place->root, place->count, *place->plan, place->planned_word);
  const std::size_t done = executor_->run_short(place->operation, fingerprint, place->steps);
  if (done == place->steps.size()) [[likely]]
    return Repeated::kDone;
  place->operation.fingerprint = fingerprint;
  begun_ = {place, done};
  return Repeated::kBegun;
}

}  // namespace tutti::internal
