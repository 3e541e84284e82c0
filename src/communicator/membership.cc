#include "communicator/membership.h"

#include <sched.h>

#include <algorithm>
#include <bitset>
#include <sstream>
#include <utility>

#include "base/log.h"

namespace tutti::internal {
namespace {

constexpr std::size_t kMaxCpus = CPU_SETSIZE;
using CpuMask = std::bitset<kMaxCpus>;

CpuMask own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CpuMask mask;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return mask.set(0);
  for (std::size_t i = 0; i < kMaxCpus; ++i) mask[i] = CPU_ISSET(i, &set) != 0;
  return mask;
}

// Hexadecimal, least significant digit first, without trailing zeros.
std::string to_text(const CpuMask& mask) {
  std::string text;
  for (std::size_t i = 0; i < kMaxCpus; i += 4) {
    unsigned digit = 0;
    for (std::size_t j = 0; j < 4; ++j) digit |= static_cast<unsigned>(mask[i + j]) << j;
    text += "0123456789abcdef"[digit];
  }
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

CpuMask mask_from_text(const std::string& text) {
  CpuMask mask;
  for (std::size_t i = 0; i < text.size() && i < kMaxCpus / 4; ++i) {
    const std::size_t digit = std::string("0123456789abcdef").find(text[i]);
    for (std::size_t j = 0; j < 4 && digit != std::string::npos; ++j) mask[i * 4 + j] = (digit >> j & 1) != 0;
  }
  return mask;
}

// PeerInfo::settings is lines of key=value.
std::string setting(const PeerInfo& peer, const std::string& key) {
  std::istringstream lines(peer.settings);
  for (std::string line; std::getline(lines, line);) {
    if (line.compare(0, key.size() + 1, key + "=") == 0) return line.substr(key.size() + 1);
  }
  return {};
}

bool may_share_memory(const PeerInfo& a, const PeerInfo& b, const Transports& t) {
  return t.shm && a.same_machine(b) && (!t.shm_within_namespace_only || a.network_namespace == b.network_namespace);
}

// Ranks per processor on the machine of `of`.
double machine_load(const std::vector<PeerInfo>& peers, const PeerInfo& of) {
  CpuMask cpus;
  std::size_t ranks = 0;
  for (const PeerInfo& p : peers) {
    if (p.rank != of.rank && !p.same_machine(of)) continue;
    cpus |= mask_from_text(setting(p, "cpus"));
    ++ranks;
  }
  return static_cast<double>(ranks) / static_cast<double>(std::max<std::size_t>(1, cpus.count()));
}

// Of the longest messages of all ranks that take turns on a processor. Beyond, the turns of one operation are so many
// that it averages over where the scheduler puts the ranks, and a move costs more than it helps. All-reduce on two
// processors, time with homes over time without: eight ranks 0.75 at 512 KiB, 0.8 to 0.95 at 2 MiB, 0.95 to 1.05 at
// 4 MiB, 1.0 to 1.1 at 8 MiB; four ranks 0.85 to 0.95 at 2 MiB, 0.9 to 1.1 at 4 MiB.
constexpr double kHomeBytes = 1152 * 1024;

// The ranks of a machine that may all use the same processors, shared out evenly: the same number on each, neighbours
// on one. -1 where they do not divide evenly: an even share of several jobs is then better left to the scheduler.
int home_of(const std::vector<PeerInfo>& peers, const PeerInfo& self) {
  const CpuMask cpus = mask_from_text(setting(self, "cpus"));
  std::size_t ranks = 0;
  std::size_t before = 0;
  for (const PeerInfo& p : peers) {
    if (p.rank != self.rank && !p.same_machine(self)) continue;
    if (mask_from_text(setting(p, "cpus")) != cpus) return -1;
    if (p.rank < self.rank) ++before;
    ++ranks;
  }
  if (cpus.none() || ranks % cpus.count() != 0) return -1;
  std::size_t cpu = 0;
  for (std::size_t left = before * cpus.count() / ranks; !cpus[cpu] || left-- > 0;) ++cpu;
  return static_cast<int>(cpu);
}

}  // namespace

Result<PeerInfo> describe_self(int rank, const Settings& settings) {
  auto info = PeerInfo::local(rank);
  if (!info.is_ok()) return info;
  info->settings = "cpus=" + to_text(own_cpus()) + "\ntransports=" + settings.transports +
                   "\nalgorithm=" + settings.algorithm + "\ncheck=" + (settings.strict ? "strict" : "") + "\n";
  return info;
}

Result<Membership> make_membership(int rank, std::vector<PeerInfo> peers) {
  Membership m;
  m.rank = rank;
  m.peers = std::move(peers);
  const auto transports = parse_transports(setting(m.peers[0], "transports"));
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
  m.crowded = machine_load(m.peers, m.peers[static_cast<std::size_t>(rank)]) > 1;
  if (m.crowded) {
    const PeerInfo& self = m.peers[static_cast<std::size_t>(rank)];
    m.home = home_of(m.peers, self);
    m.home_step_bytes = static_cast<std::size_t>(kHomeBytes / machine_load(m.peers, self));
  }
  for (const std::vector<int>& host : m.hosts) {
    m.load = std::max(m.load, machine_load(m.peers, m.peers[static_cast<std::size_t>(host[0])]));
  }
  m.one_process =
      std::all_of(m.peers.begin(), m.peers.end(), [&](const PeerInfo& p) { return p.process == m.peers[0].process; });
  m.algorithm = setting(m.peers[0], "algorithm");
  m.strict = setting(m.peers[0], "check") == "strict";
  m.transports = transports.value();
  m.rails = static_cast<int>(parse_integer(setting(m.peers[0], "rails"), 0, transport::verbs::kMaxRails).value_or(0));
  m.queue_pairs =
      static_cast<int>(parse_integer(setting(m.peers[0], "queue_pairs"), 1, transport::verbs::kMaxRails).value_or(1));
  for (const PeerInfo& p : m.peers) {
    Rdma rdma;
    rdma.trouble = setting(p, "rdma_trouble");
    if (const std::string text = setting(p, "rdma"); !text.empty()) {
      auto ports = transport::verbs::ports_from_text(text);
      if (!ports.is_ok()) return ports.status().with_context("rank " + std::to_string(p.rank));
      rdma.ports = std::move(*ports);
    }
    m.rdma.push_back(std::move(rdma));
  }
  m.verbs_with.resize(m.peers.size());
  return m;
}

std::string describe_rdma(const Rdma& rdma, const transport::verbs::Options& options) {
  std::string trouble = rdma.trouble;
  std::replace(trouble.begin(), trouble.end(), '\n', ' ');
  return "rdma=" + transport::verbs::to_text(rdma.ports) + "\nrdma_trouble=" + trouble +
         "\nrails=" + std::to_string(options.rails) + "\nqueue_pairs=" + std::to_string(options.queue_pairs) + "\n";
}

transport::verbs::Seat Membership::seat(int of) const {
  transport::verbs::Seat seat{0, 0};
  const PeerInfo& self = peers[static_cast<std::size_t>(of)];
  for (const PeerInfo& p : peers) {
    if (p.rank != of && !p.same_machine(self)) continue;
    if (p.rank < of) ++seat.index;
    ++seat.ranks;
  }
  return seat;
}

std::string Membership::trouble_between(int a, int b) const {
  for (const int other : {a, b}) {
    const auto at = static_cast<std::size_t>(other);
    if (!rdma[at].ports.empty()) continue;
    return "rank " + std::to_string(other) + " (host " + peers[at].hostname + ") cannot use RDMA: " + rdma[at].trouble;
  }
  const auto& ports_a = rdma[static_cast<std::size_t>(a)].ports;
  const auto& ports_b = rdma[static_cast<std::size_t>(b)].ports;
  if (!transport::verbs::pair_ports(ports_a, seat(a), ports_b, seat(b), rails).empty()) return {};
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
