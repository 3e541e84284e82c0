// The choice of algorithms, with the costs that the transports publish.
#include "selection/select.h"

#include <fstream>
#include <map>
#include <sstream>

#include "catch_compat.h"
#include "sanitizers.h"
#include "selection/prediction.h"
#include "topology/cluster.h"
#include "transport/shm/costs.h"
#include "transport/tcp/costs.h"
#include "transport/verbs/costs.h"

namespace tutti::internal {
namespace {

using algorithms::World;

struct Place {
  const char* name;
  World world;
};

// By the number of ranks of each host.
World world_of(const std::vector<int>& hosts) {
  int next = 0;
  algorithms::Hosts::Lists lists;
  for (const int ranks : hosts) {
    lists.emplace_back();
    for (int i = 0; i < ranks; ++i) lists.back().push_back(next++);
  }
  return {next, std::move(lists)};
}

// Sanitizers get small ones, which take every path through the code.
std::vector<Place> places() {
  std::vector<Place> all;
  for (const int ranks : test::kAnySanitizer ? std::vector{3, 8} : std::vector{2, 3, 4, 6, 8, 16, 64}) {
    all.push_back({"host", world_of({ranks})});
    if (ranks < 16)
      all.push_back({"hosts of one rank", world_of(std::vector<int>(static_cast<std::size_t>(ranks), 1))});
  }
  all.push_back({"hosts", world_of({2, 2})});
  all.push_back({"hosts", world_of({3, 5})});
  if (test::kAnySanitizer) return all;
  all.push_back({"hosts", world_of({8, 8, 8, 8})});
  all.push_back({"hosts of one rank", world_of(std::vector<int>(1000, 1))});
  return all;
}

std::shared_ptr<const selection::JobModel> model_of(const World& world, double ranks_per_cpu = 1, bool rdma = false) {
  const TransportCosts network = rdma ? transport::verbs::costs() : transport::tcp::costs();
  return selection::JobModel::of(
      topology::graph_of(world, {}, {}),
      selection::default_costs(world, transport::shm::costs(), network, ranks_per_cpu, false));
}

std::string text_of(const Place& place) {
  std::ostringstream text;
  text << place.world.ranks << " ranks on ";
  if (place.world.hosts.size() == 1) return text.str() + "one host";
  text << place.world.hosts.size() << ' ' << place.name;
  if (place.world.hosts[0].size() > 1) {
    text << " of";
    for (const auto& host : place.world.hosts) text << ' ' << host.size();
  }
  return text.str();
}

// "direct, from 2^14 direct_two_phase, from 2^20 ring"
std::string choices(Collective collective, const World& world, double ranks_per_cpu, bool rdma) {
  const auto job = model_of(world, ranks_per_cpu, rdma);
  std::string text;
  std::string last;
  const int first = 3;
  for (int bits = first; bits <= 27; bits += world.ranks > 16 ? 8 : 4) {
    auto chosen = selection::select(collective, *job, std::size_t{1} << bits, "");
    const std::string name = chosen.is_ok() ? (*chosen)->name : chosen.status().message();
    if (name == last) continue;
    text += (bits == first ? "" : ", from 2^" + std::to_string(bits) + " ") + name;
    last = name;
  }
  return text;
}

std::string all_choices() {
  std::ostringstream text;
  for (const CollectiveInfo& info : kCollectiveTable) {
    const Collective collective = info.collective;
    for (const Place& place : places()) {
      for (const bool rdma : {false, true}) {
        if (rdma && place.world.hosts.size() == 1) continue;
        for (const double ranks_per_cpu : {1.0, 2.0}) {
          if (ranks_per_cpu > 1 && place.world.hosts.size() > 1) continue;
          text << name_of(collective) << ", " << text_of(place) << (rdma ? ", RDMA" : "") << ", " << ranks_per_cpu
               << " per processor: " << choices(collective, place.world, ranks_per_cpu, rdma) << '\n';
        }
      }
    }
  }
  return text.str();
}

}  // namespace

TEST_CASE("the choices are those of the table") {
  std::ifstream file(TUTTI_TABLE_OF_CHOICES);
  REQUIRE(file.good());
  std::map<std::string, std::string> expected;  // key: the text before the colon
  std::string line;
  const auto key = [&] { return line.substr(0, line.find(':')); };
  while (std::getline(file, line)) expected[key()] = line;
  std::size_t lines = 0;
  for (std::istringstream now(all_choices()); std::getline(now, line); ++lines) CHECK(line == expected[key()]);
  CHECK((test::kAnySanitizer || lines == expected.size()));
  CHECK(lines > (test::kAnySanitizer ? 80 : 400));
}

// Except for scheduling anomalies (Graham), and for the error of extrapolating from a few calls: a quarter at most.
TEST_CASE("no operation gets cheaper because there is one rank more than processors") {
  for (const int n : test::kAnySanitizer ? std::vector{3, 8} : std::vector{2, 3, 4, 5, 8, 9, 16, 17}) {
    const World world = world_of({n});
    const auto alone = model_of(world);
    const auto shared = model_of(world, n / (n - 1.0));
    REQUIRE(shared->costs().sharing.cores == n - 1);
    for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
      if (!entry.supports(world)) continue;
      for (const std::size_t bytes : {8U, 1024U, 65536U, 16777216U}) {
        INFO(entry.name << ' ' << name_of(entry.collective) << ", " << n << " ranks, " << bytes << " bytes");
        CHECK(shared->predict_us(entry, bytes) >= alone->predict_us(entry, bytes) * 0.75);
      }
    }
  }
}

TEST_CASE("rings have as many channels as hosts have ports") {
  topology::Cluster cluster;
  cluster.hosts = 4;
  cluster.ranks_per_host = 8;
  cluster.port = {2, 1};
  const auto names = [&](int ports) {
    cluster.ports = ports;
    topology::Graph graph = topology::make_cluster(cluster).value();
    const algorithms::World world = selection::world_of(graph);
    const auto job = selection::JobModel::of(
        graph, selection::default_costs(world, transport::shm::costs(), transport::verbs::costs(), 1, false));
    std::string all;
    const auto found = selection::explain(Collective::kReduceScatter, *job, 64 << 20, "");
    REQUIRE(found.is_ok());
    for (const selection::Candidate& one : found.value().candidates) {
      if (std::string(one.entry->name).starts_with("ring")) all += one.entry->name + std::string(" ");
    }
    return all;
  };
  CHECK(names(1) == "ring ");
  CHECK(names(8) == "ring:8 ring:2 ring ");
}

TEST_CASE("if the operator does not commute, only algorithms that keep the order of ranks are chosen") {
  using schedule::Order;
  for (const Place& place : places()) {
    const auto job = model_of(place.world);
    for (const CollectiveInfo& info : kCollectiveTable) {
      if (!reduces(info.collective)) continue;
      for (int bits = 0; bits <= 30; bits += 10) {
        auto chosen = selection::select(info.collective, *job, std::size_t{1} << bits, "", Order::kRanks);
        REQUIRE(chosen.is_ok());
        CHECK(algorithms::order_of(**chosen, place.world) == Order::kRanks);
      }
    }
  }
  const World eight = world_of({8});
  const auto forced = [&](const char* text) {
    return selection::select(Collective::kAllReduce, *model_of(eight), 1000, text, Order::kRanks);
  };
  REQUIRE(forced("all_reduce:k_nomial:2").is_ok());
  CHECK((*forced("all_reduce:k_nomial:2"))->name == std::string("k_nomial:2"));
  REQUIRE(forced("ring").is_ok());  // of an algorithm that the collective cannot use
  CHECK((*forced("ring"))->name != std::string("ring"));
  const Status refused = forced("all_reduce:ring").status();
  CHECK(refused.code() == Code::kInvalidUsage);
  CHECK(refused.message().find(
            "does not combine in the order of ranks, which a non-commutative operator needs "
            "(choose one of direct, recursive_doubling, k_nomial:2, k_nomial:4, k_nomial:8, ordered_two_phase; "
            "k_nomial:K for any K from 2 to 1048576)") != std::string::npos);
}

TEST_CASE("trees and chains are forced by name and parameter") {
  const auto forced = [&](Collective collective, const char* text) {
    return selection::select(collective, *model_of(world_of({8})), 1000, text);
  };
  for (const char* text : {"broadcast:k_nomial:5", "k_nomial:5", "ring,k_nomial:5", "reduce:chain,k_nomial:5"}) {
    auto chosen = forced(Collective::kBroadcast, text);
    INFO(text << ": " << chosen.status().message());
    REQUIRE(chosen.is_ok());
    CHECK((*chosen)->name == std::string("k_nomial:5"));
  }
  REQUIRE(forced(Collective::kReduce, "reduce:chain,k_nomial:5").is_ok());
  CHECK((*forced(Collective::kReduce, "reduce:chain,k_nomial:5"))->name == std::string("chain"));
  REQUIRE(forced(Collective::kScan, "k_nomial:5").is_ok());  // which does not have such an algorithm
  REQUIRE(forced(Collective::kBarrier, "all_reduce:direct,barrier:k_nomial:4").is_ok());
  CHECK((*forced(Collective::kBarrier, "all_reduce:direct,barrier:k_nomial:4"))->name == std::string("k_nomial:4"));
  REQUIRE(forced(Collective::kReduce, "chain:4").is_ok());
  CHECK((*forced(Collective::kReduce, "chain:4"))->name == std::string("chain:4"));
  CHECK((*forced(Collective::kReduce, "reduce:chain:9,chain:4"))->name == std::string("chain:9"));
  for (const char* text : {"ring,", ",", ",ring", "ring,,chain", ":ring", ":chain:4"}) {
    INFO(text);
    CHECK(selection::check_forced(text).code() == Code::kInvalidUsage);
  }
  for (const char* text : {"broadcast:k_nomial", "broadcast:k_nomial:1", "broadcast:k_nomial:x", "k_nomial:1",
                           "k_nomial", "k_nomial:4:4", "binomial", "scan:k_nomial:4"}) {
    const Status refused = selection::check_forced(text);
    INFO(text << ": " << refused.message());
    CHECK(refused.code() == Code::kInvalidUsage);
    const bool lists = refused.message().find(text[0] == 's' ? "choose one of recursive_doubling, chain"
                                                             : "k_nomial:8, ") != std::string::npos;
    CHECK(lists);
  }
  CHECK(selection::check_forced("no_such:ring").message().find("collective \"no_such\" does not exist") !=
        std::string::npos);
}

// Hidden: prints the table, for a commit that changes choices on purpose (grep "per processor").
TEST_CASE("print the table of choices", "[.print]") {
  std::fputs(all_choices().c_str(), stdout);
}

}  // namespace tutti::internal
