// Runs one operation by lanes: each lane works at its own step; a step moves as many bytes as the steps it depends on
// have passed (watermarks). Blocks are cut into slices, so that data in flight stays in the cache; at most kWindow
// slices are open at a time. Needs no buffer space: when nothing else moves, every transport progresses through its
// peer's actions alone.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "executor/operation.h"
#include "executor/step_marks.h"
#include "executor/steps.h"
#include "executor/waiter.h"

namespace tutti::internal::executor {

// Sizes that trade one kind of memory traffic for another, measured on two cores. Tests set them low.
struct CpuTuning {
  // For a rank whose share of the last-level cache is `last_level_bytes`; 0 if unknown.
  static CpuTuning of_cache(std::size_t last_level_bytes) {
    CpuTuning tuning;
    if (last_level_bytes != 0) tuning.streaming_bytes = std::max(last_level_bytes / 2, kLeastStreamingBytes);
    return tuning;
  }

  // Bytes that a receiving or local step handles at a time: input and output together stay well inside a level-2 cache.
  std::size_t piece_bytes = 64 * 1024;
  // From this vector size on, outputs are written past the cache, except in place. of_cache() uses half of the rank's
  // share of the last-level cache, of which the communicator's other ranks here have the same; ranks may differ,
  // because this affects only their own stores. Two ranks that share 32 MiB, time with over time without: 1.1 at 1 and
  // 2 MiB, 1.0 at 4 MiB, 0.5 (broadcast) to 0.85 (reduce) at 8 MiB, 0.5 (all-gather) to 0.8 (reduce-scatter) at 16 MiB.
  // With a larger cache: 1.15 at 16 MiB, 0.87 at 32 MiB; in place 1.3 at 32 and 64 MiB.
  std::size_t streaming_bytes = 32 * 1024 * 1024;
  // The minimum for small caches: four oversubscribed ranks took up to 1.2 times as long at 1 MiB.
  static constexpr std::size_t kLeastStreamingBytes = 4 * 1024 * 1024;
  // From this vector size on, results are put directly into the buffers that the peer advertises. Two ranks, time with
  // over time without: 0.4 at 32 KiB, 0.21 at 128 KiB, 0.6 at 1 MiB, 0.8 from 4 to 16 MiB. Four ranks on two
  // processors: no measurable difference.
  std::size_t direct_put_bytes = 32 * 1024;
  // advance() returns after about this many bytes, at least one: meanwhile other operations of the same driver wait,
  // and a short one needs three such turns. All-reduce of 8 bytes beside one of 256 MiB, two processes, both queued: 17
  // us in place of 20 by the median, and without others 3.8.
  std::size_t turn_bytes = 64 * 1024;
};

// Progress of an operation that is driven step by step.
enum class Progress { kIdle, kMoved, kDone };

// Used by one thread at a time.
class LaneRunner {
 public:
  // `waiter` outlives it.
  explicit LaneRunner(Waiter& waiter, const CpuTuning& tuning) : waiter_(waiter), tuning_(tuning) {}

  // For the next operation. Null: its steps are not kept.
  void set_step_log(observe::StepLog* log) { marks_.set_log(log); }
  // run(), or advance() until it is done, must follow; the operation outlives that.
  void begin(const Operation& op);
  // The same for an operation whose steps before `index` are done, with `done` bytes of that step. No message used zero
  // copy, and no buffers were advertised.
  void take_over(const Operation& op, std::uint32_t index, std::size_t done);
  // Runs to the end; waits.
  Status run();
  // Without waiting.
  Result<Progress> advance(std::int64_t now_ns);
  // Waiting::list(): the unfinished lanes at open slices.
  void list(std::vector<Waiting::For>* lanes) const;
  // Appends the lanes that send.
  void list_sends(std::vector<Waiting::For>* lanes) const {
    for (const Lane& lane : op_->plan->lanes) {
      if (lane.link != nullptr && lane.sends) lanes->push_back({lane.link, lane.peer, true, false});
    }
  }
  // Whether it has failed with a kMismatch that does not say what the peer calls differently.
  [[nodiscard]] bool unexplained() const { return unexplained_; }

 private:
  static constexpr std::uint32_t kWindow = 4;

  // One step in one slice.
  struct StepState {
    StepOffsets begin;
    std::size_t size = 0;
    std::size_t done = 0;  // bytes that this step has finished, except:
    // Of a send: bytes that the transport will not read again. Of other steps: the last of the done bytes, which may
    // still prove damaged (RecvLane::unproven).
    std::size_t marked = 0;
  };
  // The position of a lane.
  struct Cursor {
    std::uint32_t slice = 0;
    std::uint32_t position = 0;       // in Lane::steps
    std::uint32_t release_slice = 0;  // sends: the first step not yet released
    std::uint32_t release_position = 0;
    std::uint64_t released = 0;  // stream offset where that step began
    std::uint64_t opened = 0;    // receives: stream offset behind all steps of the slices opened so far
  };

  // The number of slices, which is the same on every rank.
  [[nodiscard]] static std::uint32_t count_slices(const Operation& op);
  // One look at the lanes, until `most` bytes have moved. kIdle: the caller waits for peers.
  Result<Progress> look(std::size_t most);
  // Whether any bytes moved; an error is in status_. kTraced: the steps are kept.
  template <bool kTraced>
  bool move_lanes(std::size_t most);
  bool open_slice(std::uint32_t slice);
  void open_states(std::uint32_t slice);
  template <class AnyLayout>
  void open_states(std::uint32_t slice, const AnyLayout& layout);
  void advertise_buffers(std::uint32_t slice);
  [[nodiscard]] bool waits_for_nobody(std::uint32_t index) const {
    const std::span<const Dependence> all = dependences_of(*op_->plan, index);
    return std::none_of(all.begin(), all.end(), [&](const Dependence& d) { return in_place_ || !d.in_place_only; });
  }
  void leave_slice(std::uint32_t slice) { --lanes_left_[slice % kWindow]; }
  // Moves everything that can move. Returns whether any did; an error is in status_.
  template <bool kTraced>
  bool advance_lane(std::uint32_t lane);
  bool work(std::uint32_t lane, std::uint32_t index, StepState& state);
  bool work_traced(std::uint32_t lane, std::uint32_t index, StepState& state);
  bool send_some(const Lane& lane, const schedule::Step& step, StepState& state, std::size_t limit);
  bool receive_some(const Lane& lane, std::uint32_t index, StepState& state, std::size_t limit);
  bool forward_some(const Lane& lane, std::uint32_t index, StepState& state, const transport::RecvLane::View& view,
                    std::size_t n, bool* moved);
  // Notes for the lane's step which of its bytes the lane has not proven.
  void note_unproven(const Lane& lane, std::uint32_t index, StepState& state);
  void stream_forward(const schedule::Step& step, const StepOffsets& at, std::span<std::byte> room,
                      const std::byte* received, bool stores) const;
  [[nodiscard]] bool forwards_in_slots(std::uint32_t index, std::size_t bytes) const;
  bool fused_reduce_some(const Lane& lane, std::uint32_t index, StepState& state, const transport::RecvLane::View& view,
                         std::size_t n);
  bool direct_put_some(const Lane& lane, std::uint32_t index, StepState& state, const transport::RecvLane::View& view,
                       std::size_t n);
  void direct_put_in_blocks(const schedule::Step& step, const StepOffsets& begin, std::span<std::byte> room,
                            const std::byte* received) const;
  bool local_some(const schedule::Step& step, StepState& state, std::size_t limit);
  // Whether any sends were released.
  bool release_sends(std::uint32_t lane);
  [[nodiscard]] std::size_t ready_limit(std::uint32_t index, const StepState& state) const;
  [[nodiscard]] std::size_t place_of(std::uint32_t slice, std::uint32_t index) const {
    return (slice % kWindow) * op_->plan->schedule.steps.size() + index;
  }
  [[nodiscard]] StepState& state_of(std::uint32_t slice, std::uint32_t index) {
    return states_[place_of(slice, index)];
  }
  bool fail(Status status) {
    status_ = std::move(status);
    return false;
  }
  [[nodiscard]] bool finished() const;
  Status mismatch(const schedule::Step& step, const transport::Fingerprint& theirs) {
    return mismatch_at(*op_, step, theirs, &unexplained_);
  }

  Waiter& waiter_;
  const CpuTuning tuning_;
  bool unexplained_ = false;

  const Operation* op_ = nullptr;
  std::vector<StepState> states_;          // kWindow x steps
  std::vector<Cursor> cursors_;            // per lane
  std::vector<std::uint32_t> lanes_left_;  // per slice in the window: lanes that have not finished it
  std::uint32_t slices_ = 1;
  std::size_t slice_elements_ = 0;   // of each block; with a table in bytes
  std::uint32_t open_slices_ = 0;    // slices [0, open_slices_) have been opened
  std::uint32_t current_slice_ = 0;  // of the current lane
  std::uint32_t next_lane_ = 0;      // first lane of the next look
  std::size_t bytes_left_ = 0;       // that this look may still move
  bool in_place_ = false;            // input and output are the same memory
  bool streaming_ = false;           // outputs are written past the cache
  bool direct_puts_ = false;         // peers may write results into this rank's output, and it into theirs
  bool combines_ = false;            // the operation reduces
  StepMarks marks_;
  Status status_;
};

}  // namespace tutti::internal::executor
