// The executor for host memory. It runs the same steps in one of two ways:
//  - in order: for steps whose bytes fit one piece of every lane and use no zero copy. Steps run one after another, as
//    the schedule lists them, without any bookkeeping; a rank that has to wait for long continues by lanes;
//  - by lanes: for everything larger (lane_runner.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/float_mode.h"
#include "executor/lane_runner.h"
#include "executor/operation.h"
#include "executor/steps.h"
#include "executor/waiter.h"

namespace tutti::internal::executor {

// One per communicator, for one operation at a time. Used by one thread at a time, which moves and combines the bytes.
// Either run() drives the operation to its end and waits; or a thread that drives several operations calls start(), and
// then advance() until it is done, which never wait.
class CpuExecutor final : private Waiting {
 public:
  // `waiter` outlives it.
  explicit CpuExecutor(Waiter& waiter, const CpuTuning& tuning = {}) : waiter_(waiter), lanes_(waiter, tuning) {
    debug_check(tuning.turn_bytes > 0, "a turn moves at least a byte");
  }
  // Returns when this rank's part is complete and its buffers are free. After an error the links contain half-finished
  // streams: the communicator is failed. number: of the collectives that this rank has begun, modulo 2^32; it tells
  // whether a peer that leaves is still needed. done: how many of the located steps run_short() has done already.
  Status run(const Operation& operation, std::uint32_t number, std::size_t done = 0);

  // Locates the steps of an operation that always runs in schedule order; for others, no steps. The operation must not
  // move while they are used; its buffers may change. If it has a table and its steps are located already, only their
  // offsets and sizes are updated.
  static void locate(const Operation& operation, LocatedSteps* located);
  // The fast path. Runs steps as long as there is room for their messages and the peers' messages arrive within the
  // number of looks that a running peer needs. Calls nothing but kernels. `fingerprint` replaces the operation's.
  // Returns the number of steps done; if some are left, run() continues with the first of them. begun(): called once if
  // all are done; before the first wait, so that messages of this rank are on their way. REQUIRES: all_short.
  template <class Begun>
  [[gnu::always_inline]] std::size_t run_short(const Operation& op, const transport::Fingerprint& fingerprint,
                                               std::span<const LocatedStep> steps, Begun begun);

  // The same without waiting. The operation must outlive its run; kDone: it is complete. After an error of start() or
  // advance() the operation is over, but its buffers go back to the caller only after reclaim().
  Result<Progress> start(const Operation& operation, std::uint32_t number);
  Result<Progress> advance(std::int64_t now_ns);
  static void revoke(const Operation& operation);
  // Whether no peer touches the failed operation's buffers any more. That may take as long as a peer is stopped.
  static bool reclaimed(const Operation& operation);
  static void reclaim(const Operation& operation);
  // Where the steps of each operation are kept, which outlives this. Null: nowhere.
  void set_step_log(observe::StepLog* log) { all_steps_ = log; }
  // Whether run() has failed with a kMismatch that does not say what the peer calls differently.
  [[nodiscard]] bool unexplained() const { return unexplained_ || lanes_.unexplained(); }

 private:
  void list(std::vector<Waiting::For>* lanes) const override;
  void list_sends(std::vector<Waiting::For>* lanes) const override;
  Status begin(const Operation& op, std::uint32_t number, std::size_t done);
  void begin_log(const Operation& op, std::uint32_t number);
  // Whether an operation of more than Plan::small_bytes runs in schedule order. If so, prepares the links.
  bool begin_large(const Operation& op, std::uint32_t number);

  // -- in order (cpu_executor.cc). The steps that are left continue by lanes.
  // Begins with step `done`. located: null if the steps are not located yet. kTraced: the steps are kept.
  template <bool kTraced = false>
  Status run_in_order(const Operation& op, const LocatedSteps* located, std::size_t done);
  // Both return before all bytes of the step have moved, without an error, if they would have to wait for long, or at
  // all if the driver waits.
  [[gnu::always_inline]] Status send_all(const Operation& op, const LocatedStep& s, std::size_t* sent);
  [[gnu::always_inline]] Status receive_all(const Operation& op, const LocatedStep& s, std::size_t* received);
  std::size_t run_short_in_default_mode(const Operation& op, const transport::Fingerprint& fingerprint,
                                        std::span<const LocatedStep> steps);
  // Receives a short message that arrives within this number of looks, without a call. False if it does not arrive, or
  // is another message. store(data) stores it.
  template <class Store>
  [[gnu::always_inline]] static bool receive_short(transport::RecvLane& lane, const transport::Fingerprint& fingerprint,
                                                   std::size_t bytes, std::uint32_t looks, Store store);

  Status mismatch(const Operation& op, const schedule::Step& step, const transport::Fingerprint& theirs) {
    return mismatch_at(op, step, theirs, &unexplained_);
  }

  Waiter& waiter_;
  LaneRunner lanes_;
  LocatedSteps located_;             // of an operation without its own
  const LocatedStep* at_ = nullptr;  // in run_in_order(): the waiting step; null when running by lanes
  bool waits_ = false;               // if nothing moves; otherwise the driver of several operations waits
  bool by_lanes_ = false;            // the current operation runs by lanes
  bool unexplained_ = false;
  observe::StepLog* all_steps_ = nullptr;
  observe::StepLog* steps_ = nullptr;  // of the current operation; null: they are not kept
};

template <class Store>
inline bool CpuExecutor::receive_short(transport::RecvLane& lane, const transport::Fingerprint& fingerprint,
                                       std::size_t bytes, std::uint32_t looks, Store store) {
  for (; !lane.line_arrived(); Waiter::between_looks()) {
    if (--looks == 0) return false;
  }
  const std::byte* const data = lane.peek_short(fingerprint, bytes);
  if (data == nullptr) [[unlikely]]
    return false;
  store(data);
  lane.consume_short(bytes);
  return true;
}

template <class Begun>
inline std::size_t CpuExecutor::run_short(const Operation& op, const transport::Fingerprint& fingerprint,
                                          std::span<const LocatedStep> steps, Begun begun) {
  std::size_t done = 0;
  bool waited = false;
  for (const LocatedStep& s : steps) {
    if (s.send != nullptr) {
      if (!s.send->push_short(fingerprint, s.source->base + s.at.source, s.bytes)) [[unlikely]]
        return done;
    } else if (s.recv != nullptr) {
      if (!waited) begun();
      waited = true;
      // Checked here, while the peers' messages are in flight, and not after the wait for one: there it would take 5
      // ns.
      if (s.combines && !FloatMode::current().is_default()) [[unlikely]]
        return done + run_short_in_default_mode(op, fingerprint, steps.subspan(done));
      const auto store = [&](const std::byte* data) {
        std::byte* const target = const_cast<std::byte*>(s.target->base) + s.at.target;
        if (!s.combines) {
          transport::copy_short(target, data, s.bytes);
          return;
        }
        op.kernels->combine_in_default_mode(target, s.source->base + s.at.source, data, s.elements);
        if (s.divides) op.kernels->finish(target, s.elements, op.divisor);
      };
      if (!receive_short(*s.recv, fingerprint, s.bytes, waiter_.hot_looks(), store)) [[unlikely]]
        return done;
    } else {
      run_local(op, s.step->step, s.at, s.bytes, false);
    }
    ++done;
  }
  if (!waited) begun();
  return done;
}

}  // namespace tutti::internal::executor
