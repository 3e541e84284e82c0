// A communicator's calls in the executor's form: bound to a plan, to scratch memory and to the call's buffers. Recently
// bound calls are found again.
//
// Threads: one at a time, the one that runs the operations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "base/types.h"
#include "calls/call.h"
#include "calls/transfer.h"
#include "communicator/coalesced.h"
#include "communicator/prepared_calls.h"
#include "communicator/scratch.h"
#include "communicator/transfers.h"
#include "epoch/call_history.h"
#include "epoch/epoch.h"
#include "executor/operation.h"

namespace tutti::internal {

class BoundOperations {
 public:
  // Both outlive this. own_buffers: operations use buffers of the library, which the program's calls do not name.
  BoundOperations(const Epoch& epoch, CallHistory& history, bool own_buffers);

  // The operation for the executor to run; null: there is nothing to do. Valid until the next bind(). If the call is
  // not prepared and has no plan yet, this makes the plan, which may wait for peers and for a proof.
  Result<const executor::Operation*> bind(const Call& call, const transport::Fingerprint& fingerprint);
  // *memory: the packed buffers.
  Result<const executor::Operation*> bind(const Coalesced& coalesced, const transport::Fingerprint& fingerprint,
                                          std::byte** memory);
  Result<const executor::Operation*> bind(std::span<const Transfer> transfers) {
    const executor::Operation* const again = transfers_.repeat(transfers);
    if (again != nullptr) [[likely]]
      return again;
    return transfers_.bind(transfers, epoch_.plans());
  }

  // The prepared call that was found last, or null.
  [[nodiscard]] PreparedCalls::Prepared* last() const { return prepared_.last(); }
  // The prepared call with this name, or null.
  [[gnu::noinline]] PreparedCalls::Prepared* find(const CallName& name, DataType type, ReduceOp op) noexcept;
  // Prepares a call that moves nothing.
  void keep_empty(const Call& call, const transport::Fingerprint& fingerprint) noexcept;

  // Whether the ranks compare the results of the call (operations_check.cc).
  [[nodiscard]] bool compares_results(const Call& call) const;
  // Whether there is no slow work before the wait for the call's peers: no check, no proof, no long schedule.
  [[nodiscard]] bool begins_at_once(const Call& call);
  // Starts to make the call's plan, or only the links that the transfers need; null: nothing needs to be made.
  // REQUIRES: begins_at_once().
  Result<std::unique_ptr<Plans::Making>> begin_plan(const Call& call);
  std::unique_ptr<Plans::Making> begin_links(std::span<const Transfer> transfers);
  // The bytes by which the plan is selected. REQUIRES: if the call has varying blocks, the last call of
  // begins_at_once() was for it.
  [[nodiscard]] std::size_t planned_bytes(const Call& call) const;
  // The bytes of the vector, of varying blocks those that this rank knows. REQUIRES: the last bind() was for the call,
  // or it moves nothing.
  [[nodiscard]] std::size_t measured_bytes(const Call& call) const {
    if (!has_data(call.collective)) return 0;
    return call.varying == nullptr ? vector_bytes(call) : varying_blocks_.bytes();
  }

 private:
  static constexpr int kMostRanksPlannedAtOnce = 256;

  [[nodiscard]] int rank() const { return epoch_.rank(); }
  [[nodiscard]] int ranks() const { return epoch_.ranks(); }
  [[nodiscard]] std::size_t vector_bytes(const Call& call) const {
    return call.count * element_bytes_of(call) * blocks_of(call.collective, ranks());
  }
  [[nodiscard]] Setting setting() const {
    return {static_cast<std::size_t>(rank()), static_cast<std::size_t>(ranks()), scratch_.memory()};
  }
  // Null: memory is missing.
  PreparedCalls::Prepared* take_slot(const Call& call, const transport::Fingerprint& fingerprint) noexcept;
  void prepare(PreparedCalls::Prepared* slot, const Call& call) noexcept;
  Result<const executor::Operation*> bind_varying(const Call& call, const transport::Fingerprint& fingerprint);
  Result<const executor::Plan*> plan_for(const Call& call, std::size_t bytes,
                                         const transport::Fingerprint& fingerprint);
  Status prepare_scratch(Call* call, std::size_t bytes, std::size_t input_bytes);
  Status reserve_scratch(std::size_t bytes);

  const Epoch& epoch_;
  CallHistory& history_;
  const bool own_buffers_;
  PreparedCalls prepared_;
  executor::Operation bound_;  // of a call that is not kept in prepared_
  VaryingBlocks varying_blocks_;
  Transfers transfers_;
  Scratch scratch_;
  std::byte barrier_token_{};
};

}  // namespace tutti::internal
