// Runs the schedules of all ranks with time in place of data, on a machine that is described by numbers alone: what
// each message meets on its way (Interconnect) and what the ranks' processors take (Endpoint).
//
// The model, discrete events over steps:
//  - a message costs its sender and its receiver processor time (a fixed part and one for each byte), a latency, and
//    time on each resource of its route (network ports, cables, memory), in the manner of LogGP (Alexandrov, Ionescu,
//    Schauser, Scheiman: LogGP: incorporating long messages into the LogP model, SPAA 1995);
//  - ranks, processors and links do the work that reaches them in the order in which it does, and are never idle while
//  there
//    is some: what they have accepted is done at the latest when all before it is, too;
//  - bytes pass by pieces: a step begins as soon as the first piece of what it depends on is there, where the
//    dependency is one of data, and ends no earlier than that has ended and the last piece has passed, too
//    (cut-through, as the executor's watermarks do it);
//  - a message longer than what the lane buffers waits for its receiver; shorter ones do not;
//  - steps of a lane begin in their order;
//  - ranks that share processors have their work done by whichever is free first; one that has waited for something
//    waits for its turn, too.
// What is left out: slices, waking of sleeping ranks; of the caches all but the size of the call.
//
// Deterministic: the same input gives the same times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "schedule/layout.h"
#include "schedule/schedule.h"

namespace tutti::internal::schedule {

// What the messages from one rank to another meet. Times in microseconds.
struct Route {
  std::vector<std::uint32_t> resources;  // by number, in the order in which the bytes meet them
  double latency_us = 0;                 // from the end of the sender's work to the beginning of the receiver's
  double message_us = 0;                 // of each side's processor, for each message
  double send_us_per_byte = 0;           // of the sender's processor
  double receive_us_per_byte = 0;        // of the receiver's
  double piece_bytes = 0;                // that are passed on at a time; 0: the message as a whole
  double buffer_bytes = 0;               // that a lane takes before its receiver is there
};

// That do the work of a rank: those from `first` on, of which several may be shared with other ranks.
struct Processors {
  std::uint32_t first = 0;
  std::uint32_t count = 1;
  double turn_us = 0;  // until a rank has its turn that has waited for a message; 0: it need not share
};

// Any thread; constant while a simulation runs.
class Interconnect {
 public:
  Interconnect() = default;
  virtual ~Interconnect() = default;
  Interconnect(const Interconnect&) = delete;
  Interconnect& operator=(const Interconnect&) = delete;
  // Resources are numbered from 0.
  [[nodiscard]] virtual std::size_t resources() const = 0;
  // 0: takes any number of bytes at once.
  [[nodiscard]] virtual double us_per_byte(std::uint32_t resource) const = 0;
  // `call_bytes`: of the whole vector, here and below. What a byte takes depends on them, and not on how many there are
  // in a message: long messages are passed on by pieces, and what has to share the caches is all that a call touches.
  // Overwrites all of `route`; its memory is reused.
  virtual void find_route(int from, int to, double call_bytes, Route& route) const = 0;
  // Processors are numbered from 0.
  [[nodiscard]] virtual std::size_t processors() const = 0;
  [[nodiscard]] virtual Processors processors_of(int rank) const = 0;
  // Of each rank, what a call takes before its first step.
  [[nodiscard]] virtual double call_us() const { return 0; }
  // How many times as long the rank's work takes as it should: 1, or more of a slow one.
  [[nodiscard]] virtual double slowness(int rank) const = 0;
  // Of values combined, and of bytes copied within a rank.
  [[nodiscard]] virtual double combine_us_per_byte(int rank, double call_bytes) const = 0;
  [[nodiscard]] virtual double copy_us_per_byte(int rank, double call_bytes) const = 0;
};

struct StepTime {
  double begin_us = 0;
  double end_us = 0;
};

struct Timing {
  double total_us = 0;                       // until the last step of any rank has ended, in the last call
  std::vector<double> calls_us;              // likewise, in each call
  std::vector<double> rank_us;               // until the last step of each rank has
  std::vector<double> resource_bytes;        // that each resource has carried
  std::vector<double> resource_us;           // that it took for them
  std::vector<double> processor_us;          // that each processor has worked
  std::vector<double> work_us;               // that was worked for each rank
  std::uint64_t messages = 0;                // from rank to rank
  std::vector<std::vector<StepTime>> steps;  // of each rank, call after call; empty unless asked for
};

struct SimulationOptions {
  bool keeps_steps = false;
  // Where some ranks do what others do at the same time (hosts alike): which of those whose schedules are given stands
  // for a rank. The n-th message from one to another of them that comes from where it stands for somebody is the n-th
  // that it receives so. Null: each rank stands for itself.
  std::function<int(int)> representative;
  // How many times in a row the schedules are run. A rank begins its next call where it has ended the one before, and
  // waits for nobody else: of one-way collectives, calls follow each other faster than one of them takes.
  int calls = 1;
  // Of the whole vector, by which bytes cost what they do (Interconnect); 0: as the layout has it.
  double call_bytes = 0;
  // Asked now and then; an error ends the simulation, with that error.
  std::function<Status()> interrupt;
};

// schedules[r] is rank r's, of all or of those that stand for others; `layout` says how many bytes chunks have.
// kInvalidArgument where messages and receives do not match, or ranks wait for each other: proven schedules have
// neither. Time: some 0.3 us a step. Memory: see bytes_to_simulate().
Result<Timing> simulate(std::span<const Schedule> schedules, const Layout& layout, const Interconnect& interconnect,
                        const SimulationOptions& options = {});

// Memory that a simulation of that many steps takes, dependencies included, beside the schedules.
std::size_t bytes_to_simulate(std::size_t steps);

}  // namespace tutti::internal::schedule
