#include "epoch/job_summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.h"
#include "base/log.h"
#include "base/nccl_variables.h"
#include "base/rank_list.h"
#include "base/version.h"
#include "net/address.h"
#include "transport/adapter.h"

namespace tutti::internal {
namespace {

constexpr std::size_t kMostHosts = 8;  // that are named

std::string describe_ranks(const Membership& m) {
  std::string text = fmt::format("tutti {}, {} rank{} on {} host{}: ", library_version(), m.ranks(),
                                 m.ranks() == 1 ? "" : "s", m.hosts.size(), m.hosts.size() == 1 ? "" : "s");
  for (std::size_t h = 0; h < std::min(m.hosts.size(), kMostHosts); ++h) {
    const PeerInfo& first = m.peers[static_cast<std::size_t>(m.hosts[h].front())];
    text += fmt::format("{}{} {}", h == 0 ? "" : "; ", first.hostname, list_ranks(m.hosts[h]));
  }
  if (m.hosts.size() > kMostHosts) text += fmt::format("; {} more", m.hosts.size() - kMostHosts);
  return text;
}

std::string describe_ways(const Membership& m) {
  std::string text;
  if (m.within_hosts != nullptr)
    text = fmt::format("{} within {}", m.within_hosts->name(), m.hosts.size() > 1 ? "hosts" : "the host");
  if (m.between_hosts != nullptr) {
    text += fmt::format("{}{} between hosts", text.empty() ? "" : ", ", m.between_hosts->name());
  }
  const std::vector<std::string>& addresses = m.peers.front().tcp_addresses;
  if (addresses.empty()) return text.empty() ? "no transport" : text;
  text += fmt::format("{}rank 0 is reached at {}", text.empty() ? "" : "; ", addresses.front());
  const auto address = net::parse_address(addresses.front());
  const std::string interface = address.is_ok() ? net::interface_of(address.value().with_port(0)) : std::string();
  return interface.empty() ? text : fmt::format("{} ({})", text, interface);
}

std::string_view describe_encryption(Encryption encryption) {
  switch (encryption) {
    case Encryption::kOn: return "connections between processes are encrypted (TLS 1.3)";
    case Encryption::kWan:
      return "connections that leave the networks of a host are encrypted (TLS 1.3), others are not";
    case Encryption::kOff: break;
  }
  return "connections between processes are not encrypted";
}

void log_job(const Membership& membership, std::int64_t joined_ms) {
  log::info(describe_ranks(membership));
  log::info(describe_ways(membership));
  log::info(std::string(describe_encryption(membership.settings.encrypt)));
  std::string given;
  for (const std::string& variable : given_variables()) {
    given += fmt::format("{}{}", given.empty() ? "" : ", ", variable);
  }
  log::info(given.empty() ? "the environment sets no variable of tutti"
                          : fmt::format("the environment sets {}", given));
  log::info(fmt::format("the ranks have joined in {} ms", joined_ms));
}

}  // namespace

void log_joined(const Membership& membership, const Secret& secret, std::int64_t joined_ms) {
  std::uint64_t job = 0;
  std::memcpy(&job, secret.data(), sizeof job);
  const bool first = log::add_rank(job, membership.rank);
  if (first && membership.rank == 0) {
    if (const std::string ignored = ignored_nccl_variables(); !ignored.empty()) log::warn(ignored);
  }
  if (!first || !log::enabled(log::Level::kInfo)) return;
  if (membership.rank == 0) log_job(membership, joined_ms);
  const std::string lacks = fmt::format("{}{}", membership.oversubscribed ? ", more ranks than processors" : "",
                                        membership.machine.lack_of_time());
  if (!lacks.empty()) log::info(fmt::format("rank {}: {}", membership.rank, lacks.substr(2)));
}

}  // namespace tutti::internal
