#include "communicator/operations.h"

#include <optional>
#include <utility>

#include "calls/descriptions.h"
#include "os/ticks.h"
#include "topology/detect.h"

namespace tutti::internal {
namespace {

executor::CpuTuning tuning_for(const MachineRanks& machine) {
  return executor::CpuTuning::of_cache(topology::this_machine().last_level_share_bytes(machine.cpus, machine.ranks));
}

}  // namespace

Operations::Operations(const Epoch& epoch, CallHistory& history, Failures& failures, bool own_buffers)
    : epoch_(epoch),
      history_(history),
      failures_(failures),
      executor_(epoch.waiter(), tuning_for(epoch.membership().machine)),
      bound_(epoch, history, own_buffers) {}

// `name` describes `run`, operation number `sequence`, in messages. An error of `run` fails the communicator.
template <class Name, class Run>
Status Operations::attempt(std::uint32_t sequence, Name name, Run run) {
  Status status;
  try {
    status = run();
    if (!status.is_ok()) [[unlikely]]
      status = failures_.await_root_cause(name(), sequence, std::move(status), executor_.unexplained());
  } catch (...) {
    status = Status::of_exception();
  }
  if (status.is_ok()) [[likely]]
    return status;
  return failures_.fail(name(), std::move(status));
}

transport::Fingerprint Operations::begin(const Call& call) {
  const std::size_t uniform = call.whole_count == 0 ? call.count : call.whole_count;
  const std::uint64_t count = call.varying == nullptr ? uniform : hash_of_counts(call, epoch_.ranks());
  return history_.begin(call.collective, call.type, call.op, call.root,
                        executor::count_with_element_bytes(call.opaque, count));
}

// Each call has its number and its entry in the history; the fingerprint of the first one travels with the data.
transport::Fingerprint Operations::begin(const Coalesced& coalesced) {
  std::optional<transport::Fingerprint> first;
  parts_.clear();
  for (const Call& call : coalesced.calls()) {
    const transport::Fingerprint own = begin(call);
    history_.set_plan(coalesced.plan().identity);
    if (!first) {
      first = own;
      if (history_.ring().records()) history_.ring().begin_parts();
    }
    if (history_.ring().records()) parts_.push_back(own);
  }
  return *first;
}

Status Operations::run(const Call& call) {
  if (failures_.has_ended()) [[unlikely]]
    return failures_.refuse();
  const CallHistory::Inside inside(history_);
  const transport::Fingerprint fingerprint = begin(call);
  if (is_empty(call) && !epoch_.settings().strict) [[unlikely]] {
    bound_.keep_empty(call, fingerprint);
    measure(call);
    return {};
  }
  Status status = attempt(
      fingerprint.sequence, [&] { return describe(call, fingerprint); }, [&] { return run_bound(call, fingerprint); });
  if (status.is_ok()) measure(call);
  return status;
}

Status Operations::run_bound(const Call& call, const transport::Fingerprint& fingerprint) {
  if (epoch_.settings().strict && epoch_.ranks() > 1) [[unlikely]] {
    if (Status differs = check_beforehand(fingerprint.sequence); !differs.is_ok()) return differs;
    if (Status differs = check_counts_beforehand(call, fingerprint); !differs.is_ok()) return differs;
  }
  if (Status s = bind_and_run(call, fingerprint); !s.is_ok()) return s;
  return check_results({&call, 1}, fingerprint.sequence);
}

Status Operations::bind_and_run(const Call& call, const transport::Fingerprint& fingerprint) {
  auto operation = bound_.bind(call, fingerprint);
  if (!operation.is_ok()) return operation.status();
  return *operation == nullptr ? Status() : executor_.run(**operation, fingerprint.sequence);
}

Status Operations::go_on_repeated() {
  const PreparedCalls::Prepared& prepared = *begun_.prepared;
  observe::EventRing& ring = history_.ring();
  const Collective collective = prepared.name.collective;
  const std::size_t bytes = has_data(collective) ? prepared.operation.bytes : 0;
  if (begun_.done != 0 && begun_.done == prepared.fast_steps.size()) {
    // It is complete, and here only to be measured (BoundOperations::prepare).
    ring.measure_collective(collective, bytes);
    return {};
  }
  const CallHistory::Inside inside(history_);
  const transport::Fingerprint& fingerprint = prepared.operation.fingerprint;
  Status status = attempt(
      fingerprint.sequence, [&] { return describe({.collective = collective}, fingerprint); },
      [&] { return executor_.run(prepared.operation, fingerprint.sequence, begun_.done); });
  if (status.is_ok() && ring.records()) ring.measure_collective(collective, bytes);
  return status;
}

void Operations::measure(const Coalesced& coalesced) {
  observe::EventRing& ring = history_.ring();
  if (!ring.records()) return;
  const std::uint64_t ended = ticks();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Call& call = coalesced.calls()[i];
    const transport::Fingerprint& words = parts_[i];
    ring.measure_part(
        {words.sequence, words.call, words.root, executor::count_of(words), coalesced.plan().identity.hash},
        call.collective, bound_.measured_bytes(call), coalesced.bytes(), ended);
  }
}

void Operations::measure(std::span<const Transfer> transfers) {
  observe::EventRing& ring = history_.ring();
  if (!ring.records()) return;
  const std::uint64_t ended = ticks();
  for (const Transfer& transfer : transfers) {
    ring.measure_transfer(transfer.sends, transfer.peer, bytes_of(transfer), ended);
  }
}

Status Operations::run(const Coalesced& coalesced) {
  if (failures_.has_ended()) [[unlikely]]
    return failures_.refuse();
  const CallHistory::Inside inside(history_);
  const transport::Fingerprint fingerprint = begin(coalesced);
  return attempt(
      fingerprint.sequence, [&] { return describe(coalesced.calls().front(), fingerprint, true); },
      [&] {
        Status status = epoch_.settings().strict ? check_beforehand(fingerprint.sequence) : Status();
        if (!status.is_ok()) return status;
        std::byte* memory = nullptr;
        auto operation = bound_.bind(coalesced, fingerprint, &memory);
        if (!operation.is_ok()) return operation.status();
        status = executor_.run(**operation, fingerprint.sequence);
        if (!status.is_ok()) return status;
        coalesced.unpack(memory);
        status = check_results(coalesced.calls(), fingerprint.sequence);
        if (status.is_ok()) measure(coalesced);
        return status;
      });
}

// Transfers are not in the history, which all ranks share.
Status Operations::run(std::span<const Transfer> transfers) {
  if (transfers.empty() && !failures_.has_ended()) return {};
  if (failures_.has_ended()) [[unlikely]]
    return failures_.refuse();
  const CallHistory::Inside inside(history_);
  failures_.set_transfer(&transfers.front());
  const std::uint32_t number = history_.sequence();
  Status status = attempt(
      number, [&] { return describe(transfers); },
      [&] {
        auto operation = bound_.bind(transfers);
        return Transfers::explain(operation.is_ok() ? executor_.run(**operation, number) : operation.status());
      });
  if (status.is_ok()) measure(transfers);
  failures_.set_transfer(nullptr);
  return status;
}

Status Operations::run(std::span<const Call> calls, std::span<const Transfer> transfers) {
  Status first;
  const auto note = [&](Status status) {
    if (first.is_ok()) first = std::move(status);
  };
  for (std::span<const Call> rest = calls; !rest.empty();) {
    const Coalesced together(rest, epoch_.plans(), epoch_.rank(), epoch_.ranks());
    const std::size_t n = together.calls().size();
    note(n == 1 ? run(rest.front()) : run(together));
    rest = rest.subspan(n);
  }
  note(run(transfers));
  return first;
}

}  // namespace tutti::internal
