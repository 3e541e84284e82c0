#include "epoch/machine_load.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include "epoch/membership.h"
#include "join/peer_info.h"
#include "os/fork.h"

namespace tutti::internal {
namespace {

// Ranks of one control group, and its quota.
struct ControlGroupRanks {
  std::size_t ranks = 0;
  std::uint32_t millicpus = 0;
};

struct Announced {
  std::weak_ptr<const double> load;
  pid_t owner = 0;
};

// Never destroyed: communicators may outlive static objects.
ForkMutex& mutex = *new ForkMutex;
std::vector<Announced>& announced TUTTI_GUARDED_BY(mutex) = *new std::vector<Announced>;

}  // namespace

double MachineRanks::own_ranks_per_cpu() const {
  return static_cast<double>(ranks) / static_cast<double>(std::max<std::size_t>(1, cpus.count()));
}

double MachineRanks::ranks_per_cpu() const {
  return std::max(own_ranks_per_cpu(), known);
}

std::string MachineRanks::lack_of_time() const {
  if (std::min(group_ranks, cpus.count()) * 1000 <= group_millicpus) return "";
  return fmt::format(", a control group limits {} of them to the time of {:.2f} processors", group_ranks,
                     group_millicpus / 1000.0);
}

Machines find_machines(const RankTable<PeerInfo>& peers, const RankTable<RankSettings>& told) {
  Machines machines;
  std::vector<std::map<std::uint64_t, ControlGroupRanks>> groups;
  std::map<std::array<std::uint8_t, 16>, std::size_t> by_boot;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    std::size_t at = rank > 0 ? machines.of.back() : 0;
    if (rank == 0 || !peers[rank].same_machine(peers[rank - 1])) {
      // A machine without an identity equals no other.
      const auto known = by_boot.find(peers[rank].boot);
      const bool is_new = known == by_boot.end() || !peers[rank].same_machine(peers[rank]);
      at = is_new ? machines.all.size() : known->second;
      if (is_new) {
        by_boot[peers[rank].boot] = at;
        machines.all.emplace_back().first = rank;
        groups.emplace_back();
      }
    }
    machines.of.push_back(at);
    MachineRanks& machine = machines.all[at];
    ++machine.ranks;
    machine.cpus |= told[rank].cpus;
    machine.known = std::max(machine.known, told[rank].known_load);
    for (const topology::CpuQuota& quota : told[rank].quotas) {
      ControlGroupRanks& group = groups[at][quota.group];
      ++group.ranks;
      group.millicpus = group.millicpus == 0 ? quota.millicpus : std::min(group.millicpus, quota.millicpus);
    }
  }
  for (std::size_t at = 0; at < groups.size(); ++at) {
    MachineRanks& machine = machines.all[at];
    for (const auto& [id, group] : groups[at]) {
      const bool is_worse =
          machine.group_ranks == 0 || group.ranks * machine.group_millicpus > machine.group_ranks * group.millicpus;
      if (!is_worse) continue;
      machine.group_ranks = group.ranks;
      machine.group_millicpus = group.millicpus;
    }
  }
  return machines;
}

std::shared_ptr<const double> announce_load(double ranks_per_cpu) {
  auto load = std::make_shared<const double>(ranks_per_cpu);
  const MutexLock lock(mutex);
  std::erase_if(announced, [](const Announced& entry) { return entry.load.expired(); });
  announced.push_back({load, ::getpid()});
  return load;
}

double known_load() {
  double most = 0;
  const MutexLock lock(mutex);
  for (const Announced& entry : announced) {
    const auto load = entry.load.lock();
    if (load != nullptr && entry.owner == ::getpid()) most = std::max(most, *load);
  }
  return most;
}

}  // namespace tutti::internal
