// Ports without a device: their text form, the choice among the ports found, and the pairing of two ranks' ports.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "catch_compat.h"
#include "transport/verbs/ports/devices.h"

namespace tutti::internal::test {
namespace {

using namespace transport::verbs;

Port make_port(int number, const std::string& subnet = "10.0.0.0/24") {
  Port port;
  port.device = "dev" + std::to_string(number);
  port.gid_type = "RoCE v2";
  port.address = "10.0.0." + std::to_string(number + 1);
  port.subnet = subnet;
  port.gbits = 100;
  return port;
}

// `count` ports: all in one subnet, or each in its own.
std::vector<Port> make_ports(int count, bool one_subnet) {
  std::vector<Port> ports;
  for (int i = 0; i < count; ++i) {
    ports.push_back(make_port(i, "10.0." + std::to_string(one_subnet ? 0 : i) + ".0/24"));
  }
  return ports;
}

std::string packed(const std::vector<Port>& ports) {
  net::Packer packer;
  pack(&packer, ports);
  return packer.bytes();
}

std::optional<std::vector<Port>> unpacked(const std::string& bytes) {
  net::Unpacker unpacker(bytes);
  std::vector<Port> ports;
  if (!unpack(&unpacker, &ports) || !unpacker.complete()) return std::nullopt;
  return ports;
}

Finding make_finding(const std::string& device, double gbits, bool near, const std::string& trouble = "") {
  Finding finding;
  finding.port.device = device;
  finding.port.gbits = gbits;
  finding.port.near = near;
  finding.trouble = trouble;
  return finding;
}

std::string names_of(const Result<std::vector<Port>>& ports) {
  if (!ports.is_ok()) return ports.status().message();
  std::string names;
  for (const Port& port : ports.value()) {
    if (!names.empty()) names += ' ';
    names += port.device + ":" + std::to_string(port.port);
  }
  return names;
}

Gid make_gid(int index, const std::string& type, std::array<std::uint8_t, 16> bytes, const std::string& netdev = "e") {
  return {index, bytes, type, netdev};
}

constexpr std::array<std::uint8_t, 16> kIpv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7};
constexpr std::array<std::uint8_t, 16> kIpv6 = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9};
constexpr std::array<std::uint8_t, 16> kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

// All rails are possible, no port is in two of them, and there is at least one.
void check_rails(const std::vector<Rail>& rails, const std::vector<Port>& a, const std::vector<Port>& b) {
  REQUIRE_FALSE(rails.empty());
  for (std::size_t i = 0; i < rails.size(); ++i) {
    const Rail& rail = rails[i];
    REQUIRE((rail.a >= 0 && rail.a < static_cast<int>(a.size())));
    REQUIRE((rail.b >= 0 && rail.b < static_cast<int>(b.size())));
    for (std::size_t j = 0; j < i; ++j) REQUIRE((rails[j].a != rail.a && rails[j].b != rail.b));
  }
}

}  // namespace

TEST_CASE("ports: packed ports are unpacked unchanged") {
  Port odd = make_port(0);
  odd.device = "mlx5=0;a,b%c\nd \xff";
  odd.port = 2;
  odd.fabric = Fabric::kInfiniband;
  odd.gid_index = 17;
  odd.gid = kLinkLocal;
  odd.gid_type = "IB";
  odd.netdev = "";
  odd.address = "fe80::1";
  odd.subnet = "ib fe80000000000000";
  odd.lid = 65535;
  odd.mtu_bytes = 4096;
  odd.gbits = 2.5;
  odd.numa_node = 3;
  odd.near = false;
  const std::vector<Port> ports = {odd, make_port(1)};
  const std::optional<std::vector<Port>> read = unpacked(packed(ports));
  REQUIRE(read.has_value());
  REQUIRE(read->size() == 2);
  const Port& port = read->front();
  REQUIRE(port.device == odd.device);
  REQUIRE(port.port == 2);
  REQUIRE(port.fabric == Fabric::kInfiniband);
  REQUIRE(port.gid_index == 17);
  REQUIRE(port.gid == odd.gid);
  REQUIRE(port.gid_type == "IB");
  REQUIRE(port.netdev.empty());
  REQUIRE(port.address == "fe80::1");
  REQUIRE(port.subnet == odd.subnet);
  REQUIRE(port.lid == 65535);
  REQUIRE(port.mtu_bytes == 4096);
  REQUIRE(port.gbits == 2.5);
  REQUIRE(port.numa_node == 3);
  REQUIRE_FALSE(port.near);
  REQUIRE(packed(*read) == packed(ports));
  REQUIRE(unpacked(packed({})).value().empty());
}

TEST_CASE("ports: truncated and out-of-range descriptions are refused") {
  const std::string bytes = packed({make_port(0)});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CAPTURE(length);
    REQUIRE_FALSE(unpacked(bytes.substr(0, length)).has_value());
  }
  REQUIRE_FALSE(unpacked(bytes + "x").has_value());
  Port wrong = make_port(0);
  wrong.gbits = std::numeric_limits<double>::infinity();
  REQUIRE_FALSE(unpacked(packed({wrong})).has_value());
  wrong = make_port(0);
  wrong.port = 256;
  REQUIRE_FALSE(unpacked(packed({wrong})).has_value());
  REQUIRE(unpacked(packed(make_ports(kMaxRails, true))).has_value());
  REQUIRE_FALSE(unpacked(packed(make_ports(kMaxRails + 1, true))).has_value());
}

TEST_CASE("ports: pairs for all small machines, local ranks and rails") {
  for (const bool one_subnet : {true, false}) {
    for (int ports_a = 1; ports_a <= 4; ++ports_a) {
      for (int ports_b = 1; ports_b <= 4; ++ports_b) {
        const auto a = make_ports(ports_a, one_subnet);
        const auto b = make_ports(ports_b, one_subnet);
        for (int ranks = 1; ranks <= 6; ++ranks) {
          for (int wanted = 0; wanted <= 4; ++wanted) {
            for (int local_ranks = 0; local_ranks < ranks * ranks; ++local_ranks) {
              CAPTURE(one_subnet, ports_a, ports_b, ranks, wanted, local_ranks);
              const auto rails = pair_ports(a, {local_ranks / ranks, ranks}, b, {local_ranks % ranks, ranks}, wanted);
              check_rails(rails, a, b);
              const int fewest = std::min(ports_a, ports_b);
              const int expected = wanted > 0 ? std::min(wanted, fewest) : std::max(1, fewest / ranks);
              REQUIRE(static_cast<int>(rails.size()) == expected);
              for (const Rail& rail : rails) {
                REQUIRE(a[static_cast<std::size_t>(rail.a)].subnet == b[static_cast<std::size_t>(rail.b)].subnet);
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("ports: the ranks of a machine load its ports evenly") {
  for (const bool one_subnet : {true, false}) {
    for (const int count : {1, 2, 3, 4, 8}) {
      for (const int ranks : {1, 2, 4, 8, 16}) {
        if (count % ranks != 0 && ranks % count != 0) continue;
        CAPTURE(one_subnet, count, ranks);
        const auto ports = make_ports(count, one_subnet);
        std::map<int, int> load_a;
        std::map<int, int> load_b;
        std::map<int, int> same_local_rank;
        for (int i = 0; i < ranks; ++i) {
          for (int j = 0; j < ranks; ++j) {
            for (const Rail& rail : pair_ports(ports, {i, ranks}, ports, {j, ranks}, 0)) {
              ++load_a[rail.a];
              ++load_b[rail.b];
              if (i == j) ++same_local_rank[rail.a];
            }
          }
        }
        const int rails = std::clamp(count / ranks, 1, kMostChosenRails);
        for (const auto& [load, links] :
             {std::pair{load_a, ranks * ranks}, {load_b, ranks * ranks}, {same_local_rank, ranks}}) {
          REQUIRE(static_cast<int>(load.size()) == std::min(count, ranks * rails));
          for (const auto& [port, uses] : load) REQUIRE(uses * static_cast<int>(load.size()) == links * rails);
        }
      }
    }
  }
}

TEST_CASE("ports: only ports that can reach each other are paired") {
  const Port here = make_port(0);
  const LocalPosition only;
  for (const int change : {0, 1, 2}) {
    Port there = make_port(1);
    if (change == 0) there.fabric = Fabric::kIwarp;
    if (change == 1) there.gid_type = "RoCE v1";
    if (change == 2) there.address = "fd00::1";
    REQUIRE(pair_ports({here}, only, {there}, only, 0).empty());
  }
  REQUIRE(pair_ports({}, only, {here}, only, 0).empty());
  REQUIRE(pair_ports({here}, only, {}, only, 8).empty());
  // Another subnet may be routed; if ranks share one subnet, no other is tried.
  const std::vector<Port> far = {make_port(0, "10.1.0.0/24"), make_port(1, "")};
  REQUIRE(pair_ports({here}, only, far, only, 0).size() == 1);
  const auto rails = pair_ports({here, make_port(1, "10.9.0.0/24")}, only, {far[0], make_port(2)}, only, 2);
  REQUIRE(rails.size() == 1);
  REQUIRE((rails[0].a == 0 && rails[0].b == 1));
  // Unknown subnets do not count as equal.
  const auto unknown = pair_ports({make_port(0, ""), here}, only, {make_port(0, ""), make_port(1)}, only, 2);
  REQUIRE(unknown.size() == 1);
  REQUIRE((unknown[0].a == 1 && unknown[0].b == 1));
}

TEST_CASE("ports: rails of one pair are of one fabric") {
  Port soft = make_port(1);
  soft.fabric = Fabric::kIwarp;
  const std::vector<Port> mixed = {make_port(0), soft, make_port(2)};
  const auto rails = pair_ports(mixed, {}, mixed, {}, 3);
  REQUIRE(rails.size() == 2);
  for (const Rail& rail : rails) REQUIRE(mixed[static_cast<std::size_t>(rail.a)].fabric == mixed[0].fabric);
}

TEST_CASE("ports: a rank's near ports come before far ones") {
  std::vector<Port> ports = make_ports(4, true);
  ports[2].near = false;
  ports[3].near = false;
  for (int local_ranks = 0; local_ranks < 8; ++local_ranks) {
    const auto rails = pair_ports(ports, {local_ranks, 8}, ports, {0, 8}, 0);
    REQUIRE(rails.size() == 1);
    REQUIRE(rails[0].a == local_ranks % 2);
    // Also a near one with the same name.
    REQUIRE(rails[0].b == rails[0].a);
  }
}

TEST_CASE("ports: the best kind is chosen, near before far, fast before slow, then by name") {
  const Options options;
  std::vector<Finding> found = {make_finding("slow", 25, true),    make_finding("far", 200, false),
                                make_finding("near_b", 200, true), make_finding("near_a", 200, true),
                                make_finding("half", 100, true),   make_finding("down", 400, true, "the port is down"),
                                make_finding("iwarp", 200, true)};
  found.back().port.fabric = Fabric::kIwarp;
  REQUIRE(names_of(choose_among(found, options)) == "near_a:1 near_b:1 half:1 far:1");
  std::string why;
  for (const Reason& reason : reasons(found, options)) why += std::to_string(reason.position) + " " + reason.why + "\n";
  REQUIRE(why ==
          "-1 less than half as fast as far:1\n"
          "3 NUMA node unknown, one of the fastest\n"
          "1 NUMA node unknown, one of the fastest\n"
          "0 NUMA node unknown, one of the fastest\n"
          "2 NUMA node unknown, one of the fastest\n"
          "-1 not usable: the port is down\n"
          "-1 iWARP, while the fastest port, far:1, is RoCE\n");
  // Also with unknown rates.
  REQUIRE(names_of(choose_among({make_finding("b", 0, true), make_finding("a", 0, true)}, options)) == "a:1 b:1");
  std::vector<Finding> many;
  for (int i = 0; i < 10; ++i) many.push_back(make_finding("d" + std::to_string(i), 100, i > 4));
  REQUIRE(names_of(choose_among(many, options)) == "d5:1 d6:1 d7:1 d8:1 d9:1 d0:1 d1:1 d2:1");
  const auto none = choose_among({make_finding("down", 400, true, "the port is down")}, options);
  REQUIRE(none.status().code() == Code::kSystemError);
  REQUIRE(none.status().message().find("down:1: the port is down") != std::string::npos);
}

TEST_CASE("ports: those that TUTTI_VERBS names are taken in its order, or refused with the reason") {
  std::vector<Finding> found = {make_finding("a", 100, true), make_finding("a", 100, true, "the port is down"),
                                make_finding("b", 1, false), make_finding("c", 1, false, "the port is down")};
  found[1].port.port = 2;
  const auto choose = [&](const std::string& text) {
    return choose_among(found, parse_options("device=" + text).value());
  };
  REQUIRE(names_of(choose("b+a")) == "b:1 a:1");
  const auto named = reasons(found, parse_options("device=b").value());
  REQUIRE(named[0].position == -1);
  REQUIRE(named[2].position == 0);
  REQUIRE(named[2].why == "TUTTI_VERBS names it");
  REQUIRE(names_of(choose("a:1+a+b:1")) == "a:1 b:1");
  for (const auto& [text, said] : std::map<std::string, std::string>{{"x", "Available: a:1, a:2, b:1, c:1"},
                                                                     {"b:2", "no such port"},
                                                                     {"c", "c:1: the port is down"},
                                                                     {"b+a:2", "a:2: the port is down"}}) {
    CAPTURE(text);
    const auto refused = choose(text);
    REQUIRE(refused.status().code() == Code::kInvalidUsage);
    REQUIRE(refused.status().message().find(said) != std::string::npos);
  }
}

TEST_CASE("ports: the GID is RoCE v2 of an IPv4 address before others") {
  std::vector<Gid> gids = {make_gid(0, "RoCE v1", kLinkLocal), make_gid(1, "RoCE v2", kLinkLocal),
                           make_gid(2, "RoCE v1", kIpv4),      make_gid(3, "RoCE v2", kIpv6),
                           make_gid(4, "RoCE v2", kIpv4, ""),  make_gid(5, "RoCE v2", kIpv4)};
  for (const int best : {5, 4, 3, 1, 0}) {
    REQUIRE(choose_gid(gids, -1)->index == best);
    gids.erase(std::find_if(gids.begin(), gids.end(), [&](const Gid& gid) { return gid.index == best; }));
  }
  REQUIRE(choose_gid(gids, 2)->index == 2);
  REQUIRE(choose_gid(gids, 0) == nullptr);
  REQUIRE(choose_gid({}, -1) == nullptr);
  REQUIRE(choose_gid({make_gid(256, "RoCE v2", kIpv4), make_gid(255, "RoCE v2", kIpv6)}, -1)->index == 255);
  REQUIRE(choose_gid({make_gid(0, "IB", kLinkLocal), make_gid(1, "IB", kIpv6)}, -1)->index == 0);
  REQUIRE(address_of(make_gid(0, "RoCE v2", kIpv4)) == "10.0.0.7");
  REQUIRE(address_of(make_gid(0, "RoCE v2", kIpv6)) == "fd00::9");
  REQUIRE(address_of(make_gid(0, "IB", kIpv6)).empty());
}

}  // namespace tutti::internal::test
