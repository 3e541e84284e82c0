// The executor for host memory. Two ways through the same steps:
//  - in order: steps whose bytes fit one piece of every lane and go by no zero copy. Steps run one after another, as
//    the schedule lists them, without any bookkeeping; a rank that has to wait for long goes on by lanes;
//  - by lanes: everything larger. Each lane works at its own step; a step moves as many bytes as the
//    steps it depends on have passed (watermarks). Blocks are cut into slices, so that what is in
//    flight stays in the cache; at most kWindow slices are open at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/copy.h"
#include "base/float_mode.h"
#include "executor/operation.h"
#include "executor/waiter.h"

namespace tutti::internal::executor {

// Sizes that trade one kind of memory traffic for another, as measured on two cores. Tests set them low.
struct CpuTuning {
  // For a rank that has so much of a last-level cache; 0: unknown.
  static CpuTuning of_cache(std::size_t last_level_bytes) {
    CpuTuning tuning;
    if (last_level_bytes != 0) tuning.streaming_bytes = std::max(last_level_bytes / 2, kLeastStreamingBytes);
    return tuning;
  }

  // How much a receiving or local step handles at a time: in and out together stay well inside a level-2 cache.
  std::size_t piece_bytes = 64 * 1024;
  // From this size of the vector on, outputs are written past the cache, except in place. of_cache() takes half of what
  // a rank has of the last-level cache, of which the communicator's other ranks here have as much; ranks may differ, as
  // this is about their own stores alone. Two ranks that share 32 MiB, time with over time without: 1.1 at 1 and 2
  // MiB, 1.0 at 4 MiB, 0.5 (broadcast) to 0.85 (reduce) at 8 MiB, 0.5 (all-gather) to 0.8 (reduce-scatter) at 16 MiB.
  // With a larger cache: 1.15 at 16 MiB, 0.87 at 32 MiB; in place 1.3 at 32 and 64 MiB.
  std::size_t streaming_bytes = 32 * 1024 * 1024;
  // At least, however small the cache: four ranks that take turns took up to 1.2 times as long at 1 MiB.
  static constexpr std::size_t kLeastStreamingBytes = 4 * 1024 * 1024;
  // From this size of the vector on, results are put directly into the buffers that the peer advertises. Two ranks,
  // time with over time without: 0.4 at 32 KiB, 0.21 at 128 KiB, 0.6 at 1 MiB, 0.8 from 4 to 16 MiB. Four ranks on two
  // processors: no difference that could be measured.
  std::size_t direct_put_bytes = 32 * 1024;
  // After how many bytes, at least one, advance() returns, a piece more or less: so long other operations of the same
  // driver wait for their turn, of which a short one takes three. All-reduce of 8 bytes beside one of 256 MiB, two
  // processes, both queued: 17 us in place of 20 by the median, and without others 3.8.
  std::size_t turn_bytes = 64 * 1024;
};

// How far an operation has come that is driven bit by bit.
enum class Progress { kIdle, kMoved, kDone };

// One per communicator, for one operation at a time. Used by one thread at a time, which moves and combines the bytes:
// run() drives the operation to its end and waits; or start(), and advance() until it is done, which never wait, by
// whoever drives several operations.
class CpuExecutor final : private Waiting {
 public:
  // `waiter` outlives it.
  explicit CpuExecutor(Waiter& waiter, const CpuTuning& tuning = {}) : waiter_(waiter), tuning_(tuning) {
    debug_check(tuning.turn_bytes > 0, "a turn moves at least a byte");
  }
  // Returns when this rank's part is complete and its buffers are free. After an error the links hold
  // half-finished streams: the communicator is failed. number: of the collectives that this rank has begun,
  // modulo 2^32, by which a peer that leaves is known to be missed. done: the steps of the in-order program that
  // run_short() has done already.
  Status run(const Operation& operation, std::uint32_t number, std::size_t done = 0);

  // *steps: the operation's in-order program, if all its messages are short ones of lanes that have lines; else
  // nothing. The operation stays where it is for as long as they are used; its buffers may change.
  static void short_steps(const Operation& operation, std::vector<ShortStep>* steps);
  // Runs it as far as there is room for its messages, and those of peers come while a peer is awaited that runs:
  // without a call but for what combines, without a look at anything else. `fingerprint` in place of the operation's.
  // Returns the number of steps done; if those are not all, run() goes on with the first of the others. REQUIRES:
  // kernels combine, if anything does.
  [[gnu::always_inline]] std::size_t run_short(const Operation& op, const transport::Fingerprint& fingerprint,
                                               std::span<const ShortStep> steps);

  // The same without waiting: the operation, which outlives its run, has begun, and kDone says that it is complete.
  // After an error of either of the two the operation is over, but for reclaim(), which comes before its buffers go
  // back to the caller.
  Result<Progress> start(const Operation& operation, std::uint32_t number);
  Result<Progress> advance(std::int64_t now_ns);
  static void revoke(const Operation& operation);
  // No peer touches the failed operation's buffers any more, which may take as long as peers do not run.
  static bool reclaimed(const Operation& operation);
  static void reclaim(const Operation& operation);
  // Whether run() has failed with a kMismatch that does not say what the peer calls differently.
  [[nodiscard]] bool unexplained() const { return unexplained_; }

 private:
  static constexpr std::uint32_t kWindow = 4;

  using Offsets = StepOffsets;
  struct StepBytes {
    Offsets at;
    std::size_t size = 0;
  };
  // The bytes of a step, of a whole operation or of a slice of it.
  static StepBytes locate(const schedule::Layout& layout, const schedule::Step& s) {
    const schedule::ByteRange r = layout.bytes(s.target_range());
    const bool elsewhere = s.source_chunk != s.target_chunk;
    return {{elsewhere ? layout.begin(s.source_chunk) : r.begin, r.begin}, r.size};
  }
  static StepBytes locate(const schedule::TableLayout& layout, const schedule::Step& s) {
    if (s.kind == schedule::StepKind::kSend) {
      const schedule::ByteRange r = layout.bytes(s.source, s.source_chunk);
      return {{r.begin, r.begin}, r.size};
    }
    const schedule::ByteRange r = layout.bytes(s.target, s.target_chunk);
    const bool has_source = schedule::reads_source(s.kind);
    return {{has_source ? layout.bytes(s.source, s.source_chunk).begin : r.begin, r.begin}, r.size};
  }
  // What a transport is told of the memory that holds a chunk.
  static const transport::Source& source_of(const Operation& op, schedule::Buffer buffer, std::uint32_t chunk) {
    const auto b = static_cast<std::size_t>(buffer);
    if (op.table == nullptr || op.table->sources[b] == nullptr) [[likely]]
      return op.buffers[b];
    return op.table->sources[b][chunk];
  }
  // What travels with the bytes of a step that sends or receives.
  static const transport::Fingerprint& fingerprint_of(const Operation& op, const schedule::Step& s) {
    if (op.table == nullptr) [[likely]]
      return op.fingerprint;
    const bool sends = s.kind == schedule::StepKind::kSend;
    const auto* const of_chunks = op.table->fingerprints[static_cast<std::size_t>(sends ? s.source : s.target)];
    return of_chunks == nullptr ? op.fingerprint : of_chunks[sends ? s.source_chunk : s.target_chunk];
  }
  // One step in one slice.
  struct StepState {
    Offsets begin;
    std::size_t size = 0;
    std::size_t done = 0;      // bytes this step has finished with, except:
    std::size_t released = 0;  // for a send, bytes that the transport will not read again
  };
  // Where a lane is.
  struct Cursor {
    std::uint32_t slice = 0;
    std::uint32_t position = 0;       // in Lane::steps
    std::uint32_t release_slice = 0;  // sends: the first step not yet released
    std::uint32_t release_position = 0;
    std::uint64_t released = 0;  // stream offset where that step began
    std::uint64_t opened = 0;    // receives: stream offset behind all steps of the slices opened so far
  };

  void list(std::vector<Waiting::For>* lanes) const override;
  // Whether an operation that cannot move waits, or leaves that to who drives it.
  enum class Waits : bool { kNo, kYes };
  template <Waits waits>
  [[gnu::always_inline]] Status begin(const Operation& op, std::uint32_t number, std::size_t done = 0);
  template <Waits waits>
  Status begin_large(const Operation& op, std::uint32_t number);

  // -- in order (cpu_executor.cc). What is under way afterwards goes on by lanes.
  template <Waits waits>
  Status run_in_order(const Operation& op, std::size_t done = 0);
  template <Waits waits>
  Status run_table_in_order(const Operation& op);
  template <Waits waits, class AnyLayout>
  [[gnu::always_inline]] Status run_in_order(const Operation& op, const AnyLayout& layout, std::size_t done);
  // Both end, without an error, after less than all of the step's bytes if they have to wait for long, or at all.
  template <Waits waits>
  [[gnu::always_inline]] Status send_all(const Operation& op, const InOrderStep& s, const Offsets& at,
                                         std::size_t bytes, std::size_t* sent);
  std::size_t run_short_in_default_mode(const Operation& op, const transport::Fingerprint& fingerprint,
                                        std::span<const ShortStep> steps);
  // What comes within so many looks, as a short message, without a call. False if it does not, or is anything else.
  // store(data): puts it where it belongs.
  template <class Store>
  [[gnu::always_inline]] static bool receive_short(transport::RecvLane& lane, const transport::Fingerprint& fingerprint,
                                                   std::size_t bytes, std::uint32_t looks, Store store);
  template <Waits waits>
  [[gnu::always_inline]] Status receive_all(const Operation& op, const InOrderStep& s, const Offsets& at,
                                            std::size_t bytes, std::size_t* received);
  void go_on_by_lanes(const Operation& op, std::uint32_t index, std::size_t done);

  // -- by lanes (cpu_executor_lanes.cc)
  // In how many slices every rank runs the operation.
  [[nodiscard]] static std::uint32_t count_slices(const Operation& op);
  void prepare(const Operation& op);
  Status run_by_lanes();
  // One look at the lanes, until so many bytes have been moved. Whether anything has moved; an error in status_.
  bool move_lanes(std::size_t most);
  bool open_slice(std::uint32_t slice);
  void open_states(std::uint32_t slice);
  template <class AnyLayout>
  void open_states(std::uint32_t slice, const AnyLayout& layout);
  void advertise_buffers(std::uint32_t slice);
  [[nodiscard]] bool waits_for_nobody(std::uint32_t index) const;
  void leave_slice(std::uint32_t slice) { --lanes_left_[slice % kWindow]; }
  [[nodiscard]] bool finished() const;
  // Moves what can move. Returns whether anything did; an error in status_.
  bool advance_lane(std::uint32_t lane);
  bool work(std::uint32_t lane, std::uint32_t index, StepState& state);
  bool send_some(const Lane& lane, const schedule::Step& step, StepState& state, std::size_t limit);
  bool receive_some(const Lane& lane, std::uint32_t index, StepState& state, std::size_t limit);
  bool forward_some(const Lane& lane, std::uint32_t index, StepState& state, const transport::RecvLane::View& view,
                    std::size_t n, bool* moved);
  void stream_forward(const schedule::Step& step, const Offsets& at, std::span<std::byte> room,
                      const std::byte* received, bool stores) const;
  [[nodiscard]] bool forwards_in_slots(std::uint32_t index, std::size_t bytes) const;
  bool fused_reduce_some(const Lane& lane, std::uint32_t index, StepState& state, const transport::RecvLane::View& view,
                         std::size_t n);
  bool direct_put_some(const Lane& lane, std::uint32_t index, StepState& state, const transport::RecvLane::View& view,
                       std::size_t n);
  void direct_put_in_blocks(const schedule::Step& step, const Offsets& begin, std::span<std::byte> room,
                            const std::byte* received) const;
  bool local_some(const schedule::Step& step, StepState& state, std::size_t limit);
  // Whether anything was released.
  bool release_sends(std::uint32_t lane);
  [[nodiscard]] std::size_t ready_limit(std::uint32_t index, const StepState& state) const;
  [[nodiscard]] StepState& state_of(std::uint32_t slice, std::uint32_t index) {
    return states_[(slice % kWindow) * op_->plan->schedule.steps.size() + index];
  }
  bool fail(Status status);

  // -- both (cpu_executor.cc)
  // The error of this rank and `peer`, which sent what is not of this operation.
  [[nodiscard]] Status mismatch(const Operation& op, const schedule::Step& step, const transport::Fingerprint& theirs);
  [[nodiscard]] static std::byte* target_at(const Operation& op, const schedule::Step& s, const Offsets& at) {
    return const_cast<std::byte*>(op.buffers[static_cast<int>(s.target)].base) + at.target;
  }
  [[nodiscard]] static const std::byte* source_at(const Operation& op, const schedule::Step& s, const Offsets& at) {
    return op.buffers[static_cast<int>(s.source)].base + at.source;
  }
  [[nodiscard]] static const std::byte* operand_at(const Operation& op, const schedule::Step& s, const Offsets& at) {
    return op.buffers[static_cast<int>(s.operand)].base + at.target;
  }
  // target = local (op) received, or the other way round where the step says so, and the division of an average where
  // it completes one. The kernels give the same either way.
  static void combine(const Operation& op, const schedule::Step& s, std::byte* target, const std::byte* local,
                      const std::byte* received, std::size_t bytes, bool streaming) {
    if (op.kernels == nullptr) [[unlikely]]
      return combine_by_user(op, s, target, local, received, bytes);
    const std::size_t count = op.elements(bytes);
    if (streaming) {
      op.kernels->combine_streaming(target, local, received, count);
    } else {
      op.kernels->combine(target, local, received, count);
    }
    if (s.final && op.divisor > 1) op.kernels->finish(target, count, op.divisor);
  }
  static void combine_by_user(const Operation& op, const schedule::Step& s, std::byte* target, const std::byte* local,
                              const std::byte* received, std::size_t bytes);
  static void store(const Operation& op, const schedule::Step& s, const Offsets& at, const std::byte* received,
                    std::size_t bytes, bool streaming) {
    std::byte* target = target_at(op, s, at);
    if (s.kind == schedule::StepKind::kRecvReduce) {
      // An average divides in place right after: then the target had better stay in the cache.
      combine(op, s, target, source_at(op, s, at), received, bytes, streaming && op.divisor == 0);
    } else if (target == received) {
      return;  // a direct put: the sender has written it there
    } else if (streaming) {
      copy_streaming(target, received, bytes);
    } else {
      copy_bytes(target, received, bytes);
    }
  }
  static void run_local(const Operation& op, const schedule::Step& s, const Offsets& at, std::size_t bytes,
                        bool streaming);

  Waiter& waiter_;
  const CpuTuning tuning_;
  bool unexplained_ = false;

  const InOrderStep* at_ = nullptr;  // run_in_order(): the step that waits; null when running by lanes

  // State of an operation that runs by lanes.
  bool under_way_ = false;
  const Operation* op_ = nullptr;
  std::vector<StepState> states_;          // kWindow x steps
  std::vector<Cursor> cursors_;            // per lane
  std::vector<std::uint32_t> lanes_left_;  // per slice in the window: lanes that have not finished it
  std::uint32_t slices_ = 1;
  std::size_t slice_elements_ = 0;   // of each block; with a table in bytes
  std::uint32_t open_slices_ = 0;    // slices [0, open_slices_) have been opened
  std::uint32_t current_slice_ = 0;  // of the lane at work
  std::uint32_t next_lane_ = 0;      // with which the next look begins
  std::size_t bytes_left_ = 0;       // that this look may move
  bool in_place_ = false;            // input and output are one memory
  bool streaming_ = false;           // outputs are written past the cache
  bool direct_puts_ = false;         // peers may write results into this rank's output, and it into theirs
  bool combines_ = false;            // the operation reduces
  Status status_;
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

inline std::size_t CpuExecutor::run_short(const Operation& op, const transport::Fingerprint& fingerprint,
                                          std::span<const ShortStep> steps) {
  std::size_t done = 0;
  for (const ShortStep& s : steps) {
    if (s.send != nullptr) {
      if (!s.send->push_short(fingerprint, *s.source + s.at.source, s.bytes)) [[unlikely]]
        return done;
    } else if (s.recv != nullptr) {
      // Here, where the peers' messages are on their way, and not behind the wait for one: there it would take 5 ns.
      if (s.combines && !FloatMode::current().is_default()) [[unlikely]]
        return done + run_short_in_default_mode(op, fingerprint, steps.subspan(done));
      const auto store = [&](const std::byte* data) {
        std::byte* const target = const_cast<std::byte*>(*s.target) + s.at.target;
        if (!s.combines) {
          transport::copy_short(target, data, s.bytes);
          return;
        }
        op.kernels->combine_in_default_mode(target, *s.source + s.at.source, data, s.elements);
        if (s.divides) op.kernels->finish(target, s.elements, op.divisor);
      };
      if (!receive_short(*s.recv, fingerprint, s.bytes, waiter_.hot_looks(), store)) [[unlikely]]
        return done;
    } else {
      run_local(op, *s.step, s.at, s.bytes, false);
    }
    ++done;
  }
  return done;
}

}  // namespace tutti::internal::executor
