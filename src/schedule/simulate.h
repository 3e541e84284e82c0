// Runs the schedules of all ranks with time in place of data. Numbers describe the machine: the route of each message,
// and the work of the ranks' processors (Interconnect).
//
// The model, discrete events over steps:
//  - a message costs its sender and its receiver processor time (a fixed part and one for each byte), a latency, and
//    time on each resource of its route (network ports, cables, memory), in the manner of LogGP (Alexandrov, Ionescu,
//    Schauser, Scheiman: LogGP: incorporating long messages into the LogP model, SPAA 1995);
//  - ranks, processors and links do work in the order in which it arrives, and are never idle while there is some:
//    accepted work is done at the latest when all work before it is done;
//  - bytes pass in pieces: a step begins as soon as the first piece of its data dependencies has arrived, and ends
//    after they have ended and the last piece has passed (cut-through, as with the executor's watermarks);
//  - a message longer than the lane's buffer waits for its receiver; shorter ones do not;
//  - steps of a lane begin in their order;
//  - ranks that share processors use the processor that is free first; after a wait, a rank also waits for a
//    time slice.
// Not included: slices, the wake-up of sleeping ranks, and all effects of caches except that of the size of the call.
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

// The route of messages from one rank to another. Times in microseconds.
struct Route {
  std::vector<std::uint32_t> resources;  // by number, in the order in which the bytes pass them
  double latency_us = 0;                 // from the end of the sender's work to the beginning of the receiver's
  double message_us = 0;                 // of each side's processor, for each message
  double send_us_per_byte = 0;           // of the sender's processor
  double receive_us_per_byte = 0;        // of the receiver's
  double piece_bytes = 0;                // forwarded at a time; 0: the whole message
  double buffer_bytes = 0;               // that a lane takes before its receiver has begun
};

// The processors that do the work of a rank: `count` from `first` on; other ranks may share them.
struct Processors {
  std::uint32_t first = 0;
  std::uint32_t count = 1;
  double turn_us = 0;  // wait for a time slice after a wait for a message; 0: not shared
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
  // 0: unlimited rate.
  [[nodiscard]] virtual double us_per_byte(std::uint32_t resource) const = 0;
  // `call_bytes`: of the whole vector, here and below. The cost of a byte depends on them, and not on the size of the
  // message: long messages travel in pieces, and all memory of a call shares the caches. Overwrites all of `route`; its
  // memory is reused.
  virtual void find_route(int from, int to, double call_bytes, Route& route) const = 0;
  // Processors are numbered from 0.
  [[nodiscard]] virtual std::size_t processors() const = 0;
  [[nodiscard]] virtual Processors processors_of(int rank) const = 0;
  // The time of each rank for a call before its first step.
  [[nodiscard]] virtual double call_us() const { return 0; }
  // The factor on the time of the rank's work: 1, or more for a slow rank.
  [[nodiscard]] virtual double slowness(int rank) const = 0;
  // For combined values, and for bytes copied within a rank.
  [[nodiscard]] virtual double combine_us_per_byte(int rank, double call_bytes) const = 0;
  [[nodiscard]] virtual double copy_us_per_byte(int rank, double call_bytes) const = 0;
};

struct StepTime {
  double begin_us = 0;
  double end_us = 0;
};

struct Timing {
  double total_us = 0;                       // until the last step of any rank has ended, in the last call
  std::vector<double> calls_us;              // the same for each call
  std::vector<double> rank_us;               // until the last step of each rank has
  std::vector<double> resource_bytes;        // carried by each resource
  std::vector<double> resource_us;           // spent by each resource for them
  std::vector<double> processor_us;          // that each processor has worked
  std::vector<double> work_us;               // that was worked for each rank
  std::uint64_t messages = 0;                // from rank to rank
  std::vector<std::vector<StepTime>> steps;  // of each rank, call after call; empty unless asked for
};

struct SimulationOptions {
  bool keeps_steps = false;
  // If some ranks do the same as others at the same time (equal hosts): the rank with a given schedule that represents
  // a rank. Messages from a represented rank are matched in order: the n-th one sent is the n-th one received. Null:
  // each rank represents itself.
  std::function<int(int)> representative;
  // How many times in a row the schedules run. A rank begins its next call when its previous one has ended, and does
  // not wait for others: calls of one-way collectives follow each other faster than a single call takes.
  int calls = 1;
  // Bytes of the whole vector, which determine the costs (Interconnect); 0: from the layout.
  double call_bytes = 0;
  // Called regularly; an error ends the simulation, with that error.
  std::function<Status()> interrupt;
};

// schedules[r] is rank r's, for all ranks or for those that represent others; `layout` has the sizes of chunks.
// kInvalidArgument if messages and receives do not match, or ranks wait for each other; proven schedules have neither.
// Time: about 0.3 us for each step. Memory: see bytes_to_simulate().
Result<Timing> simulate(std::span<const Schedule> schedules, const Layout& layout, const Interconnect& interconnect,
                        const SimulationOptions& options = {});

// The memory of a simulation of that many steps, including dependencies, without the schedules.
std::size_t bytes_to_simulate(std::size_t steps);

}  // namespace tutti::internal::schedule
