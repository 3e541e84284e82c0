// Proves the schedules of all ranks of one collective by running them with symbols instead of data.
//
// Proven is, for every size, timing and transport:
//  - each output chunk holds exactly what the collective defines: every rank's contribution once
//    (reductions), or the owner's value (the rest);
//  - all ranks of an all-reduce combine in the same tree, up to swapping the operands of one combination:
//    results are the same bit for bit;
//  - where it is asked for (Order::kRanks), that each combination is one of consecutive ranks, the lower ones first: so
//    all are combined in the order of ranks, and the operator need not commute;
//  - `final` stands on exactly the combinations that complete a reduction;
//  - no step touches memory that another may be using, neither out of place nor in place; a send uses its
//    source until the receiver has taken the data;
//  - what ranks send is what their peers receive, chunk by chunk, however many steps each side needs;
//  - no deadlock even with no buffering at all (a send ends when its receive takes place), lanes making
//    progress on their own; and none when a rank takes its steps strictly in order, if each lane holds
//    one message.
// Why one run is enough: what a step does depends on nothing but the data, once ready it stays ready, and
// no two steps race; so every order of events leads to the same end (Kahn, The semantics of a simple
// language for parallel programming, IFIP 1974).
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "base/status.h"
#include "schedule/schedule.h"

namespace tutti::internal::schedule {

// The amount of work of a proof.
struct Proof {
  std::size_t steps = 0;
  std::size_t transfers = 0;     // chunks that went from rank to rank
  std::size_t combinations = 0;  // of chunks
  std::size_t accesses = 0;      // of chunks, checked for races
};

// Called repeatedly during a proof, every few milliseconds. An error ends the proof, with that error.
using Interrupt = std::function<Status()>;

// schedules[r] is rank r's. `order` is for collectives that combine. kInternalError names the rank and the step that
// break a rule. Takes time proportional to the number of chunks moved and of dependencies; memory to ranks^2 + ranks *
// chunks.
Result<Proof> verify(std::span<const Schedule> schedules, Order order = Order::kAny, const Interrupt& interrupt = {});

}  // namespace tutti::internal::schedule
