// Which transport connects which ranks, and the descriptions that RDMA needs for that.
#include <algorithm>
#include <vector>

#include "catch_compat.h"
#include "epoch/membership.h"
#include "transport/registry.h"
#include "transport/verbs/adapter.h"

using namespace tutti::internal;

namespace {

struct Place {
  int machine;
  std::uint64_t network = 7;
  RdmaTold told{};
};

RdmaTold with_port(const std::string& subnet, transport::verbs::Fabric fabric = transport::verbs::Fabric::kRoce) {
  RdmaTold told;
  told.ports.resize(1);
  told.ports[0].device = "mlx5_0";
  told.ports[0].fabric = fabric;
  told.ports[0].gid_type = "RoCE v2";
  told.ports[0].subnet = subnet;
  return told;
}

RdmaTold without_port(const std::string& trouble) {
  RdmaTold told;
  told.trouble = trouble;
  return told;
}

std::vector<PeerInfo> book(const std::vector<Place>& places, bool told) {
  std::vector<PeerInfo> peers;
  for (const Place& place : places) {
    PeerInfo p;
    p.rank = static_cast<std::int32_t>(peers.size());
    p.boot.fill(static_cast<std::uint8_t>(place.machine));
    p.network_namespace = place.network;
    p.hostname = "host" + std::to_string(place.machine);
    RankSettings settings;
    settings.cpus.set();
    if (told) settings.by_transport["verbs"] = place.told.pack();
    p.settings = settings.pack();
    peers.push_back(p);
  }
  return peers;
}

Membership member(int rank, const std::vector<Place>& places, const std::string& transports) {
  auto made = make_membership(rank, {}, book(places, false), parse_transports(transports).value());
  REQUIRE(made.is_ok());
  return std::move(made).value();
}

std::string name_of(const Transport* transport) {
  return transport != nullptr ? std::string(transport->name()) : "none";
}

}  // namespace

TEST_CASE("the first transport that can connects two ranks") {
  const std::vector<Place> places = {{1}, {1}, {1, 8}, {2}};
  const Membership m = member(0, places, "shm,tcp");
  CHECK(name_of(m.connecting(0, 1)) == "shm");
  CHECK(name_of(m.connecting(2, 1)) == "shm");
  CHECK(name_of(m.connecting(0, 3)) == "tcp");
  // If a Unix socket cannot be reached.
  CHECK(name_of(m.connecting(0, 1, ConnectionKind::kTcp)) == "tcp");
  CHECK(name_of(m.connecting(0, 3, ConnectionKind::kUnix)) == "none");
  CHECK(name_of(m.within_hosts) == "shm");
  CHECK(name_of(m.between_hosts) == "tcp");
  CHECK(m.describe_transports() == "shm+tcp");
  const Membership near = member(0, places, "shm:netns,tcp");
  CHECK(name_of(near.connecting(0, 1)) == "shm");
  CHECK(name_of(near.connecting(0, 2)) == "tcp");
  CHECK(name_of(member(0, places, "shm").connecting(0, 3)) == "none");
}

TEST_CASE("RDMA connects ranks of different hosts that have told of ports which reach each other") {
  const std::vector<Place> places = {{1, 7, with_port("a")}, {1, 7, with_port("a")}, {2, 7, with_port("a")}};
  for (const int rank : {0, 1, 2}) {
    Membership m = member(rank, places, "shm,verbs,tcp");
    CHECK(name_of(m.connecting(0, 2)) == "tcp");  // no rank has sent its description yet
    CHECK(name_of(m.between_hosts) == "tcp");
    REQUIRE(m.hear(book(places, true)).is_ok());
    CHECK(name_of(m.connecting(0, 2)) == "verbs");
    CHECK(name_of(m.connecting(2, 1)) == "verbs");
    CHECK(name_of(m.connecting(0, 1)) == "shm");
    CHECK(name_of(m.connecting(0, 1, ConnectionKind::kTcp)) == "tcp");
    CHECK(name_of(m.between_hosts) == "verbs");
    CHECK(m.describe_transports() == "shm+verbs");
  }
}

TEST_CASE("if some ranks cannot use RDMA, the others do, and all select for the slower network") {
  const std::vector<Place> places = {
      {1, 7, with_port("a")}, {2, 7, with_port("a")}, {3, 7, without_port("the cable is out")}};
  for (const int rank : {0, 1, 2}) {
    Membership m = member(rank, places, "shm,verbs,tcp");
    REQUIRE(m.hear(book(places, true)).is_ok());
    CHECK(name_of(m.connecting(0, 1)) == "verbs");
    CHECK(name_of(m.connecting(0, 2)) == "tcp");
    CHECK(name_of(m.connecting(2, 1)) == "tcp");
    CHECK(name_of(m.between_hosts) == "tcp");
    CHECK(m.describe_transports() == (rank == 2 ? "tcp" : "verbs+tcp"));
  }
}

TEST_CASE("a rank that must use RDMA and cannot gets the reason") {
  std::vector<Place> places = {{1, 7, with_port("a")}, {2, 7, without_port("the cable is out")}};
  Membership m = member(0, places, "shm,verbs");
  const Status without = m.hear(book(places, true));
  CHECK(without.code() == Code::kSystemError);
  CHECK(without.message() ==
        "rank 1 (host host2) cannot use RDMA: the cable is out (TUTTI_TRANSPORTS names verbs, but not tcp)");
  places[1].told = with_port("a", transport::verbs::Fabric::kInfiniband);
  Membership apart = member(1, places, "verbs");
  const Status unreachable = apart.hear(book(places, true));
  CHECK(unreachable.code() == Code::kSystemError);
  CHECK(unreachable.message().find("no RDMA port of rank 0 reaches one of rank 1") == 0);
}

TEST_CASE("it is an error if a required description is missing") {
  const std::vector<Place> places = {{1, 7, with_port("a")}, {2, 7, with_port("a")}};
  Membership m = member(0, places, "verbs,tcp");
  std::vector<PeerInfo> some = book(places, true);
  some[1] = book(places, false)[1];
  CHECK(m.hear(some).code() == Code::kRemoteError);
}

TEST_CASE("a packed RDMA description is unpacked unchanged, and damage is detected") {
  RdmaTold told = with_port("a");
  told.ports.resize(2);
  told.ports[1].device = "mlx5_1";
  told.trouble = "no device\n= none";
  told.rails = 3;
  told.queue_pairs = 2;
  const std::string bytes = told.pack();
  auto read = RdmaTold::unpack(bytes);
  REQUIRE(read.is_ok());
  CHECK(read->rails == 3);
  CHECK(read->queue_pairs == 2);
  CHECK(read->trouble == told.trouble);
  REQUIRE(read->ports.size() == 2);
  CHECK(read->ports[1].device == "mlx5_1");
  CHECK(read->pack() == bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK(RdmaTold::unpack(bytes.substr(0, size)).status().code() == Code::kRemoteError);
  }
  told.queue_pairs = 0;
  CHECK_FALSE(RdmaTold::unpack(told.pack()).is_ok());
}
