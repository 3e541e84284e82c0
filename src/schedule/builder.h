// Writes one rank's schedule. A generator says what moves, as a textbook does; the Builder finds
//  - where the current value of each chunk lies (input until first written, then the buffer in which it is kept: the
//  output
//    where the rank keeps the chunk, scratch where it does not), so out-of-place never copies first;
//  - the dependencies, as a processor's scoreboard does: which step wrote this chunk last, which still read it.
//
// Invariants of the result: a dependency's index is lower than its dependent's; steps that receive from
// one peer, and local steps, run in order and are not listed as dependencies of each other; at finish()
// every chunk that the collective owes this rank lies in the output.
//
// A copy from input to output is nothing at all in an in-place call, and out of place it disturbs no
// reader of the input. So it waits for nobody.
//
// Not thread-safe. Misuse by a generator (a chunk without a value, a peer out of range) is a defect in
// the generator: it is recorded, and finish() returns it.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "schedule/schedule.h"

namespace tutti::internal::schedule {

// Whether a combination completes the reduction over all ranks of the collective (not of a sub-group).
enum class Completes : bool { kNo = false, kYes = true };

class Builder {
 public:
  Builder(const Shape& shape, std::int32_t rank);

  [[nodiscard]] std::int32_t rank() const { return rank_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }

  // Sends the current values of c.
  void send(std::int32_t peer, ChunkRange c);
  // The values of c become what the peer sends.
  void recv(std::int32_t peer, ChunkRange c);
  // The values of c become (value of c) op (what the peer sends).
  void recv_reduce(std::int32_t peer, ChunkRange c, Completes completes = Completes::kNo);

  // Copies the values of c that lie in the input and are owed to the output now rather than at finish(),
  // so that a later send of c and its neighbours is one message.
  void copy_to_output(ChunkRange c);

  // A second value of the same chunks, beside the current one, for algorithms that accumulate in a
  // fixed order before their own turn comes: receive into scratch, combine into scratch, then fold
  // the scratch into the current value: value of c becomes (scratch of c) op (value of c).
  // REQUIRES: c is kept in the output.
  void recv_to_scratch(std::int32_t peer, ChunkRange c);
  void recv_reduce_to_scratch(std::int32_t peer, ChunkRange c);
  void reduce_from_scratch(ChunkRange c, Completes completes = Completes::kNo);

  // Copies into the output what is owed and lies elsewhere, and returns the schedule.
  [[nodiscard]] Result<Schedule> finish();

 private:
  // Accesses are tracked per memory cell: input and output of a chunk count as one (they are one in
  // an in-place call), its scratch is another.
  struct Cell {
    std::int32_t last_writer = -1;       // step, or -1
    std::vector<std::uint32_t> readers;  // steps that the next writer must wait for
    // Every reader itself waits for last_writer, so who waits for a reader need not wait for the writer.
    bool readers_follow_writer = true;
  };
  enum class Where : std::uint8_t { kNowhere, kInput, kOutput, kScratch };

  [[nodiscard]] Buffer kept_in(std::uint32_t c) const;
  Cell& cell(Buffer b, std::uint32_t c);
  // Cuts c into the longest runs on which `key` is constant, and calls f(run) for each.
  template <class Key, class F>
  void for_runs(ChunkRange c, Key key, F f);
  void add(Step step);
  void read(std::uint32_t index, Cell& cell);
  void write(std::uint32_t index, Cell& cell);
  void depend(std::uint32_t index, std::int64_t on);
  void fail(const std::string& why);
  bool check_chunks(ChunkRange c, const char* verb);
  bool check(std::int32_t peer, ChunkRange c, const char* verb);

  Shape shape_;
  std::int32_t rank_;
  Schedule schedule_;
  std::vector<Where> where_;            // per chunk
  std::vector<Cell> cells_;             // 2 per chunk: input/output, scratch
  std::vector<std::uint32_t> pending_;  // dependencies of the step that is being added
  Status status_;
};

}  // namespace tutti::internal::schedule
