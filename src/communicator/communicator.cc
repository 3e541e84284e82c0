#include "communicator/communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/float_mode.h"
#include "base/log.h"
#include "base/variables.h"
#include "calls/descriptions.h"
#include "communicator/parting.h"
#include "communicator/split_exchange.h"
#include "epoch/job_summary.h"
#include "monitor/monitor.h"
#include "observe/event_ring.h"
#include "selection/job_text.h"

namespace tutti::internal {
namespace {

// A few times longer than a network needs to deliver a message, for lost packets.
constexpr std::int64_t kDeliverMs = 2000;

// The device whose memory the settings name; null: the host's memory. Replaces settings->device with its canonical
// name.
Result<std::unique_ptr<OpenDevice>> open_device(Settings* settings) {
  return guarded_result([&]() -> Result<std::unique_ptr<OpenDevice>> {
    auto ordinal = memory::find_device(settings->device);
    if (!ordinal.is_ok()) return ordinal.status();
    settings->device = memory::name_of_device(*ordinal);
    if (*ordinal == memory::kHost) return std::unique_ptr<OpenDevice>();
    return OpenDevice::open(*ordinal);
  });
}

std::unique_ptr<observe::EventRing> open_ring(const Epoch& epoch, std::unique_ptr<observe::EventRing>* joining) {
  auto ring = observe::EventRing::open(epoch.public_id(), epoch.rank(), epoch.ranks(), joining);
  ring->set_hosts(epoch.membership().hosts.size());
  return ring;
}

// The links count what they take anyway.
observe::AllSent all_sent(const Epoch& epoch) {
  observe::AllSent sent;
  epoch.plans().each_link([&](int peer, transport::Link& link) {
    const transport::SendLane& lane = link.send();
    const PeerInfo& to = epoch.membership().peers[static_cast<std::size_t>(peer)];
    observe::SentTo& sum = sent[{lane.traits().transport, to.hostname}];
    sum.bytes += lane.taken();
    sum.reconnects += link.reconnects();
  });
  return sent;
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::create(Job job, const Settings& settings,
                                                           std::shared_ptr<ThreadRanks> thread_ranks, Deadline deadline,
                                                           std::unique_ptr<observe::EventRing>* joining) {
  const InFloatMode standard;  // choices that ranks derive from costs must not depend on the caller's mode
  Settings own = settings;
  const Status heard = thread_ranks == nullptr ? hear_decided(job.decided, &own) : Status();
  auto device = open_device(&own);
  auto epoch = std::make_shared<Epoch>(std::move(job), std::move(own), std::move(thread_ranks));
  // If this rank only left, the others would not learn the reason, and those that still gather would wait.
  const auto give_up = [&epoch](Status why) {
    epoch->tell_peers(why);
    return why;
  };
  if (!heard.is_ok()) return give_up(heard);
  if (!device.is_ok()) return give_up(device.status());
  if (Status s = guarded([&] { return epoch->join(deadline); }); !s.is_ok()) return give_up(s);
  auto made = make(epoch, std::move(*device), deadline, joining);
  if (!made.is_ok()) return made;
  log_joined(epoch->membership(), epoch->secret(),
             settings.init_timeout_ms - (deadline.at_ns() - now_ns()) / 1'000'000);
  return made;
}

Communicator::Communicator(std::shared_ptr<Epoch> epoch, std::unique_ptr<OpenDevice> device,
                           std::unique_ptr<observe::EventRing>* joining)
    : history_(std::make_shared<CallHistory>(0, open_ring(*epoch, joining))),
      epoch_(std::move(epoch)),
      failures_(*epoch_, history_),
      survivors_(*epoch_, failures_),
      operations_(*epoch_, *history_, failures_, device != nullptr),
      queue_(*epoch_, operations_, failures_) {
  history_->ring().set_sent([this] { return all_sent(*epoch_); });
  operations_.executor().set_step_log(history_->ring().step_log());
  if (epoch_->rank() == 0 && history_->ring().traces()) {
    history_->ring().set_job([this] { return selection::text_of(epoch_->plans().model()); });
  }
  if (device != nullptr) device_ = std::make_unique<DeviceCalls>(std::move(device), *epoch_, failures_, queue_);
}

Result<std::unique_ptr<Communicator>> Communicator::make(const std::shared_ptr<Epoch>& epoch,
                                                         std::unique_ptr<OpenDevice> device, Deadline deadline,
                                                         std::unique_ptr<observe::EventRing>* joining) {
  std::unique_ptr<Communicator> made;
  Status status = guarded([&] {
    made.reset(new Communicator(epoch, std::move(device), joining));
    if (made->device_ != nullptr) {
      if (Status s = made->device_->open_windows(deadline); !s.is_ok()) return s;
    }
    Communicator& own = *made;
    const bool survives = epoch->settings().survivors && epoch->ranks() > 1;
    if (Status s = own.failures_.watch([&own](const std::string& decision) {
          if (!own.survivors_.hear(decision)) own.epoch_->plans().decisions().hear(decision);
        });
        !s.is_ok()) {
      return s;
    }
    if (survives) {
      if (Status s = own.go_on_without_dead(); !s.is_ok()) return s;
    }
    log::debug(fmt::format(
        "a communicator of {} ranks on {} hosts, rank {}{}", epoch->ranks(), epoch->membership().hosts.size(),
        epoch->rank(),
        made->device_ != nullptr ? ", memory of " + memory::name_of_device(made->device()) : std::string()));
    return Status();
  });
  if (status.is_ok())
    status = guarded([&] { return made->status_survey_ = std::make_unique<StatusSurvey>(*epoch), Status(); });
  if (status.is_ok()) {
    monitor::start_monitor();
    return made;
  }
  epoch->tell_peers(status);
  return status;
}

// Collective.
Status Communicator::go_on_without_dead() {
  if (device_ != nullptr) {
    return Status::invalid_usage("TUTTI_SURVIVORS is on, and buffers are in the memory of a device. Turn it off");
  }
  auto mode = SurvivorMode::create(*this);
  if (mode.is_ok()) survivor_mode_ = std::move(*mode);
  queue_.set_survivor_mode(survivor_mode_.get());
  return mode.status();
}

Communicator::~Communicator() {
  status_survey_.reset();
  if (device_ != nullptr) {
    device_->close();
    device_->backend().leave();
  }
  queue_.wait_until_at_rest();
  history_->ring().tell_sent();
  survivor_mode_.reset();
  if (!failures_.is_finalized()) deliver();
  if (epoch_->tree() != nullptr) epoch_->tree()->leave();
}

Status Communicator::set_operator(Call* call, int handle) {
  auto found = operators_.find(handle);
  if (!found.is_ok()) return found.status();
  named_operator_ = std::move(*found);
  call->op = named_operator_->kind;
  call->custom = named_operator_.get();
  return {};
}

Status Communicator::run(const Call& call) {
  failures_.accept();
  // Only this thread queues, so an empty queue stays empty. On a device, graphs queue too.
  if (queue_.empty() && device_ == nullptr && survivor_mode_ == nullptr) [[likely]]
    return operations_.run(call);
  if (survivor_mode_ != nullptr && queue_.empty()) return survivor_mode_->run(call);
  return queue_.run(Queued(call, named_operator_));
}

Status Communicator::run(std::span<const Transfer> transfers) {
  failures_.accept();
  if (!queue_.empty()) [[unlikely]]
    return run_behind(transfers);
  if (survivor_mode_ != nullptr) [[unlikely]]
    return survivor_mode_->run(transfers);
  return operations_.run(transfers);
}

[[gnu::noinline]] Status Communicator::run_behind(std::span<const Transfer> transfers) {
  auto batch = copy(transfers);
  return batch.is_ok() ? queue_.run(Queued(std::move(*batch))) : batch.status();
}

Status Communicator::run(std::shared_ptr<const Batch> batch) {
  failures_.accept();
  if (!queue_.empty()) return queue_.run(Queued(std::move(batch)));
  if (survivor_mode_ != nullptr) return survivor_mode_->run(batch->calls, batch->transfers);
  return operations_.run(batch->calls, batch->transfers);
}

Status Communicator::enqueue(const Call& call, Stream& stream) {
  if (Status s = check_queueing(); !s.is_ok()) return s;
  std::shared_ptr<Completion> completion;
  return queue_.submit(Queued(call, named_operator_), &stream, &completion);
}

Status Communicator::enqueue(const Transfer& transfer, Stream& stream) {
  if (Status s = check_queueing(); !s.is_ok()) return s;
  auto batch = copy({&transfer, 1});
  if (!batch.is_ok()) return batch.status();
  std::shared_ptr<Completion> completion;
  return queue_.submit(Queued(std::move(*batch)), &stream, &completion);
}

Status Communicator::enqueue(std::shared_ptr<const Batch> batch, std::shared_ptr<Completion> before,
                             std::shared_ptr<Completion>* completion) {
  if (Status s = check_queueing(); !s.is_ok()) return s;
  Queued next(std::move(batch));
  next.before = std::move(before);
  return queue_.submit(std::move(next), nullptr, completion);
}

Result<std::shared_ptr<const Batch>> Communicator::copy(std::span<const Transfer> transfers) {
  auto made = guarded_result([&]() -> Result<std::shared_ptr<const Batch>> {
    auto batch = std::make_shared<Batch>();
    batch->transfers.assign(transfers.begin(), transfers.end());
    return std::shared_ptr<const Batch>(std::move(batch));
  });
  if (made.is_ok()) return made;
  return fail(transfers.front().sends ? "send" : "recv", made.status());
}

Result<std::shared_ptr<const Batch>> Communicator::copy(const Call& call) {
  auto made = guarded_result([&]() -> Result<std::shared_ptr<const Batch>> {
    auto batch = std::make_shared<Batch>();
    Call& kept = batch->calls.emplace_back(call);
    if (call.custom != nullptr) batch->operators.push_back(named_operator_);
    if (call.varying != nullptr) {
      batch->counts.push_back(std::make_shared<VaryingCopy>(call, ranks(), rank()));
      kept.varying = &batch->counts.back()->counts();
    }
    return std::shared_ptr<const Batch>(std::move(batch));
  });
  if (made.is_ok()) return made;
  return fail(name_of(call.collective), made.status());
}

Status Communicator::enqueue_in_stream(const Call& call, void* stream) {
  auto batch = copy(call);
  return batch.is_ok() ? device_->enqueue(std::move(*batch), stream) : batch.status();
}

Status Communicator::enqueue_in_stream(const Transfer& transfer, void* stream) {
  auto batch = copy({&transfer, 1});
  return batch.is_ok() ? device_->enqueue(std::move(*batch), stream) : batch.status();
}

Status Communicator::check_queueing() {
  failures_.accept();
  if (survivor_mode_ != nullptr && !failures_.is_finalized()) return survivor_mode_->status();
  return failures_.has_ended() ? failures_.refuse() : Status();
}

std::vector<int> Communicator::contributors() const {
  if (survivor_mode_ != nullptr) return survivor_mode_->contributors();
  std::vector<int> all(static_cast<std::size_t>(ranks()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void Communicator::abort() {
  failures_.abort();
  if (survivor_mode_ != nullptr) survivor_mode_->abort();
}

void Communicator::revoke() {
  failures_.revoke();
  if (survivor_mode_ != nullptr) survivor_mode_->revoke();
}

Status Communicator::fail(std::string_view what, const Status& status) {
  return survivor_mode_ != nullptr ? survivor_mode_->fail(what, status) : failures_.fail(what, status);
}

// In survivor mode a death has failed this communicator, but not its collectives.
Status Communicator::last_error() const {
  if (survivor_mode_ == nullptr) return failures_.last_error();
  const Status ended = survivor_mode_->status();
  return ended.is_ok() ? failures_.last_refusal() : ended;
}

void Communicator::note_refusal(const Status& status) {
  if (survivor_mode_ == nullptr) return failures_.note_refusal(status, [this] { return queue_.has_queued(); });
  failures_.set_last_error(status);
  survivor_mode_->note_refusal(status);
}

Status Communicator::async_error() {
  if (survivor_mode_ != nullptr) return survivor_mode_->status();
  if (device_ != nullptr) device_->backend().look_at_reports();
  return failures_.state().status();
}

Result<std::vector<std::string>> Communicator::describe_plan(Collective collective, std::size_t bytes,
                                                             bool at_length) const {
  std::size_t piece = bytes;
  if (device_ != nullptr) {
    if (const char* const how = device_->backend().describe_kernel(collective, bytes))
      return std::vector<std::string>{how};
    if (!varies(collective)) piece = std::min(bytes, DevicePlan::kPieceBytes);
  }
  const Plans& plans = epoch_->plans();
  auto text = plans.describe(collective, piece);
  if (!text.is_ok()) return text.status();
  std::vector<std::string> lines{std::move(*text)};
  if (device_ != nullptr) lines.front() += " through the host";
  if (!at_length) return lines;
  for (std::string& line : plans.describe_choice(collective, piece)) lines.push_back(std::move(line));
  if (piece < bytes && lines.size() > 1) lines[1] += fmt::format("; each piece of {} bytes takes", piece);
  return lines;
}

Status Communicator::finalize() {
  if (failures_.is_finalized()) return {};
  queue_.wait();
  const Status survived = survivor_mode_ != nullptr ? survivor_mode_->finalize() : Status();
  if (device_ != nullptr) {
    // A graph may still be running: from now on it skips the operations that it reaches.
    device_->close();
    queue_.wait();
    device_->backend().leave();
    device_->backend().release(kDeliverMs);
  }
  failures_.set_finalized();
  deliver();
  // Another thread may have ended a queued operation and be about to tell the peers. They must hear of that first, so
  // that they do not compare the calls of a communicator that has failed.
  failures_.wait_until_told();
  if (const Status s = guarded([&] { return part(*epoch_), Status(); }); !s.is_ok()) failures_.set_last_error(s);
  if (epoch_->tree() != nullptr) epoch_->tree()->leave();
  return survivor_mode_ != nullptr ? survived : failures_.state().status();
}

// After this rank's leave notice, the peers expect nothing more from it.
void Communicator::deliver() const {
  epoch_->plans().deliver(Deadline::after_ms(kDeliverMs));
}

Result<std::unique_ptr<Communicator>> Communicator::make_child(SplitGroup group,
                                                               const std::vector<std::string>& texts) const {
  const Deadline deadline = Deadline::after_ms(group.settings.init_timeout_ms);
  auto device = open_device(&group.settings);
  auto child = std::make_shared<Epoch>(*epoch_, std::move(group));
  if (Status s = child->join_tree(*epoch_, {}); !s.is_ok()) return s;
  // Not earlier: the other ranks learn of the error because this rank leaves the new communicator's tree.
  if (!device.is_ok()) return device.status();
  if (Status s = child->link(*epoch_, texts); !s.is_ok()) return s;
  return make(child, std::move(*device), deadline);
}

Result<std::unique_ptr<Communicator>> Communicator::split(const SplitWish& wish) {
  if (survivor_mode_ != nullptr) {
    queue_.wait();
    if (Status s = survivor_mode_->check_split(); !s.is_ok()) return s;
  }
  epoch_->process_rank().touch();
  const InFloatMode standard;  // choices that ranks derive from costs must not depend on the caller's mode
  try {
    // Calls that streams have not reached yet come before the split, on all ranks.
    if (device_ != nullptr) queue_.wait();
    SplitExchange exchange(*epoch_, failures_, [this](const Call& call) {
      return survivor_mode_ != nullptr ? survivor_mode_->run_on_all(call) : run(call);
    });
    auto answer = exchange.ask(wish);
    if (!answer.is_ok()) return answer.status();
    std::unique_ptr<Communicator> child;
    Status made;
    if (wish.color != kNoColor) {
      auto result = guarded_result([&] {
        std::vector<std::string> texts;
        SplitGroup group = exchange.group_of(wish, std::move(*answer), &texts);
        return make_child(std::move(group), texts);
      });
      made = result.status();
      if (result.is_ok()) child = std::move(*result);
    }
    if (Status s = exchange.agree(std::move(made)); !s.is_ok()) {
      // If a rank died or failed meanwhile, it may have been the last to agree, and other ranks may already have the
      // new communicator. The text uses the rank numbers of the communicator that is split.
      if (child != nullptr && failures_.failed()) {
        child->epoch().tell_peers(failures_.state().status().with_context(
            "the communicator that was split failed (with its numbers of ranks)"));
      }
      return s;
    }
    return child;
  } catch (...) {
    // The peers wait for a message that this rank cannot send.
    return fail("split", Status::of_exception());
  }
}

// The members know each other, and the id that one of them has drawn. They exchange what the ranks of a split exchange,
// over the new communicator's own part of the control tree, which keeps messages that arrive before its rank does. So
// no step here is an operation of the parent communicator.
Result<std::unique_ptr<Communicator>> Communicator::make_group(const GroupWish& wish) const {
  const observe::EventRing::Agreeing agreeing(history_->ring(), "tuttiCommCreateGroup");
  const InFloatMode standard;
  // A group can be made from a communicator that had failed before. An abort or a revoke during the call ends the call.
  const auto gives_up = [this, &wish, ends_on_revoke = !failures_.failed() && !wish.ignores_revoke]() -> Status {
    if (wish.gives_up) {
      if (Status s = wish.gives_up(); !s.is_ok()) return s;
    }
    const bool ended = ends_on_revoke && failures_.failed() && failures_.state().status().code() == Code::kAborted;
    if (!ended && !failures_.is_aborted()) return {};
    return Status::aborted("the communicator that the group is made of has been aborted or revoked");
  };
  std::shared_ptr<Epoch> child;
  std::unique_ptr<OpenDevice> device;
  const std::int64_t timeout_ms =
      wish.settings != nullptr ? wish.settings->init_timeout_ms : settings().init_timeout_ms;
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  Status joined = guarded([&]() -> Status {
    SplitGroup group{wish.id, wish.members, wish.settings != nullptr ? *wish.settings : settings()};
    auto opened = open_device(&group.settings);
    child = std::make_shared<Epoch>(*epoch_, std::move(group));
    if (Status s = child->join_tree(*epoch_, gives_up); !s.is_ok()) return s;
    if (!wish.refused.is_ok()) return wish.refused;
    if (!opened.is_ok()) return opened.status();
    device = std::move(*opened);
    auto texts = exchange_settings(*epoch_, *child, wish, deadline);
    if (!texts.is_ok()) return texts.status();
    if (Status s = child->link(*epoch_, *texts); !s.is_ok()) return s;
    // No rank connects to another that does not know the new communicator yet.
    return child->all_gather({}, deadline).status();
  });
  if (joined.is_ok()) {
    auto made = make(child, std::move(device), deadline);
    if (made.is_ok()) return made;
    joined = made.status();
  } else if (child != nullptr) {
    child->tell_peers(joined);  // if this rank only left, the others would not learn the reason
  }
  return wish.refused.is_ok() ? joined.with_context("with the group's numbers of ranks") : joined;
}

}  // namespace tutti::internal
