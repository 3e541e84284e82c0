// Predicts the times of algorithms in one job by simulation, for selection.
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
  bool measured = false;             // the port's speed was also measured
  std::optional<JobKind> fitted_to;  // the job to whose measurements the costs were fitted; empty: the costs are those
                                     // of the transports
  bool operator==(const JobCosts&) const = default;
};

// Without measurements: the costs that transports publish. `ranks_per_cpu`: of the machine with the most.
// `one_machine`: all ranks are on one machine, even if they count as several hosts.
JobCosts default_costs(const algorithms::World& world, const TransportCosts& within_host,
                       const TransportCosts& between_hosts, double ranks_per_cpu, bool one_machine);

// Replaces the costs by fitted ones, if there are any.
void use_fitted(const TunedJob* fitted, JobCosts& costs);

// Sets the speed of ports to a network: of ports without one, or, if it was measured, of all.
void set_ports(topology::Graph& graph, const JobCosts& costs);

// Any thread.
class JobModel {
 public:
  // Callers in this process with the same arguments share one model while it exists. The graph's ports get the costs'
  // speed, as set_ports() does. REQUIRES: graph.check(), and it has ranks.
  static std::shared_ptr<const JobModel> of(topology::Graph graph, const JobCosts& costs);
  JobModel(topology::Graph graph, const JobCosts& costs);
  ~JobModel();
  JobModel(const JobModel&) = delete;
  JobModel& operator=(const JobModel&) = delete;

  [[nodiscard]] const algorithms::World& world() const { return world_; }
  // The smallest number of network ports of a host with ranks; at least 1.
  [[nodiscard]] int ports() const { return ports_; }
  [[nodiscard]] const JobCosts& costs() const { return costs_; }
  // With the ports' speed.
  [[nodiscard]] const topology::Graph& graph() const { return graph_; }
  // Microseconds with root 0: for up to 16 ranks, of one call among several in a row; for more, of a single call. The
  // result is stored. Infinity: unknown, such as for an algorithm that supports these ranks, but not the number of
  // ranks that is simulated.
  //
  // Up to kSimulatedRanks ranks are simulated completely; more if they have few steps (trees). Otherwise it simulates
  // three smaller jobs, with some of the ranks of some hosts and blocks of the same length, and extrapolates their
  // growth. REQUIRES: entry.supports(world()).
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
  // For only these ranks; empty: all.
  [[nodiscard]] std::unique_ptr<Simulated> make(const std::vector<int>& ranks) const;

  const topology::Graph graph_;
  const algorithms::World world_;
  const int ports_;
  const JobCosts costs_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<Simulated> whole_ TUTTI_GUARDED_BY(mutex_);
  // For larger jobs: similar smaller jobs, the smallest first.
  mutable std::array<std::unique_ptr<Simulated>, 3> jobs_ TUTTI_GUARDED_BY(mutex_);
  mutable std::map<std::pair<const algorithms::AlgorithmEntry*, std::size_t>, double> known_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti::internal::selection
