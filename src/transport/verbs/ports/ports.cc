#include "transport/verbs/ports/ports.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>

#include "transport/verbs/options.h"

namespace tutti::internal::transport::verbs {
namespace {

template <class T>
bool is_within(T value, std::int64_t low, std::int64_t high) {
  return static_cast<std::int64_t>(value) >= low && static_cast<std::int64_t>(value) <= high;
}

// False if a port cannot have these values.
bool take(net::Unpacker* unpacker, Port* p) {
  p->device = unpacker->text();
  p->port = unpacker->number<std::int32_t>();
  const auto fabric = unpacker->number<std::uint8_t>();
  p->fabric = static_cast<Fabric>(fabric);
  p->gid_index = unpacker->number<std::int32_t>();
  unpacker->raw(p->gid.data(), p->gid.size());
  p->gid_type = unpacker->text();
  p->netdev = unpacker->text();
  p->address = unpacker->text();
  p->subnet = unpacker->text();
  p->lid = unpacker->number<std::uint16_t>();
  p->mtu_bytes = unpacker->number<std::int32_t>();
  p->gbits = std::bit_cast<double>(unpacker->number<std::uint64_t>());
  p->numa_node = unpacker->number<std::int32_t>();
  p->near = unpacker->number<std::uint8_t>() != 0;
  return unpacker->ok() && is_within(p->port, 1, 255) && is_within(fabric, 0, static_cast<int>(Fabric::kIwarp)) &&
         is_within(p->gid_index, 0, kMostGidIndex) && is_within(p->mtu_bytes, 256, 4096) && std::isfinite(p->gbits) &&
         p->gbits >= 0 && is_within(p->numa_node, -1, 1 << 16);
}

// A GID with an IPv4 address cannot reach an IPv6 address, and RoCE version 1 cannot reach version 2.
bool can_talk(const Port& a, const Port& b) {
  const auto is_ipv6 = [](const Port& p) { return p.address.find(':') != std::string::npos; };
  return a.fabric == b.fabric && a.gid_type == b.gid_type && is_ipv6(a) == is_ipv6(b);
}

bool same_subnet(const Port& a, const Port& b) {
  return !a.subnet.empty() && a.subnet == b.subnet;
}

// The number of ports for one rank, if its machine's ports are divided among its ranks.
int share_of(std::size_t ports, int ranks) {
  return std::clamp(static_cast<int>(ports) / std::max(ranks, 1), 1, kMostChosenRails);
}

// The position of each port in a rank's order of preference: near ports first, rotated by the ports that the ranks
// before it take.
std::vector<int> preferences(const std::vector<Port>& ports, LocalPosition local, int rails) {
  std::vector<int> order;
  for (const bool near : {true, false}) {
    const std::size_t begin = order.size();
    for (std::size_t i = 0; i < ports.size(); ++i) {
      if (ports[i].near == near) order.push_back(static_cast<int>(i));
    }
    const auto count = static_cast<std::int64_t>(order.size() - begin);
    if (count == 0) continue;
    const std::int64_t rotation = (std::int64_t{std::max(local.local_rank, 0)} * rails) % count;
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin);
    std::rotate(first, first + rotation, order.end());
  }
  std::vector<int> preference(ports.size());
  for (std::size_t i = 0; i < order.size(); ++i) preference[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  return preference;
}

}  // namespace

const char* name_of(Fabric fabric) {
  switch (fabric) {
    case Fabric::kInfiniband: return "InfiniBand";
    case Fabric::kRoce: return "RoCE";
    case Fabric::kIwarp: return "iWARP";
  }
  return "?";
}

void pack(net::Packer* packer, const std::vector<Port>& ports) {
  packer->number(static_cast<std::uint32_t>(ports.size()));
  for (const Port& p : ports) {
    packer->text(p.device).number(p.port).number(static_cast<std::uint8_t>(p.fabric)).number(p.gid_index);
    packer->raw(p.gid.data(), p.gid.size()).text(p.gid_type).text(p.netdev).text(p.address).text(p.subnet);
    packer->number(p.lid).number(p.mtu_bytes).number(std::bit_cast<std::uint64_t>(p.gbits)).number(p.numa_node);
    packer->number(static_cast<std::uint8_t>(p.near));
  }
}

bool unpack(net::Unpacker* unpacker, std::vector<Port>* ports) {
  const auto count = unpacker->number<std::uint32_t>();
  if (count > kMaxRails) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!take(unpacker, &ports->emplace_back())) return false;
  }
  return unpacker->ok();
}

std::vector<Rail> pair_ports(const std::vector<Port>& a, LocalPosition local_a, const std::vector<Port>& b,
                             LocalPosition local_b, int wanted_rails) {
  const int rails = wanted_rails > 0
                        ? wanted_rails
                        : std::min(share_of(a.size(), local_a.local_ranks), share_of(b.size(), local_b.local_ranks));
  const std::vector<int> preference_a = preferences(a, local_a, rails);
  const std::vector<int> preference_b = preferences(b, local_b, rails);
  // Best first: few far ports; then ports with the same name, which a rail-optimised network joins; then the preference
  // of the lower rank, then of the other.
  const auto name = [](const Port& port) { return std::tie(port.device, port.port); };
  std::vector<std::tuple<int, int, int, Rail>> candidates;
  for (const bool subnets : {true, false}) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < b.size(); ++j) {
        if (!can_talk(a[i], b[j]) || (subnets && !same_subnet(a[i], b[j]))) continue;
        const int rank = 2 * (!a[i].near + !b[j].near) + (name(a[i]) == name(b[j]) ? 0 : 1);
        candidates.emplace_back(rank, preference_a[i], preference_b[j], Rail{static_cast<int>(i), static_cast<int>(j)});
      }
    }
    if (!candidates.empty()) break;
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& x, const auto& y) {
    return std::tie(std::get<0>(x), std::get<1>(x), std::get<2>(x)) <
           std::tie(std::get<0>(y), std::get<1>(y), std::get<2>(y));
  });
  std::vector<Rail> chosen;
  for (const auto& candidate : candidates) {
    const Rail& rail = std::get<Rail>(candidate);
    const bool taken =
        std::any_of(chosen.begin(), chosen.end(), [&](const Rail& r) { return r.a == rail.a || r.b == rail.b; });
    // The fabric must be the same for all.
    const bool same_fabric =
        chosen.empty() || a[static_cast<std::size_t>(rail.a)].fabric == a[static_cast<std::size_t>(chosen[0].a)].fabric;
    if (!taken && same_fabric && static_cast<int>(chosen.size()) < rails) chosen.push_back(rail);
  }
  return chosen;
}

}  // namespace tutti::internal::transport::verbs
