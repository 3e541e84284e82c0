// The last calls of a communicator, prepared: bound to a plan, with their steps in schedule order located. A call that
// differs from a prepared one only in its buffers and its number needs no look-up, and no check except the comparison
// with the prepared one.
//
// Threads: the one that runs the communicator's operations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/collectives.h"
#include "calls/call.h"
#include "executor/cpu_executor.h"
#include "executor/operation.h"
#include "transport/transport.h"

namespace tutti::internal {

// A call in the program's terms. `types`: its datatype and operator as numbers of the C API.
struct CallName {
  std::uint64_t types = 0;
  std::size_t count = 0;
  Collective collective = Collective::kBarrier;
  int root = 0;
  [[nodiscard]] bool is(Collective other, std::uint64_t other_types, std::size_t other_count, int other_root) const {
    return types == other_types && count == other_count && collective == other && root == other_root;
  }
};

class PreparedCalls {
 public:
  struct Prepared {
    std::uint32_t word = 0;  // Fingerprint::call, without a plan
    int root = 0;
    std::size_t count = 0;
    executor::Operation operation;
    const executor::PlanIdentity* plan = nullptr;  // null: the call moves nothing, for any buffers
    executor::LocatedSteps located;
    // The steps of the fast path, and their number; empty and SIZE_MAX if the call cannot take it.
    std::span<const executor::LocatedStep> fast_steps;
    std::size_t fast_done = SIZE_MAX;
    CallName name;                   // of the last call that found it
    std::uint32_t planned_word = 0;  // Fingerprint::call, including that plan
    // The buffers that the operation is bound to. If regions are looked up for each call, these stay `this`, which
    // equals no buffer: the program may have freed the memory and registered other memory at the same address.
    const void* send = this;
    const void* recv = this;
    bool valid = false;
    bool has_buffers = false;
    bool looks_up = false;
    bool reads = false;     // this rank has an input
    bool writes = false;    // this rank has an output
    std::size_t apart = 0;  // minimum distance of the buffers, unless the call is in place
    // The offset of the output from the input in an in-place call; empty if the call cannot be in place.
    std::optional<std::ptrdiff_t> in_place;

    Prepared() = default;
    Prepared(const Prepared&) = delete;
    Prepared& operator=(const Prepared&) = delete;

    // Whether a valid call that needs no copy can have these buffers.
    [[nodiscard]] bool suits(const void* input, const void* output) const {
      const auto from = reinterpret_cast<std::uintptr_t>(input);
      const auto to = reinterpret_cast<std::uintptr_t>(output);
      const std::size_t distance = from > to ? from - to : to - from;
      return (from != 0 || !reads) && (to != 0 || !writes) &&
             (distance >= apart || (in_place && to - from == static_cast<std::uintptr_t>(*in_place)));
    }
    // REQUIRES: suits(input, output).
    void set_buffers(const void* input, void* output) {
      if (!has_buffers) return;
      if (looks_up) return look_up(input, output);
      send = input;
      recv = output;
      set_base(&operation.buffers[0], input);
      set_base(&operation.buffers[1], output);
    }

    void leave_fast_path() {
      fast_steps = {};
      fast_done = SIZE_MAX;
    }

    // From now on find() finds it. If memory is missing, the operation is unchanged and not found. REQUIRES: the
    // operation is bound to the call and its buffers.
    void prepare(const Call& call, int rank, int ranks) {
      executor::CpuExecutor::locate(operation, &located);
      operation.located = &located;
      fast_steps = located.steps;
      fast_done = located.steps.size();
      if (!located.all_short) leave_fast_path();
      plan = &operation.plan->identity;
      planned_word = executor::with_plan({.call = word}, plan->hash).call;
      const CollectiveInfo& info = info_of(call.collective);
      has_buffers = has_data(call.collective);
      looks_up = has_buffers && operation.bytes >= kLookUpBytes;
      reads = has_buffers && has_any(info.input, rank, call.root);
      writes = has_buffers && has_any(info.output, rank, call.root);
      apart = reads && writes ? operation.bytes : 0;
      in_place.reset();
      if (input_is_output(call.collective)) {
        in_place = in_place_offset(call.collective, operation.bytes / blocks_of(call.collective, ranks), rank);
      }
      valid = true;
    }

   private:
    static void set_base(transport::Source* source, const void* base) {
      source->base = reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(base) - source->begin);
    }
    [[gnu::noinline]] void look_up(const void* input, const void* output) {
      transport::Source* const buffers = operation.buffers;
      buffers[0] = bind_buffer(input, buffers[0].size - buffers[0].begin, buffers[0].begin);
      buffers[1] = bind_buffer(output, buffers[1].size - buffers[1].begin, buffers[1].begin);
    }
  };

  // Whether calls of this kind can be prepared: the fingerprint and the count describe them fully, and the operation
  // uses their buffers directly. This includes a part of a call: its count is the part's, and each call brings its own
  // fingerprint, which has the count of the whole.
  [[nodiscard]] static bool keeps(const Call& call, const transport::Fingerprint& fingerprint) {
    return call.custom == nullptr && call.type != DataType::kOpaque && !call.barrier_only && call.varying == nullptr &&
           !executor::is_check(fingerprint) && !needs_copy(call);
  }

  // The argument of the last set_last(). Null: no longer valid, or none.
  [[nodiscard]] Prepared* last() const { return last_; }
  void set_last(Prepared* prepared, const CallName& name) {
    prepared->name = name;
    last_ = prepared;
  }
  // Null if there was no such call lately. `word`: the value of executor::call_word(), for any arguments.
  [[nodiscard]] Prepared* find(std::uint32_t word, int root, std::size_t count) {
    Prepared* const prepared = kept_at(word, root, count).get();
    if (prepared == nullptr) return nullptr;
    const bool same = word == prepared->word && count == prepared->count && root == prepared->root;
    return same && prepared->valid ? prepared : nullptr;
  }
  // A slot for a call of keeps(), which replaces an earlier one. The caller sets the operation and then calls
  // prepare(), after which find() finds it. The slot is valid until the next call here.
  Prepared& take_slot(const Call& call, const transport::Fingerprint& fingerprint) {
    std::unique_ptr<Prepared>& kept = kept_at(fingerprint.call, call.root, call.count);
    if (kept == nullptr) kept = std::make_unique<Prepared>();
    kept->valid = false;
    kept->word = fingerprint.call;
    kept->count = call.count;
    kept->root = call.root;
    kept->send = kept->recv = kept.get();
    last_ = nullptr;
    return *kept;
  }
  // A call that moves nothing.
  void keep_empty(const Call& call, const transport::Fingerprint& fingerprint) {
    Prepared& prepared = take_slot(call, fingerprint);
    prepared.plan = nullptr;
    prepared.fast_steps = {};
    prepared.fast_done = 0;
    prepared.reads = prepared.writes = prepared.has_buffers = false;
    prepared.apart = 0;
    prepared.valid = true;
  }
  // The objects that the operations refer to no longer exist.
  void forget() {
    last_ = nullptr;
    for (const std::unique_ptr<Prepared>& prepared : calls_) {
      if (prepared != nullptr) prepared->valid = false;
    }
  }

 private:
  static constexpr unsigned kCallBits = 4;

  std::unique_ptr<Prepared>& kept_at(std::uint32_t word, int root, std::size_t count) {
    const std::uint32_t all = word ^ static_cast<std::uint32_t>(count) ^ (static_cast<std::uint32_t>(root) << 24);
    return calls_[(all * 0x9E3779B1u) >> (32 - kCallBits)];  // 2^32 / golden ratio
  }

  // Allocated at first use: programs have thousands of communicators, most of which make few kinds of calls.
  std::array<std::unique_ptr<Prepared>, std::size_t{1} << kCallBits> calls_;
  Prepared* last_ = nullptr;
};

}  // namespace tutti::internal
