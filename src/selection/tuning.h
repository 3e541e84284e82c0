// The measured fastest algorithms on this machine, for kinds of jobs, by collective and size. `tutti tune` measures and
// writes the file (docs/topology.md); rank 0 reads it (TUTTI_TUNING) and sends it to all ranks.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "base/status.h"
#include "topology/routes.h"

namespace tutti::internal::selection {

// The properties of a job on which measurements depend.
struct JobKind {
  std::vector<int> hosts;    // ranks of each, the largest first
  std::string transports;    // within hosts and between them: "shm", "tcp", "shm+tcp"
  double ranks_per_cpu = 1;  // on the host with the most, at least 1
  bool operator==(const JobKind&) const = default;
};
// `within`, `between`: names of transports; empty: none.
JobKind kind_of(const algorithms::World& world, const std::string& within, const std::string& between,
                double ranks_per_cpu);
// "4 ranks on 1 host over shm".
std::string text_of(const JobKind& kind);

// The fastest algorithm from `from_bytes` bytes of the whole vector on.
struct TunedChoice {
  std::size_t from_bytes = 0;
  std::string algorithm;  // empty: nothing was measured
  bool operator==(const TunedChoice&) const = default;
};

struct TunedJob {
  JobKind kind;
  // The simulator's costs, fitted to measurements. Empty: not fitted.
  std::optional<topology::MachineCosts> costs;
  double port_gbytes_per_second = 0;  // of the hosts' ports; 0: unknown
  // Ascending; the first from 0.
  std::map<Collective, std::vector<TunedChoice>> choices;

  // Null: nothing was measured. The caller must check whether it supports the ranks.
  [[nodiscard]] const algorithms::AlgorithmEntry* choose(Collective collective, std::size_t bytes) const;
  bool operator==(const TunedJob&) const = default;
};

struct Tuning {
  std::string machine;  // machine_name() where it was measured
  std::string library;  // library_version()
  std::vector<TunedJob> jobs;

  // The job with the nearest fitted costs: over the same transports, with the same hosts, else with the nearest ranks
  // per processor. Null: none.
  [[nodiscard]] const TunedJob* nearest_costs(const JobKind& kind) const;
  // The nearest job of the same kind, with ranks per processor within a quarter; null: none.
  [[nodiscard]] const TunedJob* find(const JobKind& kind) const;
  bool operator==(const Tuning&) const = default;
};

inline constexpr const char* kTuningFormat = "tutti tuning";
inline constexpr int kTuningVersion = 2;

// "AMD EPYC 7763, 2 processors".
std::string machine_name();

// kInvalidUsage, with file, line and field, if it is invalid, or from another machine or version, whose measurements do
// not apply here.
Result<Tuning> read_tuning(const std::string& path);
// The same for a text, of any machine and version.
Result<Tuning> parse_tuning(const std::string& text, const std::string& name);
std::string to_json(const Tuning& tuning);

}  // namespace tutti::internal::selection
