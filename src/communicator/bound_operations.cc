#include "communicator/bound_operations.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/collectives.h"
#include "executor/cpu_executor.h"

namespace tutti::internal {
namespace {

Demand demand_of(const Call& call) {
  if (call.op == ReduceOp::kSplit) return Demand::kFewPeers;
  return order_of(call) == schedule::Order::kRanks ? Demand::kRankOrder : Demand::kNone;
}

// The collectives whose result is the same on all ranks.
constexpr std::uint32_t kAlike = collectives_that([](const CollectiveInfo& info) {
  const bool of_all =
      info.origin == Origin::kAllCombined || info.origin == Origin::kRoot || info.origin == Origin::kOwner;
  return info.has_data && info.output == Holds::kVector && of_all;
});

// The operation of a call that is only a barrier.
const Call& barrier_call() {
  static const Call barrier{.collective = Collective::kBarrier, .count = 1};
  return barrier;
}

}  // namespace

BoundOperations::BoundOperations(const Epoch& epoch, CallHistory& history, bool own_buffers)
    : epoch_(epoch), history_(history), own_buffers_(own_buffers), transfers_(epoch.rank(), epoch.ranks()) {}

Result<const executor::Operation*> BoundOperations::bind(const Call& call, const transport::Fingerprint& fingerprint) {
  if (call.varying != nullptr) return bind_varying(call, fingerprint);
  const bool keeps = PreparedCalls::keeps(call, fingerprint) && !epoch_.settings().strict && !compares_results(call);
  if (keeps) {
    PreparedCalls::Prepared* const prepared = prepared_.find(fingerprint.call, call.root, call.count);
    if (prepared != nullptr && prepared->plan != nullptr) [[likely]] {
      prepared->set_buffers(call.send, call.recv);
      prepared->operation.fingerprint = executor::with_plan(fingerprint, prepared->plan->hash);
      history_.set_plan(*prepared->plan);
      return &prepared->operation;
    }
  }
  Call bound = call.barrier_only ? barrier_call() : call;
  const std::size_t bytes = vector_bytes(bound);
  if (!has_data(bound.collective)) {
    // One byte of all-reduce: no rank has the result before every rank has contributed.
    bound.send = bound.recv = &barrier_token_;
  } else if (bytes == 0) {
    return nullptr;
  }
  auto plan = plan_for(bound, bytes, fingerprint);
  if (!plan.is_ok()) [[unlikely]]
    return plan.status();
  if (Status s = prepare_scratch(&bound, scratch_bytes(bound, **plan), bytes); !s.is_ok()) [[unlikely]]
    return s;
  PreparedCalls::Prepared* const slot = keeps ? take_slot(call, fingerprint) : nullptr;
  executor::Operation& operation = slot != nullptr ? slot->operation : bound_;
  operation = bind_call(bound, **plan, executor::with_plan(fingerprint, (*plan)->identity.hash), bytes, setting());
  if (slot != nullptr) prepare(slot, call);
  return &operation;
}

// Without memory for a slot, each such call is bound anew.
PreparedCalls::Prepared* BoundOperations::take_slot(const Call& call,
                                                    const transport::Fingerprint& fingerprint) noexcept {
  try {
    return &prepared_.take_slot(call, fingerprint);
  } catch (...) {
    return nullptr;
  }
}

void BoundOperations::prepare(PreparedCalls::Prepared* slot, const Call& call) noexcept {
  try {
    slot->prepare(call, rank(), ranks());
    // Each call then ends in Operations::go_on_repeated(), which measures it. So the fast path has no branch for this.
    if (history_.ring().records()) slot->fast_done = SIZE_MAX;
    // The fast path notes the begin while messages are on their way already.
    if (history_.ring().traces() || history_.ring().has_ranges()) slot->leave_fast_path();
  } catch (...) {
    // As above.
  }
}

void BoundOperations::keep_empty(const Call& call, const transport::Fingerprint& fingerprint) noexcept {
  // The other calls carry a number of the program's that the name does not include.
  if (call.custom != nullptr || call.type == DataType::kOpaque || call.whole_count != 0) return;
  try {
    prepared_.keep_empty(call, fingerprint);
  } catch (...) {
    // Without memory for it, each such call is bound anew.
  }
}

PreparedCalls::Prepared* BoundOperations::find(const CallName& name, DataType type, ReduceOp op) noexcept {
  if (own_buffers_) return nullptr;
  PreparedCalls::Prepared* const found =
      prepared_.find(executor::call_word(name.collective, type, op), name.root, name.count);
  if (found != nullptr) prepared_.set_last(found, name);
  return found;
}

Result<const executor::Operation*> BoundOperations::bind(const Coalesced& coalesced,
                                                         const transport::Fingerprint& fingerprint,
                                                         std::byte** memory) {
  const executor::Plan& plan = coalesced.plan();
  constexpr std::size_t kLineMask = 63;
  const std::size_t before = (scratch_bytes(coalesced.one(nullptr), plan) + kLineMask) & ~kLineMask;
  if (Status s = reserve_scratch(before + coalesced.packed_bytes()); !s.is_ok()) return s;
  *memory = scratch_.memory() + before;
  coalesced.pack(*memory);
  const std::uint64_t count =
      executor::count_with_element_bytes(coalesced.calls().front().opaque, coalesced.hash_of_counts());
  bound_ = bind_call(coalesced.one(*memory), plan,
                     executor::with_plan(executor::fingerprint_of_group(fingerprint, count), plan.identity.hash),
                     coalesced.bytes(), setting());
  return &bound_;
}

Result<const executor::Operation*> BoundOperations::bind_varying(const Call& call,
                                                                 const transport::Fingerprint& fingerprint) {
  VaryingBlocks& blocks = varying_blocks_;
  blocks.lay_out(call, ranks(), rank());
  if (counts_are_common(call.collective) && blocks.bytes() == 0) return nullptr;
  auto plan = plan_for(call, planned_bytes(call), fingerprint);
  if (!plan.is_ok()) return plan.status();
  Call bound = call;
  const std::size_t copied = blocks.extent(schedule::Buffer::kInput);
  if (Status s = prepare_scratch(&bound, scratch_bytes(blocks, **plan), copied); !s.is_ok()) return s;
  bound_ = bind_call(bound, **plan, executor::with_plan(fingerprint, (*plan)->identity.hash), blocks, setting());
  return &bound_;
}

std::size_t BoundOperations::planned_bytes(const Call& call) const {
  if (call.varying == nullptr) return vector_bytes(call);
  // If ranks do not know each other's counts, they must not choose by them, nor skip a call without elements.
  return counts_are_common(call.collective) ? varying_blocks_.bytes() : static_cast<std::size_t>(ranks());
}

// User-defined operators need not give the same bits for both orders of their operands.
bool BoundOperations::compares_results(const Call& call) const {
  if (!epoch_.settings().checksum || ranks() == 1) return false;
  return is_among(kAlike, call.collective) && !call.barrier_only && call.op != ReduceOp::kSplit &&
         user_of(call) == nullptr;
}

bool BoundOperations::begins_at_once(const Call& call) {
  if ((epoch_.settings().strict && ranks() > 1) || compares_results(call)) return false;
  if (call.barrier_only) return begins_at_once(barrier_call());
  if (call.varying != nullptr) varying_blocks_.lay_out(call, ranks(), rank());
  const std::size_t bytes = planned_bytes(call);
  if (has_data(call.collective) && bytes == 0) return true;
  return epoch_.plans().find(call.collective, call.root, bytes, demand_of(call)) != nullptr ||
         (ranks() <= kMostRanksPlannedAtOnce &&
          !epoch_.plans().takes_long(call.collective, call.root, bytes, demand_of(call)));
}

Result<std::unique_ptr<Plans::Making>> BoundOperations::begin_plan(const Call& call) {
  if (call.barrier_only) return begin_plan(barrier_call());
  const std::size_t bytes = planned_bytes(call);
  if (has_data(call.collective) && bytes == 0) return std::unique_ptr<Plans::Making>();
  const Demand demand = demand_of(call);
  if (epoch_.plans().find(call.collective, call.root, bytes, demand) != nullptr)
    return std::unique_ptr<Plans::Making>();
  return epoch_.plans().begin(call.collective, call.root, bytes, &history_, demand);
}

std::unique_ptr<Plans::Making> BoundOperations::begin_links(std::span<const Transfer> transfers) {
  std::vector<int> peers;
  for (const Transfer& t : transfers) {
    if (!epoch_.plans().is_connected(t.peer)) peers.push_back(t.peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return epoch_.plans().begin_links(std::move(peers));
}

// `bytes`: of the whole vector, all blocks together.
Result<const executor::Plan*> BoundOperations::plan_for(const Call& call, std::size_t bytes,
                                                        const transport::Fingerprint& fingerprint) {
  // The check before a call is not part of the history.
  const bool check = executor::is_check(fingerprint);
  const Demand demand = demand_of(call);
  const executor::Plan* plan = epoch_.plans().find(call.collective, call.root, bytes, demand);
  if (plan == nullptr) [[unlikely]] {
    auto made = epoch_.plans().make(call.collective, call.root, bytes, check ? nullptr : &history_, demand);
    if (!made.is_ok()) return made.status();
    plan = *made;
  }
  if (!check) [[likely]]
    history_.set_plan(plan->identity);
  return plan;
}

// Reserves `bytes` for the schedule. If the call needs a copy of its input, also reserves `input_bytes` behind them,
// copies the input there, and makes the call read the copy.
Status BoundOperations::prepare_scratch(Call* call, std::size_t bytes, std::size_t input_bytes) {
  const bool copies = needs_copy(*call);
  if (Status s = reserve_scratch(bytes + (copies ? input_bytes : 0)); !s.is_ok()) return s;
  if (copies) [[unlikely]] {
    std::byte* const copy = scratch_.memory() + bytes;
    copy_input(*call, copy, input_bytes);
    call->send = copy;
  }
  return {};
}

Status BoundOperations::reserve_scratch(std::size_t bytes) {
  if (bytes <= scratch_.bytes()) [[likely]]
    return {};
  prepared_.forget();
  return scratch_.grow(bytes);
}

}  // namespace tutti::internal
