// Writes one rank's schedule. A generator describes the data movement, as a textbook does; the Builder finds
//  - the buffer with the current value of each chunk of the vector: the input until the first write, then the output
//    if the rank keeps the chunk, else the scratch chunk of the same number; so an out-of-place call copies nothing
//    first;
//  - the dependencies, as a processor's scoreboard does: the last step that wrote a chunk, and the steps that still
//    read it.
//
// Invariants of the result: a dependency's index is lower than its dependent's; steps that receive from
// one peer, and local steps, run in order and are not listed as dependencies of each other; at finish()
// every chunk that the collective owes this rank lies in the output.
//
// A copy from input to output does nothing in an in-place call, and out of place it conflicts with no reader of the
// input. So it waits for no step.
//
// Order of operands: the generator says whether a scratch value comes before or after the current value. For a received
// value and the rank's own value, the lower rank's value comes first. An algorithm that keeps the order of ranks needs
// this, because each of the two values is a combination of consecutive ranks that includes its owner. The verifier
// proves whether an algorithm keeps the order.
//
// If the textbook's values are not those of one vector, the generator names buffers (send_from, recv_into, ...). The
// Builder still finds the dependencies, but does not track values.
//
// Memory and time are proportional to the chunks that the rank touches, and to those of its output.
//
// Not thread-safe. Misuse by a generator (a chunk without a value, a peer out of range) is a defect in
// the generator: it is recorded, and finish() returns it.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/flat_map.h"
#include "base/status.h"
#include "schedule/schedule.h"

namespace tutti::internal::schedule {

// Whether a combination completes the reduction over all ranks of the collective (not of a sub-group).
enum class Completes : bool { kNo = false, kYes = true };
// Whether the scratch value is the earlier or the later operand of a combination with the current value.
enum class ScratchComes : bool { kFirst = false, kLast = true };

class Builder {
 public:
  Builder(const Shape& shape, std::int32_t rank);

  [[nodiscard]] std::int32_t rank() const { return rank_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }

  // Sends the current values of c.
  void send(std::int32_t peer, ChunkRange c);
  // Replaces the values of c by those that the peer sends.
  void recv(std::int32_t peer, ChunkRange c);
  // Replaces the values of c by (value of c) op (the peer's value), that of the lower rank first.
  void recv_reduce(std::int32_t peer, ChunkRange c, Completes completes = Completes::kNo);

  // Copies the values of c that are in the input and owed to the output now instead of at finish(), so that a later
  // send of c and its neighbours is one message.
  void copy_to_output(ChunkRange c);

  // A second value of the same chunks, beside the current one, for algorithms that accumulate in a fixed order before
  // their own value is added: receive into scratch, combine into scratch (after the present value), then combine the
  // scratch with the current value: value of c becomes (scratch of c) op (value of c), or the other way round.
  // REQUIRES: c is kept in the output.
  void recv_to_scratch(std::int32_t peer, ChunkRange c);
  void recv_reduce_to_scratch(std::int32_t peer, ChunkRange c);
  void reduce_from_scratch(ChunkRange c, ScratchComes comes, Completes completes = Completes::kNo);

  // By buffer: chunks of a buffer, with any value. Then the steps themselves must write the output: finish() copies
  // only values that the functions above track.
  struct At {
    Buffer buffer = Buffer::kInput;
    std::uint32_t chunk = 0;
  };
  void send_from(std::int32_t peer, At source, std::uint32_t chunks);
  void recv_into(std::int32_t peer, At target, std::uint32_t chunks);
  // target = source (op) the peer's chunks, the lower rank's first.
  void recv_reduce_into(std::int32_t peer, At source, At target, std::uint32_t chunks);
  void copy(At source, At target, std::uint32_t chunks);
  // target = source (op) operand; the operand has the target's chunk numbers.
  void reduce(At source, Buffer operand, At target, std::uint32_t chunks);

  // The next step begins only when the last one is done, although they share no memory: for rounds in which a rank
  // communicates with one peer at a time. REQUIRES: they share no memory, also not in place; otherwise it waits only
  // for the shared memory.
  void wait_for_last() { next_waits_ = true; }

  // No slices, on any rank: the steps of some rank span blocks, perhaps not the steps of this rank.
  void run_whole() { schedule_.sliceable = false; }

  // Copies owed chunks that are not in the output yet into it, and returns the schedule.
  [[nodiscard]] Result<Schedule> finish();

 private:
  // Accesses are tracked for each memory cell. If input and output of a chunk are one in an in-place call, they count
  // as one cell; its scratch is another. The list has mostly one step.
  class Readers {
   public:
    void add(std::uint32_t step) {
      if (first_ == kNobody) {
        first_ = step;
      } else {
        if (more_ == nullptr) more_ = std::make_unique<std::vector<std::uint32_t>>();
        more_->push_back(step);
      }
    }
    void clear() {
      first_ = kNobody;
      if (more_ != nullptr) more_->clear();
    }
    [[nodiscard]] bool empty() const { return first_ == kNobody; }
    template <class F>
    void for_each(F f) const {
      if (first_ != kNobody) f(first_);
      if (more_ == nullptr) return;
      for (const std::uint32_t step : *more_) f(step);
    }

   private:
    static constexpr std::uint32_t kNobody = 0xffffffff;
    std::uint32_t first_ = kNobody;
    std::unique_ptr<std::vector<std::uint32_t>> more_;
  };
  struct Cell {
    Readers readers;                // steps that the next writer must wait for
    std::int32_t last_writer = -1;  // step, or -1
    // Every reader waits for last_writer, so a step that waits for a reader need not wait for the writer.
    bool readers_follow_writer = true;
  };
  enum class Where : std::uint8_t { kNowhere, kInput, kOutput, kScratch };

  [[nodiscard]] Buffer kept_in(std::uint32_t c) const;
  // The buffer with the current value of chunk c of the vector.
  [[nodiscard]] Where where(std::uint32_t c) const;
  void set_where(ChunkRange c, Where where);
  Cell& cell(Buffer b, std::uint32_t c);
  // Cuts c into the longest runs on which `key` is constant, and calls f(run) for each.
  template <class Key, class F>
  void for_runs(ChunkRange c, Key key, F f);
  void add(const Step& step);
  void add_at(StepKind kind, std::int32_t peer, At source, At target, std::uint32_t chunks, Buffer operand);
  void touch(std::uint32_t index, const Step& step);
  void touch_copied_input(std::uint32_t index, const Step& step);
  void read(std::uint32_t index, Cell& cell);
  void write(std::uint32_t index, Cell& cell);
  void depend(std::uint32_t index, std::int64_t on);
  void fail(const std::string& why);
  bool check_chunks(ChunkRange c, const char* verb);
  bool check(std::int32_t peer, ChunkRange c, const char* verb);

  Shape shape_;
  std::int32_t rank_;
  Schedule schedule_;
  ChunkRange input_;                               // the chunks that the rank contributes
  ChunkRange output_;                              // the chunks of its output
  FlatMap<std::uint32_t, Where> where_;            // for chunks whose value has moved
  std::deque<Cell> cells_;                         // for chunks that a step accesses
  FlatMap<std::uint64_t, std::uint32_t> cell_at_;  // their indices in cells_
  std::vector<std::uint32_t> pending_;             // dependencies of the step that is being added
  bool next_waits_ = false;                        // for the last step, whatever that accesses
  Status status_;
};

}  // namespace tutti::internal::schedule
