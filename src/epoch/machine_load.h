// The number of ranks that share the processors of a machine. If a communicator has more ranks there than processors,
// so that they cannot all run at once, it also counts other ranks that share these: ranks of its parent communicator,
// and of other communicators of its processes. Every rank derives the same numbers from the exchanged data. With eight
// ranks on two processors, split into two communicators, an all-reduce in both at once takes 0.8 of the time with 8
// bytes, and 0.55 to 0.9 with 1 MiB.
//
// If all ranks of a communicator can run at once, it counts only these, and detects others by the duration of yields
// (executor/turn_taking.h). All communicators detect unknown ranks in this way: those of other jobs, and of
// communicators without a common process. If four pairs of eight ranks on two processors, or two pairs of four, count
// all ranks, they yield at once and so displace each other all the time: 8 bytes took 2 to 2.7 times as long, 32 KiB
// 0.6 to 1.1 times.
//
// If a control group has less time than its ranks have processors, the ranks still do not share processors: while the
// group has time, all run, and then none does. Two ranks on two processors with the time of one or of a half: if they
// waited as if they shared a processor, by yielding, an 8-byte all-reduce took 2.4 to 4 times as long; 32 KiB took 0.75
// of the time. So the quotas are only reported.
//
// Threads: announce_load() and known_load() any; the rest are values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/rank_table.h"
#include "topology/cpu_quota.h"
#include "topology/detect.h"

namespace tutti::internal {

struct PeerInfo;
struct RankSettings;

// The ranks of one machine.
struct MachineRanks {
  std::size_t first = 0;  // the lowest rank
  std::size_t ranks = 0;
  topology::ProcessorSet cpus;  // that they may use, all together
  double known = 0;             // ranks per processor by the reports of others; at first RankSettings::known_load
  // The control group with the most ranks for its time. None: 0 ranks.
  std::size_t group_ranks = 0;
  std::uint32_t group_millicpus = 0;  // as CpuQuota's

  // Only these ranks.
  [[nodiscard]] double own_ranks_per_cpu() const;
  // With other known ranks.
  [[nodiscard]] double ranks_per_cpu() const;
  // In words, if a control group has less time than its ranks could use; else empty.
  [[nodiscard]] std::string lack_of_time() const;
};

// All machines of a job, and the machine of each of its ranks.
struct Machines {
  std::vector<MachineRanks> all;
  std::vector<std::size_t> of;  // by rank
};
// `told`: by rank, as `peers`.
Machines find_machines(const RankTable<PeerInfo>& peers, const RankTable<RankSettings>& told);

// While the result exists, known_load() includes this value.
std::shared_ptr<const double> announce_load(double ranks_per_cpu);
// The largest announced value; 0: none. A forked child does not have its parent's values.
double known_load();

}  // namespace tutti::internal
