// A schedule as plain arrays, for executors that call nothing: thread blocks of a device, and the test of their
// protocol. What is taken as one step is decided here, once.
//
// Nothing in the library runs them yet: the host's executor takes schedules as they are. Counts of their own per block
// (TableLayout) are not covered. All strands of a rank must be able to run at the same time, as they wait for each
// other: an all-to-all of n ranks has 2 (n - 1) + 1.
//
// A rank's program consists of strands, which progress by themselves: each takes its steps one after the other. A lane
// of the schedule (one peer, one direction) is a strand, and so are the local steps; where steps of two lanes are
// fused, these lanes are one strand.
//
// Messages. A chunk of a slice travels as one message, or where it is longer than a slot, as several. Strands that
// several lanes have become have steps of one chunk only, and exist only where the schedule can be run in slices: so
// with slices whose chunks fit a slot, such a strand receives one message, then sends one. Then two slots a lane are
// enough for every algorithm in the catalog (tests/property/flat.cc); lanes that are alone are free of deadlock with
// any number (schedule/verify.h).
#pragma once

#include <cstdint>
#include <vector>

#include "executor/fusion.h"
#include "schedule/schedule.h"

namespace tutti::internal::executor {

// value = received, or source; combined: source (op) received, or where nothing is received source (op) operand, or
// the other way round if reversed. It is stored in the target, or sent, or both.
struct FlatStep {
  std::uint32_t in = kNone;   // the lane from which it receives, if it does
  std::uint32_t out = kNone;  // the lane to which it sends, if it does
  bool combines = false;
  bool stores = false;
  bool final = false;     // the reduction is complete: an average divides
  bool reversed = false;  // matters where (op) does not commute
  schedule::Buffer source = schedule::Buffer::kInput;
  schedule::Buffer operand = schedule::Buffer::kOutput;
  schedule::Buffer target = schedule::Buffer::kOutput;
  std::uint16_t chunks = 1;
  std::uint16_t waits = 0;         // how many of FlatProgram::waits, from first_wait on
  std::uint32_t source_chunk = 0;  // the first of them
  std::uint32_t target_chunk = 0;  // of operand and target
  std::uint32_t first_wait = 0;
};

// A step begins in a slice when another strand has done so many of its own steps there.
struct FlatWait {
  std::uint32_t strand = 0;
  std::uint32_t steps = 0;
};

struct FlatLane {
  std::int32_t peer = -1;
  bool sends = false;
};

struct FlatProgram {
  schedule::Shape shape;
  std::uint32_t scratch_chunks = 0;
  bool sliceable = true;
  std::vector<FlatLane> lanes;  // whose numbers steps name
  std::vector<FlatStep> steps;  // strand after strand
  std::vector<FlatWait> waits;
  std::vector<std::uint32_t> first_step;  // per strand, and one more
};

FlatProgram flatten(const schedule::Schedule& schedule);

}  // namespace tutti::internal::executor
