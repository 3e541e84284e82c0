#include "epoch/membership.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "base/log.h"
#include "base/rank_list.h"
#include "memory/device_name.h"
#include "memory/process_reads.h"
#include "net/address.h"
#include "net/frame.h"
#include "topology/cluster.h"
#include "topology/graph_json.h"
#include "transport/adapter.h"
#include "transport/shm/arena.h"

namespace tutti::internal {
namespace {

using topology::ProcessorSet;

// Limits for a rank's description of its machine, from which sizes are computed.
constexpr std::int32_t kMostPlace = 1 << 16;
constexpr std::uint64_t kLeastLevel2Bytes = std::uint64_t{16} << 10;
constexpr std::uint64_t kMostLevel2Bytes = std::uint64_t{1} << 40;
constexpr double kMostLoad = 1e6;
constexpr double kMostGbits = 1e6;

// As bytes, without zero bytes at the end.
std::string bytes_of(const ProcessorSet& mask) {
  std::string bytes;
  std::size_t used = 0;
  for (std::size_t i = 0; i < topology::kMaxProcessors; i += 8) {
    unsigned byte = 0;
    for (std::size_t j = 0; j < 8; ++j) byte |= static_cast<unsigned>(mask[i + j]) << j;
    bytes += static_cast<char>(byte);
    if (byte != 0) used = bytes.size();
  }
  bytes.resize(used);
  return bytes;
}

ProcessorSet mask_of(const std::string& bytes) {
  ProcessorSet mask;
  for (std::size_t i = 0; i < 8 * bytes.size() && i < topology::kMaxProcessors; ++i) {
    mask[i] = (static_cast<unsigned char>(bytes[i / 8]) >> i % 8 & 1) != 0;
  }
  return mask;
}

// Ranks that can share memory, by host, in rank order. Each rank is compared only with the hosts of its machine.
std::vector<std::vector<int>> hosts_of(const RankTable<PeerInfo>& peers, const Transports& transports,
                                       const Machines& machines) {
  const auto share_memory = [&](const PeerInfo& a, const PeerInfo& b) {
    return std::any_of(transports.begin(), transports.end(), [&](const auto& t) { return t->shares_memory(a, b); });
  };
  std::vector<std::vector<int>> hosts;
  std::vector<std::vector<std::size_t>> on_machine(machines.all.size());
  for (int rank = 0; rank < static_cast<int>(peers.size()); ++rank) {
    const PeerInfo& p = peers[static_cast<std::size_t>(rank)];
    std::vector<std::size_t>& near = on_machine[machines.of[static_cast<std::size_t>(rank)]];
    const auto host = std::find_if(near.begin(), near.end(), [&](std::size_t h) {
      return share_memory(peers[static_cast<std::size_t>(hosts[h][0])], p);
    });
    if (host == near.end()) {
      near.push_back(hosts.size());
      hosts.push_back({rank});
    } else {
      hosts[*host].push_back(rank);
    }
  }
  return hosts;
}

// By rank.
Result<std::vector<RankSettings>> settings_of(const std::vector<PeerInfo>& peers) {
  std::vector<RankSettings> all;
  for (const PeerInfo& p : peers) {
    auto settings = RankSettings::unpack(p.settings);
    if (!settings.is_ok()) return settings.status().with_context(fmt::format("rank {}", p.rank));
    all.push_back(std::move(*settings));
  }
  return all;
}

// Only devices cut long calls, so ranks of both kinds would run different operations.
Status check_devices(const RankTable<RankSettings>& told) {
  std::size_t other = 0;
  while (other < told.size() && told[other].cuda_memory == told[0].cuda_memory) ++other;
  if (other == told.size()) return {};
  const auto memory = [](const RankSettings& one) { return one.cuda_memory ? "a CUDA device" : "the host"; };
  return Status::invalid_usage(
      fmt::format("buffers of rank 0 are in memory of {}, but those of rank {} are in memory of {}", memory(told[0]),
                  other, memory(told[other])));
}

// Limit for the sum of the longest messages of the ranks on a processor. Beyond it, an operation takes many time
// slices, which average over the scheduler's placement, and a move costs more than it gains. All-reduce on two
// processors, time with preferred processors over time without: eight ranks 0.75 at 512 KiB, 0.8 to 0.95 at 2 MiB, 0.95
// to 1.05 at 4 MiB, 1.0 to 1.1 at 8 MiB; four ranks 0.85 to 0.95 at 2 MiB, 0.9 to 1.1 at 4 MiB.
constexpr double kPreferredProcessorBytes = 1152 * 1024;

// If the ranks of a machine may all use the same processors, distributes them evenly: the same number on each,
// neighbours on one. -1 if they do not divide evenly: then the scheduler distributes them better.
int preferred_processor_of(const RankTable<PeerInfo>& peers, const RankTable<RankSettings>& told, std::size_t self) {
  const ProcessorSet& cpus = told[self].cpus;
  std::size_t ranks = 0;
  std::size_t before = 0;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (rank != self && !peers[rank].same_machine(peers[self])) continue;
    if (told[rank].cpus != cpus) return -1;
    if (rank < self) ++before;
    ++ranks;
  }
  if (cpus.none() || ranks % cpus.count() != 0) return -1;
  std::size_t cpu = 0;
  for (std::size_t left = before * cpus.count() / ranks; !cpus[cpu] || left-- > 0;) ++cpu;
  return static_cast<int>(cpu);
}

std::vector<int> all_ranks(std::size_t count) {
  std::vector<int> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Of the loads that ranks exchange.
constexpr double kLoadUnits = 1 << 20;
constexpr double kMbitsOfGbit = 1000;

// The rate of the interface by which others reach this process best; 0: unknown.
double port_gbits_of(const std::string& filter) {
  const auto addresses = net::interface_addresses(filter);
  return addresses.is_ok() && !addresses.value().empty() ? net::gbits_of_interface(addresses.value().front()) : 0;
}

}  // namespace

std::string RankSettings::pack() const {
  net::Packer packer;
  packer.text(bytes_of(cpus)).number(static_cast<std::uint32_t>(quotas.size()));
  for (const topology::CpuQuota& quota : quotas) packer.number(quota.group).number(quota.millicpus);
  packer.number(static_cast<std::uint64_t>(known_load * kLoadUnits));
  packer.number(static_cast<std::int32_t>(place.package)).number(static_cast<std::int32_t>(place.numa_node));
  packer.number(static_cast<std::uint64_t>(port_gbits * kMbitsOfGbit)).text(topology);
  packer.number(level2_bytes).text(tuning).text(memory_trouble);
  packer.number(static_cast<std::uint8_t>(reads_processes)).number(static_cast<std::uint8_t>(cuda_memory));
  packer.number(static_cast<std::uint32_t>(by_transport.size()));
  for (const auto& [name, told] : by_transport) packer.text(name).text(told);
  return packer.bytes();
}

Result<RankSettings> RankSettings::unpack(const std::string& bytes) {
  net::Unpacker unpacker(bytes);
  RankSettings settings;
  settings.cpus = mask_of(unpacker.text());
  const auto quotas = unpacker.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < quotas && unpacker.ok(); ++i) {
    topology::CpuQuota quota;
    quota.group = unpacker.number<std::uint64_t>();
    quota.millicpus = std::max(1U, unpacker.number<std::uint32_t>());
    settings.quotas.push_back(quota);
  }
  settings.known_load = static_cast<double>(unpacker.number<std::uint64_t>()) / kLoadUnits;
  settings.place.package = unpacker.number<std::int32_t>();
  settings.place.numa_node = unpacker.number<std::int32_t>();
  settings.port_gbits = static_cast<double>(unpacker.number<std::uint64_t>()) / kMbitsOfGbit;
  settings.topology = unpacker.text();
  settings.level2_bytes = unpacker.number<std::uint64_t>();
  settings.tuning = unpacker.text();
  settings.memory_trouble = unpacker.text();
  const auto reads = unpacker.number<std::uint8_t>();
  if (reads > static_cast<std::uint8_t>(MemoryReads::kAlways)) {
    return Status::remote("protocol error: no way to read memory has the number " + std::to_string(reads));
  }
  settings.reads_processes = static_cast<MemoryReads>(reads);
  settings.cuda_memory = unpacker.number<std::uint8_t>() != 0;
  const auto count = unpacker.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && unpacker.ok(); ++i) {
    std::string name = unpacker.text();
    settings.by_transport[std::move(name)] = unpacker.text();
  }
  const auto is_place = [](int number) { return number >= -1 && number < kMostPlace; };
  const bool sensible = is_place(settings.place.package) && is_place(settings.place.numa_node) &&
                        settings.known_load <= kMostLoad && settings.port_gbits <= kMostGbits &&
                        (settings.level2_bytes == 0 ||
                         (settings.level2_bytes >= kLeastLevel2Bytes && settings.level2_bytes <= kMostLevel2Bytes));
  if (!unpacker.complete() || !sensible) return Status::remote("protocol error: its settings cannot be read");
  return settings;
}

MemoryReads reads_processes(const Settings& settings) {
  if (settings.cross_memory == MemoryReads::kAuto && !memory::reads_of_processes_pay()) return MemoryReads::kNever;
  return settings.cross_memory;
}

Result<PeerInfo> describe_self(int rank, const Settings& settings, const std::string& memory_trouble) {
  auto info = PeerInfo::local(rank);
  if (!info.is_ok()) return info;
  RankSettings told;
  told.cpus = topology::allowed_processors();
  told.quotas = topology::cpu_quotas();
  told.known_load = known_load();
  told.level2_bytes = topology::this_machine().level2_share_bytes(told.cpus);
  told.place = topology::this_machine().place_of(told.cpus);
  told.port_gbits = port_gbits_of(settings.interface);
  told.reads_processes = reads_processes(settings);
  told.memory_trouble = memory_trouble;
  if (rank == 0 && !settings.tuning.empty()) {
    auto tuning = selection::read_tuning(settings.tuning);
    if (!tuning.is_ok()) return tuning.status().with_context("TUTTI_TUNING");
    told.tuning = selection::to_json(*tuning);
  }
  if (rank == 0 && !settings.topology.empty()) {
    auto graph = topology::read_graph(settings.topology);
    if (!graph.is_ok()) return graph.status().with_code(Code::kInvalidUsage).with_context("TUTTI_TOPOLOGY");
    told.topology = topology::to_json(*graph);
  }
  told.cuda_memory = memory::is_device_name(settings.device);
  info->settings = told.pack();
  return info;
}

// A rank keeps its preferred processor in all communicators of a family. If there are ranks of other jobs, an even
// distribution of this job's ranks is not an even distribution on the processors.
void Membership::count_ranks(Machines own, const SplitFrom* from) {
  const auto self = static_cast<std::size_t>(rank);
  if (from == nullptr) {
    job = std::make_shared<Machines>(own);
    job_ranks.resize(peers.size());
    std::iota(job_ranks.begin(), job_ranks.end(), std::size_t{0});
    announced = announce_load(own.all[own.of[self]].own_ranks_per_cpu());
  } else {
    job = from->parent.job;
    announced = from->parent.announced;
    for (const int member : from->members) {
      job_ranks.push_back(from->parent.job_ranks[static_cast<std::size_t>(member)]);
    }
  }
  const auto in_job = [&](std::size_t r) -> const MachineRanks& { return job->all[job->of[job_ranks[r]]]; };
  for (MachineRanks& here : own.all) {
    here.known = here.own_ranks_per_cpu() > 1 ? in_job(here.first).ranks_per_cpu() : 0;
    ranks_per_cpu = std::max(ranks_per_cpu, here.ranks_per_cpu());
  }
  machine = own.all[own.of[self]];
  one_machine = own.all.size() == 1;
  ranks_per_cpu_here = machine.ranks_per_cpu();
  oversubscribed = ranks_per_cpu_here > 1;
  if (!oversubscribed || in_job(self).known > in_job(self).own_ranks_per_cpu()) return;
  preferred_processor = from == nullptr ? preferred_processor_of(peers, told, self) : from->parent.preferred_processor;
  preferred_processor_step_bytes = static_cast<std::size_t>(kPreferredProcessorBytes / ranks_per_cpu_here);
}

void Membership::combine() {
  level2_bytes = SIZE_MAX;
  reads_processes = MemoryReads::kAlways;
  bool in_trouble = false;
  for (const RankSettings& one : told) {
    level2_bytes = std::min<std::size_t>(level2_bytes, one.level2_bytes != 0 ? one.level2_bytes : kUsualLevel2Bytes);
    reads_processes = std::min(reads_processes, one.reads_processes);
    if (one.port_gbits > 0) port_gbits = port_gbits > 0 ? std::min(port_gbits, one.port_gbits) : one.port_gbits;
    in_trouble = in_trouble || !one.memory_trouble.empty();
  }
  if (!in_trouble) return;
  for (const RankSettings& one : told) memory_troubles.push_back(one.memory_trouble);
}

Status Membership::describe_machines(const SplitFrom* from) {
  const algorithms::World world{ranks(), hosts.size() > 1 ? algorithms::Hosts(hosts) : algorithms::Hosts()};
  if (from != nullptr && from->parent.described) {
    described = true;
    const auto& whole = from->parent.graph;
    graph = from->members == all_ranks(whole->ranks.size())
                ? whole
                : std::make_shared<const topology::Graph>(topology::part_of(*whole, from->members));
    return {};
  }
  if (from == nullptr && !told[0].topology.empty()) {
    auto file =
        parse_json(told[0].topology, "rank 0's TUTTI_TOPOLOGY", topology::kTopologyFormat, topology::kTopologyVersion);
    if (!file.is_ok()) return file.status();
    auto read = topology::graph_of(*file);
    if (!read.is_ok()) return read.status();
    // A program may also make communicators of other sizes than the file describes.
    const bool of_these = read.value().ranks.empty() || read.value().ranks.size() == peers.size();
    if (of_these) {
      if (Status s = topology::match_job(*read, world); !s.is_ok()) return s.with_context("rank 0's TUTTI_TOPOLOGY");
      described = true;
      graph = std::make_shared<const topology::Graph>(std::move(*read));
      return {};
    }
    if (rank == 0) {
      log::info(
          fmt::format("TUTTI_TOPOLOGY is not used: it describes machines with {} ranks, but the communicator has {}",
                      read.value().ranks.size(), peers.size()));
    }
  }
  if (from != nullptr && from->parent.hosts == hosts && from->members == all_ranks(from->parent.peers.size())) {
    graph = from->parent.graph;
    return {};
  }
  std::vector<topology::Place> places;
  for (const RankSettings& one : told) places.push_back(one.place);
  graph = std::make_shared<const topology::Graph>(topology::graph_of(world, places, {}));
  return {};
}

Result<Membership> make_membership(int rank, Settings settings, std::vector<PeerInfo> peers, Transports transports,
                                   const SplitFrom* from) {
  auto told = settings_of(peers);
  if (!told.is_ok()) return told.status();
  return make_membership(rank, std::move(settings), RankTable<PeerInfo>(std::move(peers)),
                         RankTable<RankSettings>(std::move(*told)), std::move(transports), from);
}

Result<Membership> make_membership(int rank, Settings settings, RankTable<PeerInfo> peers,
                                   RankTable<RankSettings> of_ranks, Transports transports, const SplitFrom* from) {
  Membership m;
  m.rank = rank;
  m.peers = std::move(peers);
  m.settings = std::move(settings);
  m.told = std::move(of_ranks);
  const RankTable<RankSettings>& told = m.told;
  m.node = topology::this_machine().node_of(told[static_cast<std::size_t>(rank)].cpus);
  m.far_nodes = topology::this_machine().far_nodes(told[static_cast<std::size_t>(rank)].cpus);
  m.transports = std::move(transports);
  Machines machines = find_machines(m.peers, told);
  m.hosts = hosts_of(m.peers, m.transports, machines);
  m.host_of.resize(m.peers.size());
  for (std::size_t h = 0; h < m.hosts.size(); ++h) {
    for (const int r : m.hosts[h]) m.host_of[static_cast<std::size_t>(r)] = static_cast<int>(h);
  }
  m.count_ranks(std::move(machines), from);
  m.combine();
  if (Status s = check_devices(told); !s.is_ok()) return s;
  if (from != nullptr) {
    m.tuning = from->parent.tuning;
  } else if (!told[0].tuning.empty()) {
    auto tuning = selection::parse_tuning(told[0].tuning, "rank 0's TUTTI_TUNING");
    if (!tuning.is_ok()) return tuning.status();
    m.tuning = std::make_shared<const selection::Tuning>(std::move(*tuning));
  }
  if (Status s = m.describe_machines(from); !s.is_ok()) return s;
  m.resolve();
  return m;
}

Status Membership::check_shared_memory() const {
  const auto of = [&](int r) -> const std::string& { return memory_troubles[static_cast<std::size_t>(r)]; };
  if (memory_troubles.empty()) return {};
  std::vector<int> troubled;
  const Transport* instead = nullptr;
  for (int r = 0; r < ranks(); ++r) {
    if (of(r).empty()) continue;
    for (int other = 0; other < ranks(); ++other) {
      if (r == other || !same_host(r, other)) continue;
      instead = connecting(r, other);
      if (instead == nullptr && (r == rank || other == rank)) {
        return Status(
            Code::kSystemError,
            fmt::format("rank {} (host {}) cannot share memory: {}. Fix: {}; or add tcp to TUTTI_TRANSPORTS", r,
                        peers[static_cast<std::size_t>(r)].hostname, of(r), transport::shm::kSharedMemoryFix));
      }
      if (troubled.empty() || troubled.back() != r) troubled.push_back(r);
    }
  }
  if (troubled.empty() || rank != 0) return {};
  log::warn(fmt::format(
      "{}: cannot share memory with the other ranks of the same host, so {} is used: rank {} (host {}): {}. Fix: {}",
      list_ranks(troubled), instead == nullptr ? "nothing" : instead->name(), troubled[0],
      peers[static_cast<std::size_t>(troubled[0])].hostname, of(troubled[0]), transport::shm::kSharedMemoryFix));
  return {};
}

std::string Membership::describe_transports() const {
  std::set<const Transport*> used = {within_hosts, between_hosts};
  for (int other = 0; other < ranks(); ++other) {
    if (other != rank) used.insert(connecting(rank, other));
  }
  std::string text;
  for (const auto& transport : transports) {
    if (!used.contains(transport.get())) continue;
    if (!text.empty()) text += '+';
    text += transport->name();
  }
  return text;
}

Status Membership::hear(std::vector<PeerInfo> book) {
  auto of_ranks = settings_of(book);
  if (!of_ranks.is_ok()) return of_ranks.status();
  peers = RankTable<PeerInfo>(std::move(book));
  told = RankTable<RankSettings>(std::move(*of_ranks));
  return inform_transports();
}

Status Membership::inform_transports() {
  for (const auto& transport : transports) {
    std::vector<std::string> of_transport;
    for (const RankSettings& one : told) {
      if (auto found = one.by_transport.find(transport->name()); found != one.by_transport.end()) {
        of_transport.push_back(found->second);
      }
    }
    if (of_transport.empty()) continue;
    if (of_transport.size() != peers.size()) {
      return Status::remote(
          fmt::format("protocol error: some ranks sent no description of their {}", transport->name()));
    }
    if (Status s = transport->hear(of_transport, *this); !s.is_ok()) return s;
  }
  resolve();
  return {};
}

void Membership::resolve() {
  within_hosts = between_hosts = nullptr;
  const auto place = [&](const Transport* of) {
    return std::find_if(transports.begin(), transports.end(), [&](const auto& t) { return t.get() == of; });
  };
  for (const std::vector<int>& host : hosts) {
    if (within_hosts == nullptr && host.size() > 1) within_hosts = connecting(host[0], host[1]);
  }
  // Pairs each rank with one of the first host, or, for ranks there, with one of the second.
  for (int r = 0; r < ranks() && hosts.size() > 1; ++r) {
    Transport* const found = connecting(r, hosts[same_host(r, hosts[0][0]) ? 1 : 0][0]);
    if (found == nullptr) continue;
    if (between_hosts == nullptr || place(found) > place(between_hosts)) between_hosts = found;
  }
}

}  // namespace tutti::internal
