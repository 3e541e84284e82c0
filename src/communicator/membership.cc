#include "communicator/membership.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "net/frame.h"

namespace tutti::internal {
namespace {

using topology::ProcessorSet;

// In bytes, without those at the end that have none.
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

bool may_share_memory(const PeerInfo& a, const PeerInfo& b, const Transports& t) {
  return t.shm && a.same_machine(b) && (!t.shm_within_namespace_only || a.network_namespace == b.network_namespace);
}

// Ranks per processor on the machine of `of`. `told`: by rank, as `peers`.
double machine_ranks_per_cpu(const std::vector<PeerInfo>& peers, const std::vector<RankSettings>& told,
                             const PeerInfo& of) {
  ProcessorSet cpus;
  std::size_t ranks = 0;
  for (const PeerInfo& p : peers) {
    if (p.rank != of.rank && !p.same_machine(of)) continue;
    cpus |= told[static_cast<std::size_t>(p.rank)].cpus;
    ++ranks;
  }
  return static_cast<double>(ranks) / static_cast<double>(std::max<std::size_t>(1, cpus.count()));
}

// Of the longest messages of all ranks that take turns on a processor. Beyond, the turns of one operation are so many
// that it averages over where the scheduler puts the ranks, and a move costs more than it helps. All-reduce on two
// processors, time with preferred processors over time without: eight ranks 0.75 at 512 KiB, 0.8 to 0.95 at 2 MiB, 0.95
// to 1.05 at 4 MiB, 1.0 to 1.1 at 8 MiB; four ranks 0.85 to 0.95 at 2 MiB, 0.9 to 1.1 at 4 MiB.
constexpr double kPreferredProcessorBytes = 1152 * 1024;

// The ranks of a machine that may all use the same processors, shared out evenly: the same number on each, neighbours
// on one. -1 where they do not divide evenly: an even share of several jobs is then better left to the scheduler.
int preferred_processor_of(const std::vector<PeerInfo>& peers, const std::vector<RankSettings>& told,
                           const PeerInfo& self) {
  const ProcessorSet& cpus = told[static_cast<std::size_t>(self.rank)].cpus;
  std::size_t ranks = 0;
  std::size_t before = 0;
  for (const PeerInfo& p : peers) {
    if (p.rank != self.rank && !p.same_machine(self)) continue;
    if (told[static_cast<std::size_t>(p.rank)].cpus != cpus) return -1;
    if (p.rank < self.rank) ++before;
    ++ranks;
  }
  if (cpus.none() || ranks % cpus.count() != 0) return -1;
  std::size_t cpu = 0;
  for (std::size_t left = before * cpus.count() / ranks; !cpus[cpu] || left-- > 0;) ++cpu;
  return static_cast<int>(cpu);
}

}  // namespace

std::string RankSettings::pack() const {
  net::Packer packer;
  packer.text(bytes_of(cpus))
      .number(level2_bytes)
      .text(transports)
      .text(algorithm)
      .number(static_cast<std::uint8_t>(strict));
  packer.text(rdma.trouble).number(rails).number(queue_pairs);
  transport::verbs::pack(&packer, rdma.ports);
  return packer.bytes();
}

Result<RankSettings> RankSettings::unpack(const std::string& bytes) {
  net::Unpacker unpacker(bytes);
  RankSettings settings;
  settings.cpus = mask_of(unpacker.text());
  settings.level2_bytes = unpacker.number<std::uint64_t>();
  settings.transports = unpacker.text();
  settings.algorithm = unpacker.text();
  settings.strict = unpacker.number<std::uint8_t>() != 0;
  settings.rdma.trouble = unpacker.text();
  settings.rails = unpacker.number<std::int32_t>();
  settings.queue_pairs = unpacker.number<std::int32_t>();
  constexpr int kMost = transport::verbs::kMaxRails;
  const bool read = transport::verbs::unpack(&unpacker, &settings.rdma.ports) && unpacker.complete();
  if (!read || settings.rails < 0 || settings.rails > kMost || settings.queue_pairs < 1 ||
      settings.queue_pairs > kMost) {
    return Status::remote("a peer's settings cannot be read");
  }
  return settings;
}

Result<PeerInfo> describe_self(int rank, const Settings& settings) {
  auto info = PeerInfo::local(rank);
  if (!info.is_ok()) return info;
  RankSettings told;
  told.cpus = topology::allowed_processors();
  told.level2_bytes = topology::this_machine().level2_share_bytes(told.cpus);
  told.transports = settings.transports;
  told.algorithm = settings.algorithm;
  told.strict = settings.strict;
  info->settings = told.pack();
  return info;
}

Result<Membership> make_membership(int rank, std::vector<PeerInfo> peers) {
  Membership m;
  m.rank = rank;
  m.peers = std::move(peers);
  std::vector<RankSettings> told;
  for (const PeerInfo& p : m.peers) {
    auto settings = RankSettings::unpack(p.settings);
    if (!settings.is_ok()) return settings.status().with_context("rank " + std::to_string(p.rank));
    told.push_back(std::move(*settings));
  }
  const RankSettings& first = told[0];
  const auto transports = parse_transports(first.transports);
  if (!transports.is_ok()) return transports.status().with_context("rank 0");
  for (const PeerInfo& p : m.peers) {
    const auto host = std::find_if(m.hosts.begin(), m.hosts.end(), [&](const std::vector<int>& ranks) {
      return may_share_memory(m.peers[static_cast<std::size_t>(ranks[0])], p, transports.value());
    });
    if (host == m.hosts.end()) {
      m.hosts.push_back({p.rank});
    } else {
      host->push_back(p.rank);
    }
  }
  m.oversubscribed = machine_ranks_per_cpu(m.peers, told, m.peers[static_cast<std::size_t>(rank)]) > 1;
  if (m.oversubscribed) {
    const PeerInfo& self = m.peers[static_cast<std::size_t>(rank)];
    m.preferred_processor = preferred_processor_of(m.peers, told, self);
    m.preferred_processor_step_bytes =
        static_cast<std::size_t>(kPreferredProcessorBytes / machine_ranks_per_cpu(m.peers, told, self));
  }
  for (const std::vector<int>& host : m.hosts) {
    m.ranks_per_cpu =
        std::max(m.ranks_per_cpu, machine_ranks_per_cpu(m.peers, told, m.peers[static_cast<std::size_t>(host[0])]));
  }
  m.level2_bytes = SIZE_MAX;
  for (const RankSettings& one : told) {
    m.level2_bytes =
        std::min<std::size_t>(m.level2_bytes, one.level2_bytes != 0 ? one.level2_bytes : kUsualLevel2Bytes);
  }
  m.one_process =
      std::all_of(m.peers.begin(), m.peers.end(), [&](const PeerInfo& p) { return p.process == m.peers[0].process; });
  m.algorithm = first.algorithm;
  m.strict = first.strict;
  m.transports = transports.value();
  m.rails = first.rails;
  m.queue_pairs = first.queue_pairs;
  for (RankSettings& settings : told) m.rdma.push_back(std::move(settings.rdma));
  m.verbs_with.resize(m.peers.size());
  return m;
}

Status add_rdma(Rdma rdma, const transport::verbs::Options& options, PeerInfo* self) {
  auto told = RankSettings::unpack(self->settings);
  if (!told.is_ok()) return told.status();
  told->rdma = std::move(rdma);
  told->rails = options.rails;
  told->queue_pairs = options.queue_pairs;
  self->settings = told->pack();
  return {};
}

transport::verbs::LocalPosition Membership::local_position(int of) const {
  transport::verbs::LocalPosition local{0, 0};
  const PeerInfo& self = peers[static_cast<std::size_t>(of)];
  for (const PeerInfo& p : peers) {
    if (p.rank != of && !p.same_machine(self)) continue;
    if (p.rank < of) ++local.local_rank;
    ++local.local_ranks;
  }
  return local;
}

std::string Membership::trouble_between(int a, int b) const {
  for (const int other : {a, b}) {
    const auto at = static_cast<std::size_t>(other);
    if (!rdma[at].ports.empty()) continue;
    return "rank " + std::to_string(other) + " (host " + peers[at].hostname + ") cannot use RDMA: " + rdma[at].trouble;
  }
  const auto& ports_a = rdma[static_cast<std::size_t>(a)].ports;
  const auto& ports_b = rdma[static_cast<std::size_t>(b)].ports;
  if (!transport::verbs::pair_ports(ports_a, local_position(a), ports_b, local_position(b), rails).empty()) return {};
  return "no RDMA port of rank " + std::to_string(a) + " reaches one of rank " + std::to_string(b) +
         " (another fabric)";
}

Status Membership::resolve_rdma() {
  const auto& own_host = *std::find_if(hosts.begin(), hosts.end(), [&](const std::vector<int>& host) {
    return std::find(host.begin(), host.end(), rank) != host.end();
  });
  bool told = false;
  for (int other = 0; other < ranks(); ++other) {
    if (std::find(own_host.begin(), own_host.end(), other) != own_host.end()) continue;
    const std::string trouble = trouble_between(std::min(rank, other), std::max(rank, other));
    verbs_with[static_cast<std::size_t>(other)] = trouble.empty();
    if (trouble.empty()) continue;
    if (!transports.tcp) return Status(Code::kSystemError, trouble + " (TUTTI_TRANSPORTS names verbs, but not tcp)");
    if (std::exchange(told, true)) continue;
    const std::string line = "rank " + std::to_string(rank) + ": TCP instead of RDMA: " + trouble;
    transports.verbs_asked ? log::warn(line) : log::info(line);
  }
  all_verbs = true;
  for (int other = 1; other < ranks(); ++other) all_verbs = all_verbs && trouble_between(0, other).empty();
  return {};
}

}  // namespace tutti::internal
