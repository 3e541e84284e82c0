// Runs the operations of a communicator, one after the other: numbers each, binds it, gives it to the executor, and
// finds the cause of errors. The thread of the program's calls runs them directly; the progress engine runs queued
// operations with the same parts (queue_task.h).
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "calls/call.h"
#include "calls/transfer.h"
#include "communicator/bound_operations.h"
#include "communicator/coalesced.h"
#include "communicator/failures.h"
#include "epoch/call_history.h"
#include "epoch/epoch.h"
#include "executor/cpu_executor.h"

namespace tutti::internal {

class Operations {
 public:
  // All outlive this. own_buffers: see BoundOperations.
  Operations(const Epoch& epoch, CallHistory& history, Failures& failures, bool own_buffers);

  // Each run() returns when its work is complete on this rank. An error has failed the communicator, unless it is a
  // refusal.
  Status run(const Call& call);
  // Runs all of them together. REQUIRES: check_own() is ok.
  Status run(std::span<const Transfer> transfers);
  // Runs the calls in order, then the transfers together. Each of them runs or fails, so that the ranks' histories stay
  // alike.
  Status run(std::span<const Call> calls, std::span<const Transfer> transfers);

  // Runs a prepared call (prepared_calls.h), with the fast path if its messages are short (transport/lines.h). kNo:
  // nothing was done; kBegun: go_on_repeated() must follow. Accepts any arguments: an invalid call is never prepared.
  // `types`: the datatype and the operator as numbers of the C API; type_and_op() returns them. REQUIRES:
  // !Failures::goes_slowly().
  enum class Repeated : std::uint8_t { kNo, kBegun, kDone };
  template <class TypeAndOp>
  [[gnu::always_inline]] Repeated repeat(Collective collective, std::uint64_t types, std::size_t count, int root,
                                         const void* send, void* recv, TypeAndOp type_and_op);
  // Completes the call that has begun and returns its result. Status queries of other ranks see this rank inside it.
  Status go_on_repeated();

  // ---- The parts, for the queue
  // Numbers the operation. If several run together, numbers all of them and returns the fingerprint of the first one.
  transport::Fingerprint begin(const Call& call);
  transport::Fingerprint begin(const Coalesced& coalesced);
  [[nodiscard]] CallHistory& history() const { return history_; }
  [[nodiscard]] BoundOperations& bound() { return bound_; }
  // Operations have ended well, for the measures of TUTTI_METRICS (observe/measures.h).
  void measure(const Call& call) {
    if (history_.ring().records() && !call.barrier_only)
      history_.ring().measure_collective(call.collective, bound_.measured_bytes(call));
  }
  void measure(const Coalesced& coalesced);
  void measure(std::span<const Transfer> transfers);
  [[nodiscard]] executor::CpuExecutor& executor() { return executor_; }

 private:
  template <class Name, class Run>
  Status attempt(std::uint32_t sequence, Name name, Run run);
  Status run_bound(const Call& call, const transport::Fingerprint& fingerprint);
  Status bind_and_run(const Call& call, const transport::Fingerprint& fingerprint);
  Status run(const Coalesced& coalesced);
  // TUTTI_CHECK=strict: checks before the operation that all ranks have called the same one (operations_check.cc).
  Status check_beforehand(std::uint32_t sequence);
  Status check_counts_beforehand(const Call& call, const transport::Fingerprint& fingerprint);
  // TUTTI_CHECKSUM: checks after operation `sequence` that all ranks have the same results of these calls.
  Status check_results(std::span<const Call> calls, std::uint32_t sequence);
  Status name_damaged(const Call& call, std::uint64_t digest, std::uint32_t sequence);
  Status run_check(Collective collective, std::span<std::uint64_t> words, std::uint32_t sequence, int root = 0);

  const Epoch& epoch_;
  CallHistory& history_;
  Failures& failures_;
  executor::CpuExecutor executor_;
  BoundOperations bound_;
  std::vector<transport::Fingerprint> parts_;  // of the calls that run as one, if they are measured
  struct {
    const PreparedCalls::Prepared* prepared = nullptr;
    std::size_t done = 0;  // of its steps
  } begun_;                // set by repeat()
};

template <class TypeAndOp>
inline Operations::Repeated Operations::repeat(Collective collective, std::uint64_t types, std::size_t count, int root,
                                               const void* send, void* recv, TypeAndOp type_and_op) {
  PreparedCalls::Prepared* prepared = bound_.last();
  if (prepared == nullptr || !prepared->name.is(collective, types, count, root)) [[unlikely]] {
    const auto [type, op] = type_and_op();
    prepared = bound_.find({types, count, collective, root}, type, op);
    if (prepared == nullptr) return Repeated::kNo;
  }
  if (prepared->plan == nullptr) [[unlikely]] {
    history_.begin_empty(prepared->word, prepared->root);
    return Repeated::kDone;
  }
  if (send != prepared->send || recv != prepared->recv) {
    if (!prepared->suits(send, recv)) [[unlikely]]
      return Repeated::kNo;
    prepared->set_buffers(send, recv);
  }
  const CallHistory::Numbered numbered = history_.number(prepared->word, prepared->root, prepared->count);
  const transport::Fingerprint fingerprint = numbered.with(prepared->planned_word);
  const auto note = [&] { history_.note(numbered, prepared->plan); };
  const std::size_t done = executor_.run_short(prepared->operation, fingerprint, prepared->fast_steps, note);
  if (done == prepared->fast_done) [[likely]]
    return Repeated::kDone;
  if (history_.sequence() != fingerprint.sequence) note();
  prepared->operation.fingerprint = fingerprint;
  begun_ = {prepared, done};
  return Repeated::kBegun;
}

}  // namespace tutti::internal
