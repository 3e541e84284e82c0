// How long algorithms take in one job, by simulation: what selection goes by.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/catalog.h"
#include "base/message_costs.h"
#include "os/mutex.h"
#include "selection/tuning.h"
#include "topology/graph.h"
#include "topology/routes.h"

namespace tutti::internal::selection {

// The same on every rank.
struct JobCosts {
  topology::MachineCosts machine;
  topology::Speed port;  // see set_ports()
  topology::Sharing sharing;
  bool measured = false;             // what a port does is, too
  std::optional<JobKind> fitted_to;  // the job to whose measurements; none: they are what transports publish
  bool operator==(const JobCosts&) const = default;
};

// Where nothing was measured: what transports publish. `ranks_per_cpu`: on the machine that has most. `one_machine`:
// all ranks are on it, whichever hosts they are.
JobCosts default_costs(const algorithms::World& world, const TransportCosts& within_host,
                       const TransportCosts& between_hosts, double ranks_per_cpu, bool one_machine);

// Puts in their place what was fitted to measurements, if anything was.
void use_fitted(const TunedJob* fitted, JobCosts& costs);

// Gives ports that lead to a network that speed: those that have none, and where it was measured all.
void set_ports(topology::Graph& graph, const JobCosts& costs);

// Any thread.
class JobModel {
 public:
  // The same one for all in this process that ask for the same while it is there. The graph's ports get the costs'
  // speed, as set_ports() does. REQUIRES: graph.check(), and it has ranks.
  static std::shared_ptr<const JobModel> of(topology::Graph graph, const JobCosts& costs);
  JobModel(topology::Graph graph, const JobCosts& costs);
  ~JobModel();
  JobModel(const JobModel&) = delete;
  JobModel& operator=(const JobModel&) = delete;

  [[nodiscard]] const algorithms::World& world() const { return world_; }
  // Network ports of the host that has fewest, of those with ranks; at least 1.
  [[nodiscard]] int ports() const { return ports_; }
  [[nodiscard]] const JobCosts& costs() const { return costs_; }
  // Microseconds with root 0: of few ranks of a call among some in a row, of more than 16 of one alone. Kept: the
  // second question takes no time. Infinity: it cannot be known, as of an algorithm that serves these ranks and not as
  // many as can be simulated.
  //
  // Of up to kSimulatedRanks ranks all are simulated; of more, where they have few steps (trees). Else three smaller
  // jobs, of some of the ranks of some hosts, with blocks as long as here; as time has grown there, it grows from there
  // on.
  // REQUIRES: entry.supports(world()).
  [[nodiscard]] double predict_us(const algorithms::AlgorithmEntry& entry, std::size_t bytes) const
      TUTTI_EXCLUDES(mutex_);
  static constexpr int kSimulatedRanks = 64;

 private:
  struct Simulated;
  [[nodiscard]] double predict(const algorithms::AlgorithmEntry& entry, std::size_t bytes) const TUTTI_REQUIRES(mutex_);
  static std::vector<schedule::Schedule> write(const Simulated& job, const algorithms::AlgorithmEntry& entry,
                                               std::size_t most_steps);
  [[nodiscard]] double simulate(const Simulated& job, const std::vector<schedule::Schedule>& schedules,
                                std::size_t bytes, std::size_t call_bytes) const;
  // Of those ranks alone; none are named: of all.
  [[nodiscard]] std::unique_ptr<Simulated> make(const std::vector<int>& ranks) const;

  const topology::Graph graph_;
  const algorithms::World world_;
  const int ports_;
  const JobCosts costs_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<Simulated> whole_ TUTTI_GUARDED_BY(mutex_);
  // Of more ranks than are simulated: smaller ones that are like it, the smallest first.
  mutable std::array<std::unique_ptr<Simulated>, 3> jobs_ TUTTI_GUARDED_BY(mutex_);
  mutable std::map<std::pair<const algorithms::AlgorithmEntry*, std::size_t>, double> known_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal::selection
