// What this rank knows of the job's machine: who runs where, which transports are allowed, and what
// follows from that for selection and waiting. Every rank derives the same from the same address book.
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

// When this rank wants to read the memory of other processes: TUTTI_CROSS_MEMORY, and never if that leaves it open and
// the kernel is slow (memory::reads_of_processes_pay()).
MemoryReads reads_processes(const Settings& settings);
// This rank's PeerInfo but for its addresses. `memory_trouble`: RankSettings'.
Result<PeerInfo> describe_self(int rank, const Settings& settings, const std::string& memory_trouble = "");

// What a rank tells the others of its machine and its settings: PeerInfo::settings, packed.
struct RankSettings {
  topology::ProcessorSet cpus;             // that it may use
  std::vector<topology::CpuQuota> quotas;  // of the control groups that it is in
  double known_load = 0;                   // known_load(), when it joined
  topology::Place place;                   // of those processors
  double port_gbits = 0;                   // of the interface that others reach it by; 0: unknown
  // What one of them has of a level-2 cache, if all that share it use it alike; 0: not told.
  std::uint64_t level2_bytes = 0;
  MemoryReads reads_processes = MemoryReads::kNever;
  std::string memory_trouble;  // why it cannot share memory with other processes; empty: it can
  bool cuda_memory = false;    // its buffers are in the memory of a CUDA device
  // Of these rank 0's hold.
  std::string algorithm;
  std::string tuning;    // what the file says that Settings::tuning names
  std::string topology;  // likewise
  bool strict = false;
  // By transport, what it must tell of this rank (Transport::tell); empty before.
  std::map<std::string, std::string, std::less<>> by_transport;

  [[nodiscard]] std::string pack() const;
  static Result<RankSettings> unpack(const std::string& bytes);
};

struct Membership;
// Of a communicator that comes from another by a split.
struct SplitFrom {
  const Membership& parent;
  const std::vector<int>& members;  // ranks of the parent, by rank
};

struct Membership : Ranks {
  // Of the communicator that joined, from which this one has come by splits; which of its ranks those here are, by
  // rank; and the load of this rank's machine, as announce_load().
  std::shared_ptr<const Machines> job;
  std::vector<std::size_t> job_ranks;
  std::shared_ptr<const double> announced;
  MachineRanks machine;          // this rank's
  int preferred_processor = -1;  // where oversubscribed, the processor on which this rank takes turns; -1: any
  std::size_t preferred_processor_step_bytes = 0;  // the longest message of operations in which it keeps to that
  bool one_machine = true;                         // all ranks are on it; the same on every rank
  double ranks_per_cpu = 1;  // ranks per processor on the machine with most; the same on every rank
  std::string algorithm;     // forced, by rank 0's TUTTI_ALGORITHM; empty: none
  std::shared_ptr<const selection::Tuning> tuning;  // rank 0's TUTTI_TUNING; null: none
  // The machines of these ranks: by rank 0's TUTTI_TOPOLOGY, else hosts, packages and NUMA nodes as ranks have told.
  // The same on every rank.
  std::shared_ptr<const topology::Graph> graph;
  bool described = false;  // by a file
  bool strict = false;     // every call is compared on all ranks, by rank 0's TUTTI_CHECK
  // Of the transports; the same on every rank. Of ranks on one host; null: no host has two that are connected.
  Transport* within_hosts = nullptr;
  // Of ranks on different hosts, of several transports the one that comes last in the registry; null: none.
  Transport* between_hosts = nullptr;

  // kSystemError if this rank and another one of its host can share none and no other transport connects them. Rank 0's
  // log says which ranks cannot, once a job.
  [[nodiscard]] Status check_shared_memory() const;
  // The transports that this rank or others use, "shm+tcp"; empty: none.
  [[nodiscard]] std::string describe_transports() const;
  // The address book anew, with what the transports of all ranks had to tell.
  Status hear(std::vector<PeerInfo> book);

 private:
  friend Result<Membership> make_membership(int rank, std::vector<PeerInfo> peers, Transports transports,
                                            const SplitFrom* from);
  void count_ranks(const std::vector<RankSettings>& told, const SplitFrom* from);
  // `graph` and what comes with it.
  Status describe_machines(const std::vector<RankSettings>& told, const SplitFrom* from);
  // Which transports connect the hosts, by what has been told so far.
  void resolve();
};

// `transports`: by rank 0's setting. REQUIRES: peers[i].rank == i.
Result<Membership> make_membership(int rank, std::vector<PeerInfo> peers, Transports transports,
                                   const SplitFrom* from = nullptr);

}  // namespace tutti::internal
