// Values derived from the address table: hosts, load, and the settings that apply.
#include "epoch/membership.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "catch_compat.h"
#include "selection/prediction.h"
#include "topology/cluster.h"
#include "topology/graph_json.h"
#include "transport/registry.h"
#include "transport/shm/adapter.h"

using namespace tutti::internal;

namespace {

using Hosts = std::vector<std::vector<int>>;

struct Place {
  int machine;  // 0: its kernel reports no id
  int process;
  std::uint64_t network;
  const char* cpus;  // four processors per hexadecimal digit, the lowest first
};

topology::ProcessorSet mask(const std::string& digits) {
  topology::ProcessorSet cpus;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const unsigned digit = static_cast<unsigned>(std::stoul(digits.substr(i, 1), nullptr, 16));
    for (std::size_t j = 0; j < 4; ++j) cpus[4 * i + j] = (digit >> j & 1) != 0;
  }
  return cpus;
}

std::vector<PeerInfo> book(const std::vector<Place>& places) {
  std::vector<PeerInfo> peers;
  for (const Place& place : places) {
    PeerInfo p;
    p.rank = static_cast<std::int32_t>(peers.size());
    p.boot.fill(static_cast<std::uint8_t>(place.machine));
    p.process.fill(static_cast<std::uint8_t>(place.process));
    p.network_namespace = place.network;
    RankSettings settings;
    settings.cpus = mask(place.cpus);
    p.settings = settings.pack();
    peers.push_back(p);
  }
  return peers;
}

Membership member(int rank, std::vector<PeerInfo> peers, const std::string& transports = "shm,tcp") {
  auto made = make_membership(rank, {}, std::move(peers), parse_transports(transports).value());
  REQUIRE(made.is_ok());
  return std::move(made).value();
}

// The membership of a rank in a communicator of some of its parent's ranks.
Membership member_of_split(int rank, const Membership& parent, const std::vector<int>& members) {
  std::vector<PeerInfo> peers;
  for (const int member : members) {
    peers.push_back(parent.peers[static_cast<std::size_t>(member)]);
    peers.back().rank = static_cast<std::int32_t>(peers.size()) - 1;
  }
  const SplitFrom from{parent, members};
  auto made = make_membership(rank, {}, std::move(peers), parse_transports("shm,tcp").value(), &from);
  REQUIRE(made.is_ok());
  return std::move(made).value();
}

using Quotas = std::vector<topology::CpuQuota>;

std::vector<PeerInfo> with_quotas(std::vector<PeerInfo> peers, const std::vector<Quotas>& quotas) {
  for (PeerInfo& p : peers) {
    auto settings = RankSettings::unpack(p.settings);
    REQUIRE(settings.is_ok());
    settings->quotas = quotas[static_cast<std::size_t>(p.rank)];
    p.settings = settings->pack();
  }
  return peers;
}

}  // namespace

TEST_CASE("lists of transports are read, in the registry's order") {
  const auto names = [](const std::string& text) {
    auto transports = parse_transports(text);
    REQUIRE(transports.is_ok());
    std::string listed;
    for (const auto& transport : *transports) listed += std::string(transport->name()) + " ";
    return listed;
  };
  CHECK(names("tcp,shm") == "shm tcp ");
  CHECK(names("shm:netns") == "shm ");
  CHECK(names("tcp,verbs,shm") == "shm verbs tcp ");
  CHECK(names(kDefaultTransports) == "shm verbs tcp ");
}

TEST_CASE("invalid lists of transports are refused by name") {
  for (const char* text : {"", "ib", "shm,ib", "shm,,tcp", " shm", "SHM", "sim", "sim:1", "shm:", "shm:x", "tcp:netns",
                           "verbs:1", "shm,", ","}) {
    INFO('"' << text << '"');
    const Status s = parse_transports(text).status();
    CHECK(s.code() == Code::kInvalidUsage);
    CHECK(s.message().find('"' + std::string(text) + '"') != std::string::npos);
  }
}

TEST_CASE("hosts are the ranks that can share memory, whatever their order") {
  const std::vector<Place> places = {{1, 1, 7, "3"}, {2, 2, 7, "3"}, {1, 3, 8, "3"}, {2, 4, 7, "3"}, {1, 5, 7, "3"}};
  CHECK(member(0, book(places)).hosts == Hosts{{0, 2, 4}, {1, 3}});
  CHECK(member(3, book(places), "shm:netns,tcp").hosts == Hosts{{0, 4}, {1, 3}, {2}});
  CHECK(member(1, book(places), "tcp").hosts == Hosts{{0}, {1}, {2}, {3}, {4}});
}

TEST_CASE("machines whose kernel reports no identity are all different") {
  const Membership m = member(0, book({{0, 1, 7, "1"}, {0, 2, 7, "1"}}));
  CHECK(m.hosts == Hosts{{0}, {1}});
  CHECK(m.ranks_per_cpu == 1);
  CHECK_FALSE(m.oversubscribed);
}

// `of`: by rank.
std::vector<PeerInfo> with_places(std::vector<PeerInfo> peers, const std::vector<topology::Place>& of,
                                  const std::vector<double>& gbits, const std::string& file = "") {
  for (PeerInfo& p : peers) {
    auto settings = RankSettings::unpack(p.settings);
    REQUIRE(settings.is_ok());
    settings->place = of[static_cast<std::size_t>(p.rank)];
    settings->port_gbits = gbits[static_cast<std::size_t>(p.rank)];
    if (p.rank == 0) settings->topology = file;
    p.settings = settings->pack();
  }
  return peers;
}

const std::vector<Place> kTwoMachines = {{1, 1, 7, "3"}, {1, 2, 7, "3"}, {2, 3, 7, "3"}, {1, 4, 7, "3"}};

TEST_CASE("the machines' graph is made from the ranks' places and ports") {
  const Membership m =
      member(0, with_places(book(kTwoMachines), {{0, 0}, {1, 1}, {0, 0}, {0, 0}}, {100, 25.5, 40, 100}));
  CHECK(m.port_gbits == 25.5);
  const algorithms::World world = selection::world_of(*m.graph);
  CHECK(world.hosts == algorithms::Hosts(m.hosts));
  REQUIRE(world.hierarchy.size() == 2);
  CHECK(world.hierarchy[1] == algorithms::Hosts{{0, 3}, {1}, {2}});
  // For a split, the reports of its own ranks.
  const Membership part = member_of_split(0, m, {0, 1});
  CHECK(selection::world_of(*part.graph).hierarchy.empty());
  CHECK(part.graph->nodes.size() > 1);
  const Membership unknown = member(0, with_places(book(kTwoMachines), {{}, {}, {}, {}}, {100, 0, 40, 100}));
  CHECK(unknown.port_gbits == 40);
  CHECK(selection::world_of(*unknown.graph).hierarchy.size() == 1);
}

TEST_CASE("rank 0's description of the machines applies, if they are the job's") {
  topology::Cluster cluster;
  cluster.hosts = 2;
  cluster.ranks_per_host = 2;
  topology::Graph graph = topology::make_cluster(cluster).value();
  const std::vector<topology::Place> nowhere(4);
  const std::vector<double> unknown(4);
  const auto told = [&] { return with_places(book(kTwoMachines), nowhere, unknown, topology::to_json(graph)); };
  const auto refused = make_membership(0, {}, told(), parse_transports("shm,tcp").value());
  CHECK(refused.status().code() == Code::kInvalidArgument);
  CHECK(refused.status().message().find("TUTTI_TOPOLOGY: it has rank 3 on another host than rank 0") !=
        std::string::npos);
  graph.ranks[3] = graph.ranks[0];
  const Membership m = member(1, told());
  CHECK(*m.graph == graph);
  const Membership part = member_of_split(0, m, {3, 2});
  CHECK(part.graph->ranks == std::vector<std::int32_t>{graph.ranks[3], graph.ranks[2]});
  auto half = with_places(book(kTwoMachines), nowhere, unknown, topology::to_json(graph).substr(0, 100));
  CHECK_FALSE(make_membership(0, {}, std::move(half), parse_transports("shm,tcp").value()).is_ok());
}

TEST_CASE("load counts the ranks on the processors that they may use") {
  // Two ranks that are pinned to different processors.
  CHECK_FALSE(member(0, book({{1, 1, 7, "1"}, {1, 2, 7, "2"}})).oversubscribed);
  // Two on one processor: the fifth.
  const Membership one = member(1, book({{1, 1, 7, "01"}, {1, 2, 7, "01"}}));
  CHECK(one.oversubscribed);
  CHECK(one.ranks_per_cpu == 2);
  // Three ranks on two processors, and one rank alone: each knows whether it is oversubscribed, and all know the worst
  // load.
  const std::vector<Place> places = {{1, 1, 7, "3"}, {1, 2, 7, "3"}, {2, 3, 7, "3"}, {1, 4, 7, "3"}};
  CHECK(member(0, book(places)).oversubscribed);
  CHECK_FALSE(member(2, book(places)).oversubscribed);
  for (const int rank : {0, 2}) CHECK(member(rank, book(places)).ranks_per_cpu == 1.5);
}

TEST_CASE("all ranks know the control group with the least time for its ranks") {
  const Place eight{1, 1, 7, "ff"};
  const Quotas two_of_eight = {{1, 2000}};
  const auto group_of = [](const std::vector<Place>& places, const std::vector<Quotas>& quotas, int rank = 0) {
    const Membership m = member(rank, with_quotas(book(places), quotas));
    // They have their own processors nevertheless.
    CHECK_FALSE(m.oversubscribed);
    return std::pair(m.machine.group_ranks, m.machine.group_millicpus);
  };
  using Group = std::pair<std::size_t, std::uint32_t>;
  const std::vector<Place> four(4, eight);
  CHECK(group_of(four, std::vector<Quotas>(4)) == Group{0, 0});
  for (const int rank : {0, 3}) CHECK(group_of(four, std::vector<Quotas>(4, two_of_eight), rank) == Group{4, 2000});
  CHECK(group_of(four, {{}, two_of_eight, {{2, 500}}, {{3, 1500}}}) == Group{1, 500});
  // Groups within a group.
  const Quotas first = {{1, 2000}, {3, 2500}};
  const Quotas second = {{2, 2000}, {3, 2500}};
  CHECK(group_of(four, {first, first, second, second}) == Group{4, 2500});
  // Groups of two machines may have the same number.
  const std::vector<Place> machines = {eight, {2, 2, 7, "ff"}, {2, 3, 7, "ff"}};
  CHECK(group_of(machines, std::vector<Quotas>(3, two_of_eight), 0) == Group{1, 2000});
  CHECK(group_of(machines, std::vector<Quotas>(3, two_of_eight), 1) == Group{2, 2000});
}

TEST_CASE("ranks of a split that cannot all run at once count all of the job that share their processors") {
  const Place two{1, 1, 7, "3"};
  const std::vector<Place> places(9, two);
  for (const std::vector<int>& members : {std::vector<int>{0, 1, 2}, {8, 6, 2}, {7, 3, 4, 5}}) {
    for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
      const Membership whole = member(members[static_cast<std::size_t>(rank)], book(places));
      const Membership part = member_of_split(rank, whole, members);
      CHECK(part.oversubscribed);
      CHECK(part.ranks_per_cpu == 4.5);
      CHECK(part.machine.ranks_per_cpu() == 4.5);
      CHECK(part.machine.ranks == members.size());
      CHECK(part.preferred_processor == whole.preferred_processor);
      CHECK(part.preferred_processor_step_bytes == whole.preferred_processor_step_bytes);
      // The same for a split of the split.
      const Membership again = member_of_split(0, part, {rank, (rank + 1) % 3, (rank + 2) % 3});
      CHECK(again.ranks_per_cpu == 4.5);
      // Ranks that can all run at once are not oversubscribed.
      const Membership pair = member_of_split(0, part, {rank, (rank + 1) % 3});
      CHECK_FALSE(pair.oversubscribed);
      CHECK(pair.ranks_per_cpu == 1);
      CHECK(pair.preferred_processor == -1);
    }
  }
  // Each keeps its processor.
  const std::vector<Place> eight(8, two);
  std::vector<int> preferred;
  for (const int rank : {5, 2, 7, 0}) {
    const Membership whole = member(rank, book(eight));
    preferred.push_back(member_of_split(0, whole, {rank, 1, 3, 6}).preferred_processor);
  }
  CHECK(preferred == std::vector<int>{1, 0, 1, 0});
  // Only the machines of the members count.
  const std::vector<Place> machines = {two, {2, 2, 7, "3"}, two, two, two, {2, 3, 7, "3"}, {2, 3, 7, "3"}, two};
  const std::vector<int> spread = {1, 7, 3, 0};
  const Membership here = member_of_split(1, member(7, book(machines)), spread);
  CHECK(here.oversubscribed);
  CHECK(here.ranks_per_cpu == 2.5);
  const Membership there = member_of_split(0, member(1, book(machines)), spread);
  CHECK_FALSE(there.oversubscribed);
  CHECK(there.machine.ranks_per_cpu() == 0.5);
  CHECK(there.ranks_per_cpu == 2.5);
}

TEST_CASE("another communicator of a process knows of those that it is in already") {
  const Place two{1, 1, 7, "3"};
  CHECK(known_load() == 0);
  // A job of this many ranks, of which the second reports what it knows.
  const auto made_beside = [&](std::size_t ranks, double known) {
    std::vector<PeerInfo> peers = book(std::vector<Place>(ranks, two));
    auto settings = RankSettings::unpack(peers[1].settings);
    REQUIRE(settings.is_ok());
    settings->known_load = known;
    peers[1].settings = settings->pack();
    return peers;
  };
  {
    const Membership whole = member(1, book(std::vector<Place>(10, two)));
    CHECK(known_load() == 5);
    const Membership less = member(0, book({two, two, two}));
    CHECK(known_load() == 5);
    for (const int rank : {0, 1}) {
      const Membership four = member(rank, made_beside(4, known_load()));
      CHECK(four.oversubscribed);
      CHECK(four.ranks_per_cpu == 5);
      CHECK(four.preferred_processor == -1);
      const Membership pair = member(rank, made_beside(2, known_load()));
      CHECK_FALSE(pair.oversubscribed);
      CHECK(pair.ranks_per_cpu == 1);
    }
    auto self = describe_self(0, Settings());
    REQUIRE(self.is_ok());
    CHECK(RankSettings::unpack(self->settings)->known_load == 5);
  }
  CHECK(known_load() == 0);
  // A value learned from another rank's report is not reported again.
  std::optional<Membership> whole = member(0, made_beside(4, 7));
  CHECK(whole->ranks_per_cpu == 7);
  CHECK(known_load() == 2);
  // A communicator that is split off keeps the load of its parent.
  const Membership part = member_of_split(0, *whole, {0, 2});
  whole.reset();
  CHECK(known_load() == 2);
}

TEST_CASE("oversubscribed ranks are distributed evenly over the processors that all of them may use") {
  const auto preferred = [](const std::vector<Place>& places) {
    std::vector<int> result;
    for (std::size_t r = 0; r < places.size(); ++r) {
      result.push_back(member(static_cast<int>(r), book(places)).preferred_processor);
    }
    return result;
  };
  using Processors = std::vector<int>;
  const Place two{1, 1, 7, "3"};
  CHECK(preferred({two, two, two, two}) == Processors{0, 0, 1, 1});
  // The second and the fifth processor; ranks of another machine between them, each with its own processor.
  const Place some{1, 1, 7, "21"};
  CHECK(preferred({some, {2, 2, 7, "3"}, some, {2, 3, 7, "3"}, some, some}) == Processors{1, -1, 1, -1, 4, 4});
  // Not if they are not oversubscribed, not evenly distributed, or not free to use the same processors.
  CHECK(preferred({two, two}) == Processors{-1, -1});
  CHECK(preferred({two, two, two}) == Processors{-1, -1, -1});
  CHECK(preferred({two, two, two, {1, 1, 7, "1"}}) == Processors{-1, -1, -1, -1});
}

TEST_CASE("all ranks fill the same number of slots, by the smallest cache of all") {
  const Place two{1, 1, 7, "3"};
  const auto slots = [&](const std::vector<std::size_t>& level2_bytes) {
    std::vector<PeerInfo> peers = book(std::vector<Place>(level2_bytes.size(), two));
    for (PeerInfo& p : peers) {
      auto settings = RankSettings::unpack(p.settings);
      REQUIRE(settings.is_ok());
      settings->level2_bytes = level2_bytes[static_cast<std::size_t>(p.rank)];
      p.settings = settings->pack();
    }
    std::vector<std::uint32_t> by_rank;
    for (const PeerInfo& p : peers) by_rank.push_back(slots_ahead(member(p.rank, peers)));
    CHECK(std::count(by_rank.begin(), by_rank.end(), by_rank[0]) == static_cast<std::ptrdiff_t>(by_rank.size()));
    return by_rank[0];
  };
  constexpr std::size_t kMib = 1024 * 1024;
  // Six links of a processor, twelve lanes of 32 KiB a slot.
  CHECK(slots({2 * kMib, 2 * kMib, 2 * kMib, 2 * kMib}) == 2);
  CHECK(slots({0, 0, 0, 0}) == 2);
  CHECK(slots({4 * kMib, 4 * kMib, 4 * kMib, 4 * kMib}) == 5);
  CHECK(slots({4 * kMib, 4 * kMib, 3 * kMib, 4 * kMib}) == 4);
  CHECK(slots({4 * kMib, 4 * kMib, 4 * kMib, 0}) == 2);
  // Nothing fits; everything fits; no rank is oversubscribed.
  CHECK(slots({kMib, kMib, kMib, kMib}) == 8);
  CHECK(slots({64 * kMib, 64 * kMib, 64 * kMib, 64 * kMib}) == 8);
  CHECK(slots({2 * kMib, 2 * kMib}) == 32);
}

TEST_CASE("ranks read each other's memory as far as all their settings allow") {
  const auto reading = [&](const std::vector<MemoryReads>& wanted) {
    std::vector<PeerInfo> peers = book(std::vector<Place>(wanted.size(), Place{1, 1, 7, "ff"}));
    for (PeerInfo& p : peers) {
      auto settings = RankSettings::unpack(p.settings);
      REQUIRE(settings.is_ok());
      settings->reads_processes = wanted[static_cast<std::size_t>(p.rank)];
      p.settings = settings->pack();
    }
    return member(1, peers).reads_processes;
  };
  using enum MemoryReads;
  CHECK(reading({kAlways, kAlways, kAlways}) == kAlways);
  CHECK(reading({kAlways, kAuto, kAlways}) == kAuto);
  CHECK(reading({kAlways, kAuto, kNever}) == kNever);
  CHECK(reading({kNever, kAlways, kAlways}) == kNever);
}

TEST_CASE("packed settings are unpacked unchanged, and damage is detected") {
  RankSettings settings;
  settings.cpus.set(0).set(77).set(topology::kMaxProcessors - 1);
  settings.reads_processes = MemoryReads::kAlways;
  settings.level2_bytes = std::uint64_t{3} << 33;
  settings.quotas = {{std::uint64_t{5} << 50, 1}, {7, 2500}};
  settings.known_load = 3.25;
  settings.memory_trouble = "memfd_create: Operation not permitted";
  settings.by_transport = {{"verbs", std::string("no device\n= none\0,", 18)}, {"", "nothing"}};
  const std::string bytes = settings.pack();
  auto read = RankSettings::unpack(bytes);
  REQUIRE(read.is_ok());
  CHECK(read->cpus == settings.cpus);
  CHECK(read->reads_processes == MemoryReads::kAlways);
  CHECK(read->level2_bytes == settings.level2_bytes);
  CHECK(read->quotas == settings.quotas);
  CHECK(read->known_load == settings.known_load);
  CHECK(read->memory_trouble == settings.memory_trouble);
  CHECK(read->by_transport == settings.by_transport);
  CHECK(read->pack() == bytes);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK(RankSettings::unpack(bytes.substr(0, size)).status().code() == Code::kRemoteError);
  }
}

TEST_CASE("a rank that cannot share memory: its pairs use tcp, also after a split, or it is refused") {
  std::vector<PeerInfo> peers = book({{1, 1, 7, "f"}, {1, 2, 7, "f"}, {1, 3, 7, "f"}});
  RankSettings settings = std::move(RankSettings::unpack(peers[1].settings).value());
  settings.memory_trouble = "memfd_create: Operation not permitted";
  peers[1].settings = settings.pack();
  const Membership m = member(2, peers);
  CHECK(m.hosts.size() == 1);
  CHECK(m.connecting(0, 2)->name() == "shm");
  CHECK(m.connecting(0, 1)->name() == "tcp");
  CHECK(m.connecting(1, 2)->name() == "tcp");
  CHECK(m.check_shared_memory().is_ok());
  CHECK(member_of_split(0, m, {1, 2}).connecting(0, 1)->name() == "tcp");
  CHECK(member_of_split(0, m, {0, 2}).connecting(0, 1)->name() == "shm");
  for (const int rank : {0, 1, 2}) {
    const Status refused = member(rank, peers, "shm").check_shared_memory();
    CHECK(refused.code() == Code::kSystemError);
    CHECK(refused.message().find("rank 1 (host ") == 0);
    CHECK(refused.message().find("add tcp to TUTTI_TRANSPORTS") != std::string::npos);
  }
}

TEST_CASE("the error about an unreadable file names the variable") {
  for (const char* path : {"/no/such/file", "/etc/passwd"}) {
    INFO(path);
    Settings tuning;
    tuning.tuning = path;
    CHECK(describe_self(0, tuning).status().code() == Code::kInvalidUsage);
    Settings topology;
    topology.topology = path;
    CHECK(describe_self(0, topology).status().code() == Code::kInvalidUsage);
  }
}

TEST_CASE("a rank describes itself so that it can be read back") {
  auto self = describe_self(0, {});
  REQUIRE(self.is_ok());
  auto read = PeerInfo::parse(self->serialize());
  REQUIRE(read.is_ok());
  const Membership m = member(0, {std::move(*read)});
  CHECK(m.ranks_per_cpu <= 1);
}

TEST_CASE("membership: communicators that are split from each other share the address table and what ranks told") {
  const Membership parent = member(2, book(std::vector<Place>(4, Place{1, 1, 7, "f"})));
  const auto split = [&](int rank, const std::vector<int>& members) {
    const SplitFrom from{parent, members};
    auto made = make_membership(rank, {}, parent.peers.part(members), parent.told.part(members),
                                parse_transports("shm,tcp").value(), &from);
    REQUIRE(made.is_ok());
    return std::move(*made);
  };
  const Membership some = split(1, {3, 2});
  REQUIRE(some.ranks() == 2);
  CHECK(&some.peers[0] == &parent.peers[3]);
  CHECK(&some.told[1] == &parent.told[2]);
  CHECK(some.hosts == std::vector<std::vector<int>>{{0, 1}});
  const Membership all = split(2, {0, 1, 2, 3});
  CHECK(&all.peers[3] == &parent.peers[3]);
  CHECK(all.graph == parent.graph);
}
