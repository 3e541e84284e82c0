// The step function: runs a strand of a flat program, over whatever memory.
//
// A memory model says how that is done; it is the only thing that knows of atomics, of processors and of devices:
//   struct Memory {
//     bool reached(const FlatCounter& counter, std::uint64_t value);   // acquires what was written before it got there
//     void publish(FlatCounter& counter, std::uint64_t value);         // releases what was written before
//     FlatHeader load(const FlatHeader& header);
//     void store(FlatHeader& header, const FlatHeader& value);
//     void count(std::uint64_t& messages);                             // adds one
//     void move(const Bytes& bytes);                                   // moves, combines, divides: see Bytes
//   };
// Where several threads run a strand together (a thread block), each calls the same functions with the same arguments
// and gets the same answers: each has a Strand of its own, and the FlatCall is theirs together. `publish` waits until
// all of them have come that far, and `count` both before and after it has added one, for all of them, one.
//
// Threads: each strand has its own, or several strands share one that calls advance() of each in turn. Nothing waits in
// here: who calls sees failure and deadlines.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "executor/flat_lane.h"
#include "executor/flat_program.h"
#include "schedule/layout.h"

namespace tutti::internal::executor {

// Where the bytes of one piece come from and go to. The value is `second`, or `first`, or first (op) second if both are
// there, the other way round if reversed, and divided where it is final and an average.
struct Bytes {
  const std::byte* first = nullptr;
  const std::byte* second = nullptr;
  std::byte* target = nullptr;  // either or both
  std::byte* slot = nullptr;
  std::size_t size = 0;
  bool reversed = false;
  bool final = false;
};

// A flat program with arrays that a device can read; all outlive the run.
struct FlatView {
  const FlatStep* steps = nullptr;
  const FlatWait* waits = nullptr;
  const std::uint32_t* first_step = nullptr;
};

inline FlatView view(const FlatProgram& program) {
  return {program.steps.data(), program.waits.data(), program.first_step.data()};
}

// What all strands of a rank have in common for one operation.
struct FlatCall {
  FlatView program;
  FlatLaneEnd* lanes = nullptr;     // by the program's numbers; each used by one strand
  FlatCounter* progress = nullptr;  // per strand, 0 when the operation begins: steps that it has done
  std::array<std::byte*, schedule::kBuffers> buffers{};  // as in operation.h
  transport::Fingerprint fingerprint;
  schedule::Shape shape;
  std::size_t block_elements = 0;
  std::size_t element_bytes = 1;   // a power of two
  std::uint32_t slices = 1;        // of slice_elements of each block, but for the last
  std::size_t slice_elements = 0;  // flat_slice_elements()
  // Channels: calls with lanes and progress of their own, which share the slices and run beside each other. Each takes
  // every channels-th slice, from the first_slice-th on. The same on all ranks.
  std::uint32_t first_slice = 0;
  std::uint32_t channels = 1;
};

// The elements of a block in a slice whose chunks all fit a slot; all of them where there are no slices. The same on
// all ranks if all are given the same numbers: slot_bytes is the least of any lane.
inline std::size_t flat_slice_elements(const FlatProgram& program, std::size_t block_elements,
                                       std::size_t element_bytes, std::size_t slot_bytes) {
  if (!program.sliceable) return block_elements;
  const std::size_t parts = program.shape.chunks_per_block();
  if (parts == 1) return std::min(block_elements, slot_bytes / element_bytes);
  // A chunk exceeds an equal share by less than two units between which the layout cuts.
  const std::size_t units = schedule::Layout::elements_of_lines(element_bytes);
  const std::size_t slot_elements = slot_bytes / element_bytes;
  const std::size_t chunk = slot_elements > 4 * units ? slot_elements - 2 * units : 1;
  return std::min(block_elements, parts * chunk);
}

enum class StrandState { kIdle, kMoved, kDone, kMismatch };

class Strand {
 public:
  constexpr Strand(const FlatCall& call, std::uint32_t number)
      : call_(call),
        number_(number),
        first_(call.program.first_step[number]),
        steps_(call.program.first_step[number + 1] - first_),
        slice_(call.first_slice) {
    locate();
  }

  // Moves at most one message. After kMismatch (the peer sends what is not of this operation) and kDone it is over.
  // When all strands are done the rank's part is complete and its buffers are free.
  template <class Memory>
  TUTTI_HOST_DEVICE StrandState advance(Memory& memory);

 private:
  [[nodiscard]] constexpr const FlatStep& step() const { return call_.program.steps[first_ + position_]; }
  [[nodiscard]] constexpr bool done() const { return slice_ >= call_.slices || steps_ == 0; }
  // Whether the strands that the step waits for have come far enough.
  template <class Memory>
  [[nodiscard]] TUTTI_HOST_DEVICE bool may_begin(Memory& memory) const;
  // The message that comes next: false if there is none yet.
  template <class Memory>
  TUTTI_HOST_DEVICE bool find_message(Memory& memory, const FlatStep& s, std::size_t* size, bool* is_other) const;
  [[nodiscard]] constexpr Bytes bytes_of(const FlatStep& s, std::size_t size) const;
  template <class Memory>
  TUTTI_HOST_DEVICE void pass(Memory& memory, const FlatStep& s, std::size_t size);
  // Behind a whole chunk, to the next one, of this step or another.
  template <class Memory>
  TUTTI_HOST_DEVICE void go_on(Memory& memory);
  constexpr void locate();
  [[nodiscard]] static constexpr std::byte* slot(const FlatLaneEnd& lane) {
    return lane.slots + (lane.messages & (lane.slot_count - 1)) * lane.slot_bytes;
  }
  [[nodiscard]] static constexpr FlatHeader& header(const FlatLaneEnd& lane) {
    return lane.headers[lane.messages & (lane.slot_count - 1)];
  }

  const FlatCall& call_;
  const std::uint32_t number_;
  const std::uint32_t first_;
  const std::uint32_t steps_;
  std::uint32_t slice_;
  std::uint32_t position_ = 0;
  std::uint32_t chunk_ = 0;     // of the step
  std::size_t done_bytes_ = 0;  // of the chunk
  std::size_t chunk_bytes_ = 0;
  std::size_t source_at_ = 0;  // offsets of the chunk
  std::size_t target_at_ = 0;
  bool begun_ = false;  // the step need not wait for other strands any more
};

constexpr void Strand::locate() {
  if (done()) return;
  const FlatStep& s = step();
  const std::size_t from = slice_ * call_.slice_elements;
  const std::size_t elements = std::min(call_.slice_elements, call_.block_elements - from);
  const schedule::Layout layout(call_.shape, call_.block_elements, call_.element_bytes, from, elements);
  const std::uint32_t source = s.source_chunk + chunk_;
  const std::uint32_t target = s.target_chunk + chunk_;
  source_at_ = layout.begin(source);
  target_at_ = layout.begin(target);
  chunk_bytes_ = layout.size(s.in == kNone && !s.combines ? source : target);
}

template <class Memory>
TUTTI_HOST_DEVICE bool Strand::may_begin(Memory& memory) const {
  const FlatStep& s = step();
  for (std::uint32_t i = s.first_wait; i < s.first_wait + s.waits; ++i) {
    const FlatWait& wait = call_.program.waits[i];
    const std::uint32_t* const first = call_.program.first_step + wait.strand;
    const std::uint64_t steps = first[1] - first[0];
    if (!memory.reached(call_.progress[wait.strand], slice_ * steps + wait.steps)) return false;
  }
  return true;
}

template <class Memory>
TUTTI_HOST_DEVICE StrandState Strand::advance(Memory& memory) {
  if (done()) return StrandState::kDone;
  const FlatStep& s = step();
  if (!begun_ && !(begun_ = may_begin(memory))) return StrandState::kIdle;
  std::size_t size = chunk_bytes_ - done_bytes_;
  if (size > 0) {
    bool is_other = false;
    if (s.in != kNone && !find_message(memory, s, &size, &is_other)) return StrandState::kIdle;
    if (is_other) return StrandState::kMismatch;
    if (s.out != kNone) {
      const FlatLaneEnd& out = call_.lanes[s.out];
      size = std::min<std::size_t>(size, out.slot_bytes);
      const bool has_slot =
          out.messages < out.slot_count || memory.reached(*out.taken, out.messages - out.slot_count + 1);
      if (!has_slot) return StrandState::kIdle;
    }
    pass(memory, s, size);
  }
  go_on(memory);
  return done() ? StrandState::kDone : StrandState::kMoved;
}

template <class Memory>
TUTTI_HOST_DEVICE bool Strand::find_message(Memory& memory, const FlatStep& s, std::size_t* size,
                                            bool* is_other) const {
  const FlatLaneEnd& in = call_.lanes[s.in];
  if (!memory.reached(*in.sent, in.messages + 1)) return false;
  const FlatHeader message = memory.load(header(in));
  // A sender cuts between chunks, and a chunk where its slot is full.
  *is_other =
      !(message.fingerprint == call_.fingerprint) || message.bytes != std::min<std::size_t>(*size, in.slot_bytes);
  *size = message.bytes;
  return true;
}

constexpr Bytes Strand::bytes_of(const FlatStep& s, std::size_t size) const {
  const auto at = [&](schedule::Buffer buffer, std::size_t offset) {
    return call_.buffers[static_cast<std::size_t>(buffer)] + offset + done_bytes_;
  };
  Bytes bytes;
  bytes.size = size;
  bytes.reversed = s.reversed;
  bytes.final = s.final;
  if (s.in == kNone || s.combines) bytes.first = at(s.source, source_at_);
  if (s.in != kNone) {
    bytes.second = slot(call_.lanes[s.in]);
  } else if (s.combines) {
    bytes.second = at(s.operand, target_at_);
  }
  // In place a copy may be one onto itself, beside strands that read there.
  std::byte* const target = at(s.target, target_at_);
  if (s.stores && (bytes.second != nullptr || bytes.first != target)) bytes.target = target;
  if (s.out != kNone) bytes.slot = slot(call_.lanes[s.out]);
  return bytes;
}

template <class Memory>
TUTTI_HOST_DEVICE void Strand::pass(Memory& memory, const FlatStep& s, std::size_t size) {
  const Bytes bytes = bytes_of(s, size);
  if (bytes.target != nullptr || bytes.slot != nullptr) memory.move(bytes);
  if (s.out != kNone) {
    FlatLaneEnd& out = call_.lanes[s.out];
    FlatHeader message;
    message.bytes = static_cast<std::uint32_t>(size);
    message.fingerprint = call_.fingerprint;
    memory.store(header(out), message);
    memory.publish(*out.sent, out.messages + 1);
    memory.count(out.messages);
  }
  if (s.in != kNone) {
    FlatLaneEnd& in = call_.lanes[s.in];
    memory.publish(*in.taken, in.messages + 1);
    memory.count(in.messages);
  }
  done_bytes_ += size;
}

template <class Memory>
TUTTI_HOST_DEVICE void Strand::go_on(Memory& memory) {
  if (done_bytes_ < chunk_bytes_) return;
  done_bytes_ = 0;
  if (++chunk_ == step().chunks) {
    chunk_ = 0;
    begun_ = false;
    const std::uint64_t passed = std::uint64_t{slice_} * steps_ + position_ + 1;
    if (++position_ == steps_) {
      position_ = 0;
      slice_ += call_.channels;
    }
    memory.publish(call_.progress[number_], passed);
  }
  locate();
}

}  // namespace tutti::internal::executor
