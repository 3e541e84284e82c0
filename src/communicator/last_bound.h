// The last calls of a communicator as they were bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/collectives.h"
#include "calls/call.h"
#include "executor/fingerprint.h"
#include "executor/operation.h"
#include "transport/transport.h"

namespace tutti::internal {

// A call as the program has named it: `types`, its datatype and operator, in numbers of the program's own.
struct CallName {
  std::uint64_t types = 0;
  std::size_t count = 0;
  Collective collective = Collective::kBarrier;
  int root = 0;
  [[nodiscard]] bool is(Collective other, std::uint64_t other_types, std::size_t other_count, int other_root) const {
    return types == other_types && count == other_count && collective == other && root == other_root;
  }
};

// The last calls of few bytes as they were bound. Programs repeat themselves: where only the buffers and the number of
// the operation are new, nothing else needs to be found out again. Calls that alternate mostly have places of their
// own.
class LastBound {
 public:
  // A call, and how it was bound. What it says of buffers holds for others of that call as well.
  struct BoundCall {
    std::uint32_t word = 0;  // Fingerprint::call, without a plan
    int root = 0;
    std::size_t count = 0;
    executor::Operation operation;
    bool has_buffers = false;
    // Those that the operation has been given; until then none that a call could have.
    const void* send = this;
    const void* recv = this;
    // For who takes the short way, from the first repetition on.
    bool resolved = false;
    CallName name;
    const executor::PlanIdentity* plan = nullptr;
    std::uint32_t planned_word = 0;          // Fingerprint::call, of that plan
    std::vector<executor::ShortStep> steps;  // none: there is no short way
    bool empty = false;                      // nothing is moved, whatever the buffers: there is no operation
    // Where the output begins relative to the input when both are one memory; there is none if they may not be.
    std::optional<std::ptrdiff_t> in_place;
    bool reads = false;     // there is an input on this rank
    bool writes = false;    // an output
    std::size_t apart = 0;  // how far apart the buffers are at least, if they are not one

    // Whether these are buffers of a valid call that needs no copy.
    [[nodiscard]] bool suits(const void* input, const void* output) const {
      const auto from = reinterpret_cast<std::uintptr_t>(input);
      const auto to = reinterpret_cast<std::uintptr_t>(output);
      const std::size_t distance = from > to ? from - to : to - from;
      return (from != 0 || !reads) && (to != 0 || !writes) &&
             (distance >= apart || (in_place && to - from == static_cast<std::uintptr_t>(*in_place)));
    }
    // REQUIRES: they suit.
    void set_buffers(const void* input, void* output) {
      send = input;
      recv = output;
      if (!has_buffers) return;
      set_base(&operation.buffers[0], input);
      set_base(&operation.buffers[1], output);
    }
  };

  // The same but for its buffers, which the operation then has; null if there was none lately. `fingerprint`: of no
  // plan yet.
  [[nodiscard]] const executor::Operation* repeat(const Call& call, const transport::Fingerprint& fingerprint) {
    // Not by the call's own bytes: they have just been written one by one, and read together they would be waited for.
    BoundCall* const bound = find(fingerprint.call, call.root, call.count);
    if (bound == nullptr || needs_copy(call)) [[unlikely]]
      return nullptr;
    executor::Operation& operation = bound->operation;
    operation.fingerprint = executor::with_plan(fingerprint, operation.plan->identity.hash);
    bound->set_buffers(call.send, call.recv);
    return &operation;
  }
  // The one that set_last() has named. Null: none any more.
  [[nodiscard]] BoundCall* last() const { return last_; }
  // REQUIRES: it is resolved.
  void set_last(BoundCall* bound, const CallName& name) {
    bound->name = name;
    last_ = bound;
  }
  // Null if there was none lately. `word`: as executor::call_word() gives it, of any arguments.
  [[nodiscard]] BoundCall* find(std::uint32_t word, int root, std::size_t count) {
    BoundCall* const bound = kept_at(word, root, count).get();
    if (bound == nullptr) return nullptr;
    const bool same = word == bound->word && count == bound->count && root == bound->root;
    return same && (bound->operation.plan != nullptr || bound->empty) ? bound : nullptr;
  }
  const executor::Operation& keep(const Call& call, const transport::Fingerprint& fingerprint,
                                  const executor::Operation& operation) {
    BoundCall& bound = name_call(call, fingerprint);
    bound.has_buffers = has_data(call.collective);
    bound.send = bound.recv = &bound;
    return bound.operation = operation;
  }
  // A call that moves nothing.
  void keep_empty(const Call& call, const transport::Fingerprint& fingerprint) {
    BoundCall& bound = name_call(call, fingerprint);
    bound.operation.plan = nullptr;
    bound.steps.clear();
    bound.empty = bound.resolved = true;
  }
  // What the operations refer to is no longer so.
  void forget() {
    last_ = nullptr;
    for (const std::unique_ptr<BoundCall>& bound : calls_) {
      if (bound != nullptr) bound->operation.plan = nullptr;
    }
  }

 private:
  BoundCall& name_call(const Call& call, const transport::Fingerprint& fingerprint) {
    std::unique_ptr<BoundCall>& kept = kept_at(fingerprint.call, call.root, call.count);
    if (kept == nullptr) kept = std::make_unique<BoundCall>();
    kept->word = fingerprint.call;
    kept->count = call.count;
    kept->root = call.root;
    kept->resolved = kept->empty = false;
    last_ = nullptr;
    return *kept;
  }
  static constexpr unsigned kCallBits = 4;

  static void set_base(transport::Source* source, const void* base) {
    source->base = reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(base) - source->begin);
  }
  std::unique_ptr<BoundCall>& kept_at(std::uint32_t word, int root, std::size_t count) {
    const std::uint32_t all = word ^ static_cast<std::uint32_t>(count) ^ (static_cast<std::uint32_t>(root) << 24);
    return calls_[(all * 0x9E3779B1u) >> (32 - kCallBits)];  // 2^32 / golden ratio
  }

  // Made when first used: programs have thousands of communicators, of which most make few kinds of calls.
  std::array<std::unique_ptr<BoundCall>, std::size_t{1} << kCallBits> calls_;
  BoundCall* last_ = nullptr;
};

}  // namespace tutti::internal
