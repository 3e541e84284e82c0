#include "communicator/communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "calls/descriptions.h"
#include "communicator/job_summary.h"
#include "communicator/queue_task.h"
#include "join/join.h"
#include "memory/region.h"
#include "selection/select.h"
#include "topology/detect.h"
#include "transport/adapter.h"
#include "transport/registry.h"
#include "transport/shm/arena.h"

namespace tutti::internal {
namespace {

using memory::RegionRegistry;

// Some lost packets longer than a network takes to deliver.
constexpr std::int64_t kDeliverMs = 2000;

bool any_meets(const Transports& transports, ChannelKind kind) {
  return std::any_of(transports.begin(), transports.end(), [&](const auto& transport) {
    const auto meeting = transport->meeting();
    return meeting && meeting->kind == kind;
  });
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::create(Job job, const Settings& settings,
                                                           std::shared_ptr<ThreadRanks> thread_ranks,
                                                           Deadline deadline) {
  const InFloatMode standard;  // what ranks derive from costs must not depend on it
  std::unique_ptr<Communicator> comm(new Communicator);
  comm->tree_ = std::move(job.tree);
  comm->descriptors_ = std::move(job.descriptors);
  comm->thread_ranks_ = std::move(thread_ranks);
  comm->membership_.rank = job.rank;
  comm->settings_ = settings;
  comm->secret_ = job.secret;
  comm->address_ = std::move(job.address);
  const Status s = guarded([&] {
    comm->family_ = std::make_shared<Family>(job.rank);
    return comm->set_up(deadline);
  });
  if (s.is_ok()) {
    log_joined(comm->membership_, comm->secret_, settings.init_timeout_ms - (deadline.at_ns() - now_ns()) / 1'000'000);
    return comm;
  }
  // Leaving alone would not tell the others why, and those who still gather would wait.
  comm->tell_peers(s);
  return s;
}

Status Communicator::set_up(Deadline deadline) {
  if (Status s = prepare(); !s.is_ok()) return s;
  if (Status s = set_up_links(deadline); !s.is_ok()) return s;
  settings_.algorithm = membership_.algorithm;
  settings_.strict = membership_.strict;
  if (Status s = open_windows(deadline); !s.is_ok()) return s;
  return complete();
}

Status Communicator::prepare() {
  aborted_there_ = Status::aborted("aborted the communicator");
  aborted_here_ = Status::aborted(fmt::format("rank {} aborted the communicator", rank()));
  revoked_there_ = Status::aborted("revoked the communicator");
  revoked_here_ = Status::aborted(fmt::format("rank {} revoked the communicator", rank()));
  if (Status s = open_device(); !s.is_ok()) return s;
  if (thread_ranks_ != nullptr || own_wakeup_fd_) return {};
  auto own = transport::WakeupFd::create();
  if (!own.is_ok()) return own.status();
  own_wakeup_fd_ = std::move(*own);
  return {};
}

Status Communicator::open_device() {
  auto ordinal = memory::find_device(settings_.device);
  if (!ordinal.is_ok()) return ordinal.status();
  settings_.device = memory::name_of_device(*ordinal);
  if (*ordinal == memory::kHost) return {};
  auto opened = DeviceBackend::open(*ordinal, *this, membership_, *failure_, settings_.timeout_ms);
  if (!opened.is_ok()) return opened.status();
  device_ = std::move(*opened);
  return {};
}

Status Communicator::complete() {
  const Membership& m = membership_;
  const PeerInfo& self = m.peers[static_cast<std::size_t>(rank())];
  shares_process_ = std::count_if(m.peers.begin(), m.peers.end(),
                                  [&](const PeerInfo& peer) { return peer.process == self.process; }) > 1;
  process_rank_.enter(secret_);
  if (device_ != nullptr) device_->join(secret_);
  // Ranks that are made together are made by threads that end then.
  if (thread_ranks_ == nullptr) process_rank_.touch();
  waiter_ = std::make_unique<executor::Waiter>(
      wakeup_fd(), *failure_, m.oversubscribed, settings_.timeout_ms, settings_.moves,
      executor::PreferredProcessor{m.preferred_processor, m.preferred_processor_step_bytes});
  const std::size_t cached = topology::this_machine().last_level_share_bytes(m.machine.cpus, m.machine.ranks);
  executor_ = std::make_unique<executor::CpuExecutor>(*waiter_, executor::CpuTuning::of_cache(cached));
  transfers_ = std::make_unique<Transfers>(rank(), ranks());
  plans_ = std::make_unique<Plans>(m, link_maker_.get(), tree_.get(), *failure_, *waiter_, settings_.timeout_ms);
  if (tree_ != nullptr) {
    if (Status s = watch_peers(); !s.is_ok()) return s;
  }
  log::debug(fmt::format("a communicator of {} ranks on {} hosts, rank {}{}", m.ranks(), m.hosts.size(), rank(),
                         is_on_device() ? ", memory of " + memory::name_of_device(device()) : std::string()));
  return {};
}

Status Communicator::watch_peers() {
  refusals_ = std::make_unique<Refusals>(*tree_, membership_, *history_);
  stalls_ = std::make_unique<Stalls>(*tree_, membership_, *failure_, *history_, *refusals_, settings_.timeout_ms,
                                     settings_.wait_notice_ms);
  waiter_->watch_stalls(stalls_.get());
  if (link_maker_ != nullptr) link_maker_->watch_stalls(stalls_.get());
  const auto where = [this] { return Whereabouts{history_->sequence(), busy_.load(std::memory_order_relaxed)}; };
  return tree_->watch(failure_, {where, [this](const Answer& answer) { stalls_->answered(answer); },
                                 [history = history_] { return history->summary(); },
                                 [this](const Refusal& refusal) { refusals_->heard(refusal); },
                                 [this](const std::string& decision) { plans_->decisions().hear(decision); }});
}

Result<std::vector<PeerInfo>> Communicator::exchange(const PeerInfo& mine, Deadline deadline) {
  if (tree_ == nullptr) return std::vector<PeerInfo>{mine};
  auto texts = tree_->all_gather(mine.serialize(), deadline);
  if (!texts.is_ok()) return texts.status();
  std::vector<PeerInfo> peers;
  for (const std::string& text : *texts) {
    auto peer = PeerInfo::parse(text);
    if (!peer.is_ok()) return peer.status();
    if (peer->rank != static_cast<int>(peers.size())) return Status::remote("protocol error: a rank's number is wrong");
    peers.push_back(std::move(*peer));
  }
  return peers;
}

Status Communicator::set_up_links(Deadline deadline) {
  auto transports = parse_transports(settings_.transports);
  if (!transports.is_ok()) return transports.status().with_context("rank 0");
  const bool in_process = thread_ranks_ != nullptr && thread_ranks_->network() != nullptr;
  if (const auto& first = transports->front(); !first->meeting() && !in_process && tree_ != nullptr) {
    return Status::invalid_usage(
        fmt::format("the transport {} serves only ranks that are threads of one process", first->name()));
  }
  const int rank = membership_.rank;
  // Threads that were made together share the memory of their process.
  const std::string memory_trouble = in_process ? "" : transport::shm::probe_shared_memory().message();
  auto described = describe_self(rank, settings_, memory_trouble);
  if (!described.is_ok()) return described.status();
  PeerInfo& self = *described;
  if (tree_ != nullptr && !in_process) {
    auto listening = Connector::listen(settings_, any_meets(*transports, ChannelKind::kUnix),
                                       any_meets(*transports, ChannelKind::kTcp), rank, secret_, address_, &self);
    if (!listening.is_ok()) return listening.status();
    connector_ = std::move(*listening);
  }
  auto peers = exchange(self, deadline);
  if (!peers.is_ok()) return peers.status();
  if (connector_ != nullptr && thread_ranks_ != nullptr) {
    descriptors_ = reserve_descriptors(static_cast<int>(peers->size()), settings_);
  }
  if (connector_ != nullptr) {
    peers = meet_across_namespaces(std::move(*peers), *transports, &self, deadline);
    if (!peers.is_ok()) return peers.status();
  }
  auto membership = make_membership(rank, std::move(*peers), std::move(*transports));
  if (!membership.is_ok()) return membership.status();
  membership_ = std::move(*membership);
  if (Status s = membership_.check_shared_memory(); !s.is_ok()) return s;
  if (connector_ != nullptr) {
    if (Status s = tell_transports(&self, deadline); !s.is_ok()) return s;
  }
  make_link_maker();
  return {};
}

void Communicator::make_link_maker() {
  if (thread_ranks_ != nullptr && thread_ranks_->network() != nullptr) {
    link_maker_ = make_thread_links(thread_ranks_, membership_);
  } else if (connector_ != nullptr) {
    std::vector<Meeting> meetings;
    for (int other = 0; other < ranks(); ++other) {
      const Transport* const transport = membership_.connecting(rank(), other);
      meetings.push_back(transport != nullptr ? transport->meeting().value_or(Meeting()) : Meeting());
    }
    // Of the membership, which outlives the connector.
    connector_->set_peers(Connector::Book(std::shared_ptr<void>(), &membership_.peers), std::move(meetings));
    link_maker_ = make_connected_links(*connector_, membership_, wakeup_fd());
  }
}

Status Communicator::tell_transports(PeerInfo* self, Deadline deadline) {
  auto own = RankSettings::unpack(self->settings);
  if (!own.is_ok()) return own.status();
  for (const auto& transport : membership_.transports) {
    auto told = transport->tell(settings_, membership_);
    if (!told.is_ok()) return told.status();
    if (told->has_value()) own->by_transport.emplace(transport->name(), std::move(**told));
  }
  if (own->by_transport.empty()) return {};
  self->settings = own->pack();
  auto peers = exchange(*self, deadline);
  return peers.is_ok() ? membership_.hear(std::move(*peers)) : peers.status();
}

Communicator::~Communicator() {
  if (device_ != nullptr) {
    device_->close();
    device_->leave();
  }
  {
    const MutexLock lock(mutex_);
    while (queue_runs_) queue_changed_.wait(mutex_);
  }
  if (!finalized_) deliver();
  if (tree_ != nullptr) tree_->leave();
  // Links first: they refer to the wakeup fd and the membership.
  executor_.reset();
  transfers_.reset();
  plans_.reset();
  link_maker_.reset();
  connector_.reset();
  waiter_.reset();
  tree_.reset();
}

Status Communicator::run(const Call& call) {
  accept();
  // Only this thread queues, so what is not pending now cannot become so meanwhile. On a device graphs queue, too.
  if (pending_.load(std::memory_order_acquire) == 0 && device_ == nullptr) [[likely]]
    return execute(call);
  return run_behind(Queued(call));
}

// `name` says for messages what `run` does, the `sequence`th operation; what it fails with fails the communicator.
template <class Name, class Run>
Status Communicator::attempt(std::uint32_t sequence, Name name, Run run) {
  Status status;
  try {
    status = run();
    if (!status.is_ok()) [[unlikely]]
      status = await_root_cause(name(), sequence, std::move(status));
  } catch (...) {
    status = Status::of_exception();
  }
  if (status.is_ok()) [[likely]]
    return status;
  return fail(name(), std::move(status));
}

// Numbers the operation and runs it.
Status Communicator::execute(const Call& call) {
  const Busy busy(busy_);
  if (failure_->failed() || finalized_) [[unlikely]]
    return refuse();
  const transport::Fingerprint fingerprint = begin(call);
  if (is_empty(call) && !membership_.strict) [[unlikely]] {
    keep_empty(call, fingerprint);
    return {};
  }
  return attempt(
      fingerprint.sequence, [&] { return describe(call, fingerprint); }, [&] { return run_call(call, fingerprint); });
}

Status Communicator::go_on_repeated() {
  const Busy busy(busy_);
  const LastBound::Place& place = *begun_.place;
  const transport::Fingerprint& fingerprint = place.operation.fingerprint;
  return attempt(
      fingerprint.sequence, [&] { return describe({.collective = place.name.collective}, fingerprint); },
      [&] { return executor_->run(place.operation, fingerprint.sequence, begun_.done); });
}

// Each has its number and its place in the history; what the first one has travels with the data.
transport::Fingerprint Communicator::begin(const Coalesced& coalesced) {
  std::optional<transport::Fingerprint> first;
  for (const Call& call : coalesced.calls()) {
    const transport::Fingerprint own = begin(call);
    history_->set_plan(coalesced.plan().identity);
    if (!first) first = own;
  }
  return *first;
}

Status Communicator::execute(const Coalesced& coalesced) {
  const Busy busy(busy_);
  if (failure_->failed() || finalized_) [[unlikely]]
    return refuse();
  const transport::Fingerprint fingerprint = begin(coalesced);
  return attempt(
      fingerprint.sequence, [&] { return describe(coalesced.calls().front(), fingerprint, true); },
      [&] {
        Status differs = membership_.strict ? check_beforehand(fingerprint.sequence) : Status();
        return differs.is_ok() ? run_coalesced(coalesced, fingerprint) : differs;
      });
}

// None of them is in the history, which ranks have in common.
Status Communicator::execute(std::span<const Transfer> transfers) {
  const Busy busy(busy_);
  if (failure_->failed() || finalized_) [[unlikely]]
    return refuse();
  if (transfers.empty()) return {};
  if (stalls_ != nullptr) stalls_->set_transfer(&transfers.front());
  const std::uint32_t number = history_->sequence();
  Status status = attempt(
      number, [&] { return describe(transfers); },
      [&] {
        const executor::Operation* const again = transfers_->repeat(transfers);
        return Transfers::explain(again != nullptr ? executor_->run(*again, number) : bind_and_run(transfers, number));
      });
  if (stalls_ != nullptr) stalls_->set_transfer(nullptr);
  return status;
}

// Every one of them takes place, or fails, so that the ranks' histories stay alike.
Status Communicator::execute(std::span<const Call> calls, std::span<const Transfer> transfers) {
  Status first;
  const auto note = [&](Status status) {
    if (first.is_ok()) first = std::move(status);
  };
  for (std::span<const Call> rest = calls; !rest.empty();) {
    const Coalesced together(rest, *plans_, rank(), ranks());
    const std::size_t n = together.calls().size();
    note(n == 1 ? execute(rest.front()) : execute(together));
    rest = rest.subspan(n);
  }
  note(execute(transfers));
  return first;
}

Status Communicator::run_call(const Call& call, const transport::Fingerprint& fingerprint) {
  if (membership_.strict && ranks() > 1) [[unlikely]] {
    if (Status differs = check_beforehand(fingerprint.sequence); !differs.is_ok()) return differs;
    if (Status differs = check_counts_beforehand(call, fingerprint); !differs.is_ok()) return differs;
  }
  if (const executor::Operation* again = bind_again(call, fingerprint); again != nullptr) [[likely]]
    return executor_->run(*again, fingerprint.sequence);
  return bind_and_run(call, fingerprint);
}

// An operation that failed leaves half-finished streams, which nothing can use again. Peers must not wait for this
// rank.
Status Communicator::fail(std::string_view what, Status status) {
  if (status.code() == Code::kInvalidUsage || status.code() == Code::kInvalidArgument) {
    set_last_error(status);
    return status;
  }
  const auto named = [&](const Status& cause) {
    return cause.code() == Code::kMismatch ? cause : cause.with_context(what);  // a mismatch names the calls itself
  };
  Status result = with_refusals(named(status));
  if (!end_all(result, result)) result = with_refusals(named(failure_->status()));
  note_failure(result);
  return result;
}

// Of an operation on a communicator that has failed or ended.
Status Communicator::refuse() {
  if (finalized_) return Status::invalid_usage("the communicator is finalized");
  Status status = with_refusals(failure_->status());
  note_failure(status);
  return status;
}

void Communicator::tell_peers(const Status& status) {
  if (tree_ == nullptr) return;
  tree_->announce_failure(as_told_to_peers(status));
}

// Finds out why, if `status` may be no more than the sign of it: gives the control tree time to tell.
Status Communicator::await_root_cause(const std::string& what, std::uint32_t sequence, Status status) const {
  if (status.code() == Code::kMismatch) return executor_->unexplained() ? explain(std::move(status)) : status;
  const bool waited = status.code() == Code::kTimeout;
  if (!waited && status.code() != Code::kRemoteError && status.code() != Code::kSystemError) return status;
  // What a leave notice could not tell when it came: this call had not begun.
  if (tree_ != nullptr && failure_->any_departed() && !failure_->failed()) {
    if (Status differs = tree_->compare_with_departed(); !differs.is_ok()) return differs;
  }
  if (waited) return status;
  if (tree_ != nullptr) (void)failure_->await(Deadline::after_ms(kRootCauseMs));
  if (status.code() != Code::kRemoteError || stalls_ == nullptr || failure_->failed()) return status;
  // Nobody has died: the connection ended, or nothing comes, because a rank has left.
  if (const auto left = failure_->departed_before(sequence); left.rank >= 0) {
    return Status::mismatch(fmt::format("rank {} has left after {}{}, rank {} runs {}", left.rank, left.operations,
                                        left.operations == 1 ? " operation" : " operations", rank(), what));
  }
  // A silent rank does not pass notices on: the peer whose connection is lost may have given up on that rank.
  const std::string silent = stalls_->silent();
  return silent.empty() ? status : Status::timeout(silent + "; " + status.message());
}

Status Communicator::finalize() {
  if (finalized_) return {};
  wait_for_queue();
  if (device_ != nullptr) {
    // A graph may run still: what it finds from now on it lets go.
    device_->close();
    wait_for_queue();
    device_->leave();
    device_->release(kDeliverMs);
  }
  goes_slowly_ = finalized_ = true;
  deliver();
  {
    // Another thread may have ended what was queued, and be about to tell the peers: they hear that first, and judge no
    // calls of a communicator that has failed.
    const MutexLock told(telling_mutex_);
  }
  if (const Status s = guarded([&] { return part(), Status(); }); !s.is_ok()) set_last_error(s);
  if (tree_ != nullptr) tree_->leave();
  return failure_->status();
}

void Communicator::wait_for_queue() {
  constexpr std::int64_t kLookMs = 200;
  constexpr std::int64_t kLookDirectMs = 1;  // nobody tells of the end
  const auto runs_directly = [&] { return device_ != nullptr && !failure_->failed() && device_->runs_directly(); };
  // The other ranks' streams may never come: all have called, so nobody else counts the time.
  const Deadline longest = Deadline::after_ms(settings_.timeout_ms);
  for (bool direct = runs_directly(); has_queued() || direct; direct = runs_directly()) {
    if (device_ != nullptr) device_->look();
    if (direct && !has_queued() && longest.passed()) {
      (void)fail("finalize",
                 Status::timeout(fmt::format("a collective has waited for the streams of all ranks for {} ms",
                                             settings_.timeout_ms)));
    }
    const Deadline deadline = Deadline::after_ms(direct ? kLookDirectMs : kLookMs);
    const MutexLock lock(mutex_);
    while (has_queued() || direct) {
      if (!queue_changed_.wait_until(mutex_, deadline)) break;
    }
  }
}

// A leave notice tells the peers that nothing more comes.
void Communicator::deliver() const {
  if (plans_ != nullptr) plans_->deliver(Deadline::after_ms(kDeliverMs));
}

bool Communicator::end_all(const Status& here, const Status& there) {
  const MutexLock lock(telling_mutex_);
  const bool first = failure_->fail(here);
  if (first && device_ != nullptr) device_->stop();
  if (first) tell_peers(there);
  return first;
}

void Communicator::set_last_error(const Status& status) {
  const MutexLock lock(mutex_);
  last_error_ = status;
}

void Communicator::note_failure(const Status& status) {
  const MutexLock lock(mutex_);
  failure_text_ = status;
}

// A failure is not hidden by what is refused afterwards. Of one that came while no call was under way, none has
// noted a text.
Status Communicator::last_error() const {
  const MutexLock lock(mutex_);
  if (!failure_->failed()) return last_error_;
  return failure_text_.is_ok() ? failure_->status() : failure_text_;
}

}  // namespace tutti::internal
