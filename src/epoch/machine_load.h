// How many ranks share the processors of a machine. Where a communicator has more ranks there than processors, so that
// they cannot all run at once, others that share these count as well: ranks of the communicator that it comes from by
// splits, and of other communicators that its processes are in. Every rank derives the same from what the ranks have
// told. Eight ranks on two processors, split into two communicators, all-reduce in both at once: 0.8 of the time with 8
// bytes, 0.55 to 0.9 with 1 MiB.
//
// A communicator whose ranks can all run at once counts them alone, and learns of others by how long a yield takes
// (executor/turn_taking.h), as all do of ranks that nobody has told of: those of other jobs, and of communicators that
// no process of this one is in. Four pairs of eight ranks on two processors, or two of four, that count all ranks,
// yield at once and so take each other's place all the time: 8 bytes took 2 to 2.7 times as long, 32 KiB 0.6 to 1.1
// times.
//
// A control group that has less time than its ranks have processors does not make these share them: while it has any,
// they all run, and then none does. Two ranks on two processors with the time of one or of a half: 8-byte all-reduce
// took 2.4 to 4 times as long where they waited as if they shared one, by yielding; of 32 KiB 0.75 of the time. So the
// quotas are only told.
//
// Threads: announce_load() and known_load() any; the rest are values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "topology/cpu_quota.h"
#include "topology/detect.h"

namespace tutti::internal {

struct PeerInfo;
struct RankSettings;

// The ranks of one machine.
struct MachineRanks {
  std::size_t ranks = 0;
  topology::ProcessorSet cpus;  // that they may use, all together
  double known = 0;             // ranks per processor as far as others tell; at first RankSettings::known_load
  // Of all control groups the one with most ranks for the time that it has. None: 0 ranks.
  std::size_t group_ranks = 0;
  std::uint32_t group_millicpus = 0;  // as CpuQuota's

  // Of these ranks alone.
  [[nodiscard]] double own_ranks_per_cpu() const;
  // With others that are known.
  [[nodiscard]] double ranks_per_cpu() const;
  // In words, if a control group has less time than its ranks could use; else empty.
  [[nodiscard]] std::string lack_of_time() const;
};

// All machines of a job, and where each of its ranks is.
struct Machines {
  std::vector<MachineRanks> all;
  std::vector<std::size_t> of;  // by rank
};
// `told`: by rank, as `peers`.
Machines find_machines(const std::vector<PeerInfo>& peers, const std::vector<RankSettings>& told);

// While what it returns lives, this process has ranks that share their processors so.
std::shared_ptr<const double> announce_load(double ranks_per_cpu);
// The most of these; 0: none. A forked child knows nothing of its parent's.
double known_load();

}  // namespace tutti::internal
