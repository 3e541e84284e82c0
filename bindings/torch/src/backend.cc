#include "backend.h"

#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <climits>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "copies.h"
#include "departures.h"
#include "failure.h"
#include "run.h"
#include "store_connection.h"
#include "watchdog.h"

namespace tutti_torch {

Backend::Backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size),
      options_(std::move(options)),
      comm_timeout_(options_->timeout),
      timeout_(options_->timeout) {
  const auto connection = store_connection(store);
  const auto& given = options_->global_ranks_in_group;
  open(join(*store, {rank, size}, comm_timeout_, {given.begin(), given.end()}), store, connection);
  // torch's name of the default group, which lists no ranks.
  if (given.empty() && options_->group_name == "0") become_world();
}

void Backend::become_world() {
  is_world_ = true;
  World::set(name_, rank_, [weak = std::weak_ptr<Channel>(collectives_)]() -> tuttiComm_t {
    const auto alive = weak.lock();
    return alive != nullptr ? alive->comm() : nullptr;
  });
}

Backend::Backend(const Joined& joined, const c10::intrusive_ptr<c10d::Store>& store,
                 const c10::intrusive_ptr<c10d::Store>& connection, int rank, int size,
                 c10::intrusive_ptr<Options> options)
    : c10d::Backend(rank, size),
      options_(std::move(options)),
      comm_timeout_(options_->timeout),
      timeout_(options_->timeout) {
  open(joined, store, connection);
}

void Backend::open(const Joined& joined, const c10::intrusive_ptr<c10d::Store>& store,
                   const c10::intrusive_ptr<c10d::Store>& connection) {
  name_ = joined.name;
  store_ = c10::make_intrusive<c10d::PrefixStore>("tutti/" + name_, store);
  connection_ = connection;
  own_store_ = c10::make_intrusive<c10d::PrefixStore>("tutti/" + name_, connection);
  collectives_ = std::make_shared<Channel>("collectives", std::nullopt, own_store_, rank_);
  collectives_->open(joined.comm);
  Watchdog::get().add(collectives_);
}

// Python frees it, and holds the lock that a callback may need before an operation is over.
Backend::~Backend() {
  std::optional<pybind11::gil_scoped_release> released;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) released.emplace();
  const auto queues = device_queues();
  const bool idle = collectives_->is_idle() &&
                    std::all_of(queues.begin(), queues.end(), [](const QueuePtr& queue) { return queue->settle(); });
  if (!closing_ && !idle) abort();
  shutdown();
}

void Backend::abort() {
  collectives_->revoke();
  for (const auto& queue : device_queues()) queue->revoke();
  const std::lock_guard<std::mutex> lock(messages_mutex_);
  for (const auto& [direction, messages] : messages_) {
    if (messages.channel != nullptr) messages.channel->revoke();  // null: one could not be made
  }
  for (const Messages& messages : ended_messages_) messages.channel->revoke();
}

void Backend::shutdown() {
  if (closing_.exchange(true)) return;
  for (const auto& queue : device_queues()) queue->close();
  std::vector<Messages> all;
  {
    const std::lock_guard<std::mutex> lock(messages_mutex_);
    std::swap(all, ended_messages_);
    for (auto& [direction, messages] : std::exchange(messages_, {})) {
      if (messages.channel != nullptr) all.push_back(std::move(messages));
    }
  }
  for (Messages& messages : all) {
    if (messages.joined.valid()) messages.joined.wait();
  }
  // A store that cannot be cloned may be written in Python, which may have ended. Of a failure all ranks know.
  const auto prefixed = c10::dynamic_intrusive_pointer_cast<c10d::PrefixStore>(store_);
  const bool cloned = prefixed->getUnderlyingNonPrefixStore() != connection_;
  if (size_ > 1 && cloned && getError() == c10d::ErrorType::SUCCESS) announce_departure(*own_store_, rank_);
  for (Messages& messages : all) {
    messages.channel->close();
    if (messages.receives != nullptr) messages.receives->fail(tuttiInvalidUsage);
  }
  collectives_->close();
}

c10d::ErrorType Backend::getError() {
  tuttiResult_t error = tuttiSuccess;
  const tuttiComm_t comm = collectives_->comm();
  if (comm == nullptr || tuttiCommGetAsyncError(comm, &error) != tuttiSuccess) return c10d::ErrorType::COMM_ERROR;
  for (const auto& queue : device_queues()) {
    if (error == tuttiSuccess && queue->has_failed()) return c10d::ErrorType::COMM_ERROR;
  }
  switch (error) {
    case tuttiSuccess: return c10d::ErrorType::SUCCESS;
    case tuttiTimeout: return c10d::ErrorType::TIMEOUT;
    case tuttiRemoteError: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

std::uint64_t Backend::getSequenceNumberForGroup() {
  return collectives_->next() - 1;
}

// Operations keep the timeout of their communicator, beside which waits have this one.
void Backend::setTimeout(std::chrono::milliseconds timeout) {
  timeout_ = timeout;
  options_->timeout = timeout;
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& opts) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  const int color = own == ranks.end() ? TUTTI_SPLIT_NOCOLOR : *std::min_element(ranks.begin(), ranks.end());
  const int key = static_cast<int>(own - ranks.begin());
  // All ranks of this group count its splits; the smallest rank tells the parts of one split apart.
  const std::string name = name_ + ".split" + std::to_string(++splits_) + "." + std::to_string(color);
  tuttiComm_t made = nullptr;
  const tuttiComm_t comm = collectives_->comm();
  check(tuttiCommSplit(comm, color, key, &made, nullptr), "split", comm);
  if (made == nullptr) return nullptr;
  auto options = c10::make_intrusive<Options>(opts != nullptr ? *opts : *options_);
  const std::vector<int> global = global_ranks();
  options->global_ranks_in_group.clear();
  for (const int one : ranks) options->global_ranks_in_group.push_back(static_cast<std::uint64_t>(global.at(one)));
  return c10::intrusive_ptr<Backend>::reclaim(
      new Backend({made, name}, store, connection_, key, static_cast<int>(ranks.size()), std::move(options)));
}

std::uint64_t Backend::agree(std::uint64_t flag) {
  check(tuttiCommAgree(collectives_->comm(), &flag), "agree");
  return flag;
}

std::vector<int> Backend::listed(ListRanks list, const char* what) {
  std::vector<int> ranks(static_cast<std::size_t>(size_));
  int count = 0;
  check(list(collectives_->comm(), ranks.data(), size_, &count), what);
  ranks.resize(static_cast<std::size_t>(count));
  return ranks;
}

std::vector<int> Backend::failed() {
  return listed(tuttiCommGetFailed, "failed");
}

std::vector<int> Backend::contributors() {
  return listed(tuttiCommGetContributors, "contributors");
}

c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags,
                                                  const c10::intrusive_ptr<Options>& opts_override) {
  std::vector<int> excluded(ranks_to_exclude.begin(), ranks_to_exclude.end());
  std::sort(excluded.begin(), excluded.end());
  const auto is_excluded = [&](int rank) { return std::binary_search(excluded.begin(), excluded.end(), rank); };
  auto options = c10::make_intrusive<Options>(opts_override != nullptr ? *opts_override : *options_);
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.timeout_ms =
      static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(options->timeout.count(), 1, INT_MAX));
  if ((shrink_flags & TUTTI_SHRINK_ABORT) != 0) abort();  // messages as well, of which tutti knows nothing
  tuttiComm_t made = nullptr;
  check(tuttiCommShrink(collectives_->comm(), excluded.data(), static_cast<int>(excluded.size()), &made, &config,
                        shrink_flags),
        "shrink_group");
  int rank = 0;
  int ranks = 0;
  check(tuttiCommUserRank(made, &rank), "shrink_group", made);
  check(tuttiCommCount(made, &ranks), "shrink_group", made);
  if (ranks != size_ - static_cast<int>(excluded.size())) {
    (void)tuttiCommDestroy(made);
    std::string dead;
    for (const int one : failed()) {
      if (!is_excluded(one)) dead += (dead.empty() ? "" : ", ") + std::to_string(one);
    }
    std::rethrow_exception(
        backend_error("shrink_group", "these ranks have died and are not in the list: " + dead + ". Add them to it."));
  }
  // The ranks that go on have made the same groups of this one.
  const std::string name = name_ + ".shrunk" + std::to_string(++shrinks_);
  options->global_ranks_in_group.clear();
  const std::vector<int> global = global_ranks();
  for (int one = 0; one < size_ && !is_world_; ++one) {
    if (is_excluded(one)) continue;
    options->global_ranks_in_group.push_back(static_cast<std::uint64_t>(global.at(static_cast<std::size_t>(one))));
  }
  auto shrunk = c10::intrusive_ptr<Backend>::reclaim(
      new Backend({made, name}, store_, connection_, rank, ranks, std::move(options)));
  if (is_world_) shrunk->become_world();
  return shrunk;
}

// ---- Beginning operations -----------------------------------------------------------------------

Tensors Backend::Operation::touched() const {
  Tensors all = packing.kept();
  all.insert(all.end(), inputs.begin(), inputs.end());
  all.insert(all.end(), outputs.begin(), outputs.end());
  return all;
}

c10::intrusive_ptr<Work> Backend::make_work(const Channel& channel, const Operation& operation) const {
  auto timeout = operation.timeout == c10d::kUnsetTimeout ? timeout_.load() : operation.timeout;
  if (timeout >= comm_timeout_) timeout = kNoTimeout;
  // Profiles show one list of shapes: of what is only received, where it goes.
  const Tensors& shown = operation.inputs.empty() ? operation.outputs : operation.inputs;
  return c10::make_intrusive<Work>(rank_, operation.type, operation.title, shown, operation.outputs, channel.next(),
                                   timeout, operation.sender, operation.lists);
}

// For errors of an operation: of the default group nothing.
std::string Backend::told_of_group() const {
  if (pg_desc_ == "default_pg" || pg_uid_.empty()) return {};
  const bool described = !pg_desc_.empty() && pg_desc_ != "undefined";
  return " (in process group " + (described ? pg_desc_ : pg_uid_) + ")";
}

std::vector<int> Backend::global_ranks() const {
  const auto& given = options_->global_ranks_in_group;
  std::vector<int> ranks(given.begin(), given.end());
  if (!ranks.empty()) return ranks;
  ranks.resize(static_cast<std::size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Backend::Recorded Backend::recorded(const Operation& operation) const {
  return {{operation.title, operation.type, operation.route, timeout_.load()}, operation.inputs, operation.outputs};
}

std::shared_ptr<const Recorder::Group> Backend::record_group() {
  const std::lock_guard<std::mutex> lock(record_mutex_);
  if (record_group_ == nullptr) record_group_ = Recorder::get().group(pg_uid_, pg_desc_, global_ranks());
  return record_group_;
}

Recorder::Entries Backend::record(const Operation& operation) {
  const auto group = record_group();
  Recorder::Entries entries;
  const auto add = [&](const Recorded& one) {
    entries.add(Recorder::get().add(group, one.call, one.inputs, one.outputs));
  };
  if (operation.messages.empty()) add(recorded(operation));
  for (const Recorded& one : operation.messages) add(one);
  return entries;
}

Work::InFlight Backend::begin_flight(const std::shared_ptr<Channel>& channel, Operation& operation, bool here) {
  auto entries = record(operation);
  const std::weak_ptr<Channel> weak = channel;
  const char* const before =
      channel->has_failed() ? "the process group has failed before, and can only be shrunk or destroyed: " : "";
  auto explain = [weak, before, group = told_of_group()](tuttiResult_t result) {
    const auto alive = weak.lock();
    return before + (alive != nullptr ? alive->explain(result) : failure_text(result, nullptr)) + group;
  };
  const auto copies = operation.packing.is_empty() ? nullptr : std::make_shared<Copies>(operation.packing);
  std::function<void()> at_end = std::move(operation.after);
  if (copies != nullptr) {
    at_end = [copies, next = std::move(at_end)] {
      copies->finish();
      if (next) next();
    };
  }
  auto flight = std::make_shared<Flight>(operation.name, operation.touched(), std::move(explain), std::move(at_end),
                                         std::move(entries));
  if (operation.receives != nullptr) {
    operation.wanted.flight = flight;
    operation.receives->begin(std::move(operation.wanted));
  } else {
    channel->begin(flight, std::move(operation.call), copies, here);
  }
  return {channel, std::move(flight)};
}

WorkPtr Backend::begin(const std::shared_ptr<Channel>& channel, Operation operation) {
  {
    const std::lock_guard<std::mutex> lock(coalescing_mutex_);
    if (coalescing_) {
      coalesced_.in_channels.emplace_back(channel, std::move(operation));
      return nullptr;
    }
  }
  auto work = make_work(*channel, operation);
  const bool here =
      !operation.async && (operation.timeout == c10d::kUnsetTimeout || operation.timeout >= comm_timeout_);
  work->add(begin_flight(channel, operation, here));
  work->end_range_when_done();
  // This call reports a failure that has already happened.
  if (work->isCompleted() && work->exception() != nullptr) std::rethrow_exception(work->exception());
  return work;
}

Backend::Operation Backend::together(std::vector<Operation> operations) const {
  Operation all;
  all.type = c10d::OpType::COALESCED;
  all.name = "coalesced";
  all.title = "tutti:coalesced";
  std::vector<Call> calls;
  std::vector<std::function<void()>> after;
  if (!operations.empty()) {
    const Operation& first = operations.front();
    const bool alike = std::all_of(operations.begin(), operations.end(),
                                   [&](const Operation& one) { return std::string_view(one.name) == first.name; });
    if (alike) all.name = first.name;
    if (alike) all.title = first.title;
  }
  const bool messages =
      std::any_of(operations.begin(), operations.end(), [](const Operation& one) { return c10d::isP2POp(one.type); });
  for (Operation& one : operations) {
    if (messages) all.messages.push_back(recorded(one));
    all.inputs.insert(all.inputs.end(), one.inputs.begin(), one.inputs.end());
    all.outputs.insert(all.outputs.end(), one.outputs.begin(), one.outputs.end());
    all.packing.append(std::move(one.packing));
    all.async = one.async;
    all.timeout = one.timeout;
    calls.push_back(std::move(one.call));
    if (one.after) after.push_back(std::move(one.after));
  }
  all.call = [calls = std::move(calls)](tuttiComm_t comm, void* stream) { return call_together(calls, comm, stream); };
  if (!after.empty()) {
    all.after = [after = std::move(after)] {
      for (const auto& one : after) one();
    };
  }
  return all;
}

void Backend::startCoalescing() {
  const std::lock_guard<std::mutex> lock(coalescing_mutex_);
  if (coalescing_) refuse("start_coalescing", "is called twice");
  coalescing_ = true;
}

WorkPtr Backend::end_refused(const std::shared_ptr<Channel>& channel) {
  const std::exception_ptr refusal = std::current_exception();
  {
    const std::lock_guard<std::mutex> lock(coalescing_mutex_);
    if (coalescing_) {
      if (coalesced_.refusal == nullptr) coalesced_.refusal = refusal;
      if (channel != nullptr) coalesced_.in_channels.emplace_back(channel, Operation());
      return nullptr;
    }
  }
  if (channel != nullptr) channel->refuse(reason_of(refusal));
  std::rethrow_exception(refusal);
}

// A refused list is freed without the lock: that may take Python's.
WorkPtr Backend::endCoalescing() {
  Coalesced list;
  {
    const std::lock_guard<std::mutex> lock(coalescing_mutex_);
    if (!std::exchange(coalescing_, false)) refuse("end_coalescing", "is called without start_coalescing");
    list = std::exchange(coalesced_, {});
  }
  try {
    const bool mixed = !list.on_device.empty() && !list.in_channels.empty();
    if (mixed) refuse("coalesced", "operations on a device cannot be coalesced with operations on the CPU");
  } catch (const c10::Error&) {
    if (list.refusal == nullptr) list.refusal = std::current_exception();
  }
  if (list.refusal == nullptr) {
    return list.on_device.empty() ? begin_coalesced(std::move(list.in_channels))
                                  : begin_coalesced_on_device(std::move(list.on_device));
  }
  std::set<std::shared_ptr<Channel>> told;
  for (const auto& [channel, one] : list.in_channels) {
    if (told.insert(channel).second) channel->refuse(reason_of(list.refusal));
  }
  std::rethrow_exception(list.refusal);
}

WorkPtr Backend::begin_coalesced(std::vector<std::pair<std::shared_ptr<Channel>, Operation>> coalesced) {
  std::vector<Operation> collectives;
  std::vector<std::pair<std::shared_ptr<Channel>, Operation>> transfers;
  for (auto& one : coalesced) {
    if (one.first == collectives_) {
      collectives.push_back(std::move(one.second));
    } else {
      transfers.push_back(std::move(one));
    }
  }
  const bool any = !collectives.empty();  // a barrier has no tensors
  Operation all = together(std::move(collectives));
  Operation shown = all;
  for (const auto& [channel, one] : transfers) {
    shown.inputs.insert(shown.inputs.end(), one.inputs.begin(), one.inputs.end());
    shown.outputs.insert(shown.outputs.end(), one.outputs.begin(), one.outputs.end());
  }
  auto work = make_work(*collectives_, shown);
  if (any) work->add(begin_flight(collectives_, all, false));
  for (auto& [channel, one] : transfers) work->add(begin_flight(channel, one, false));
  work->end_range_when_done();
  return work;
}

}  // namespace tutti_torch
