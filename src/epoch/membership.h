// This rank's data about the job's machines: the position of each rank, the allowed transports, and the consequences
// for selection and waiting. Every rank derives the same data from the same address table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "epoch/machine_load.h"
#include "join/peer_info.h"
#include "selection/tuning.h"
#include "topology/detect.h"
#include "topology/graph.h"
#include "transport/ranks.h"

namespace tutti::internal {

// When this rank reads the memory of other processes: TUTTI_CROSS_MEMORY; with `auto`, never if the kernel is slow
// (memory::reads_of_processes_pay()).
MemoryReads reads_processes(const Settings& settings);
// This rank's PeerInfo without its addresses. `memory_trouble`: as in RankSettings.
Result<PeerInfo> describe_self(int rank, const Settings& settings, const std::string& memory_trouble = "");

// A rank's description of its machine and its settings: packed in PeerInfo::settings.
struct RankSettings {
  topology::ProcessorSet cpus;             // that it may use
  std::vector<topology::CpuQuota> quotas;  // of the control groups that it is in
  double known_load = 0;                   // known_load(), when it joined
  topology::Place place;                   // of those processors
  double port_gbits = 0;                   // of the interface that others reach it by; 0: unknown
  // The share of one processor in a level-2 cache, if all sharers use it equally; 0: unknown.
  std::uint64_t level2_bytes = 0;
  MemoryReads reads_processes = MemoryReads::kNever;
  std::string memory_trouble;  // why it cannot share memory with other processes; empty: it can
  bool cuda_memory = false;    // its buffers are in the memory of a CUDA device
  // Of these rank 0's hold; empty on other ranks.
  std::string tuning;    // contents of the file that Settings::tuning names
  std::string topology;  // likewise
  // By transport, its description of this rank (Transport::tell); empty before that.
  std::map<std::string, std::string, std::less<>> by_transport;

  [[nodiscard]] std::string pack() const;
  static Result<RankSettings> unpack(const std::string& bytes);
};

struct Membership;
// The parent of a communicator made by a split.
struct SplitFrom {
  const Membership& parent;
  const std::vector<int>& members;  // ranks of the parent, by rank
};

struct Membership : Ranks {
  RankTable<RankSettings> told;  // by rank
  // The machines of the communicator that joined; by rank, the number in that communicator; and the load of this rank's
  // machine, as in announce_load().
  std::shared_ptr<const Machines> job;
  std::vector<std::size_t> job_ranks;
  std::shared_ptr<const double> announced;
  MachineRanks machine;                            // this rank's
  int preferred_processor = -1;                    // if oversubscribed, the preferred processor of this rank; -1: any
  std::size_t preferred_processor_step_bytes = 0;  // the longest message of operations in which it uses that processor
  bool one_machine = true;                         // all ranks are on it; the same on every rank
  double ranks_per_cpu = 1;  // ranks per processor on the machine with the most; the same on every rank
  std::shared_ptr<const selection::Tuning> tuning;  // rank 0's TUTTI_TUNING; null: none
  // The machines of these ranks: from rank 0's TUTTI_TOPOLOGY, else hosts, packages and NUMA nodes from the ranks'
  // descriptions. The same on every rank.
  std::shared_ptr<const topology::Graph> graph;
  bool described = false;  // by a file
  // The transport between ranks of one host; the same on every rank; null: no host has two connected ranks.
  Transport* within_hosts = nullptr;
  // The transport between ranks of different hosts; of several, the one that is last in the registry; null: none.
  Transport* between_hosts = nullptr;

  // kSystemError if this rank and another one of its host cannot share memory and no other transport connects them.
  // Rank 0 logs once per job which ranks cannot.
  [[nodiscard]] Status check_shared_memory() const;
  // The transports that this rank or others use, "shm+tcp"; empty: none.
  [[nodiscard]] std::string describe_transports() const;
  // Replaces the address table by one with the transports' descriptions.
  Status hear(std::vector<PeerInfo> book);
  // Gives the transports their descriptions of all ranks.
  Status inform_transports();

 private:
  friend Result<Membership> make_membership(int rank, Settings settings, RankTable<PeerInfo> peers,
                                            RankTable<RankSettings> told, Transports transports, const SplitFrom* from);
  // `own`: the machines of these ranks.
  void count_ranks(Machines own, const SplitFrom* from);
  // Sets what the descriptions of all ranks determine together.
  void combine();
  // Sets `graph` and its related fields.
  Status describe_machines(const SplitFrom* from);
  // Determines the transports between and within hosts, from the present descriptions.
  void resolve();
};

// `settings`: with rank 0's values. `transports`: that they name. `told`: of the same ranks.
Result<Membership> make_membership(int rank, Settings settings, RankTable<PeerInfo> peers, RankTable<RankSettings> told,
                                   Transports transports, const SplitFrom* from);
// Of ranks that have told their settings in their PeerInfo. REQUIRES: peers[i].rank == i.
Result<Membership> make_membership(int rank, Settings settings, std::vector<PeerInfo> peers, Transports transports,
                                   const SplitFrom* from = nullptr);

}  // namespace tutti::internal
