#include "selection/job_model.h"

#include <cmath>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "sanitizers.h"
#include "selection/prediction.h"
#include "topology/cluster.h"

namespace tutti::internal::selection {
using namespace topology;
namespace {

using algorithms::AlgorithmEntry;
using algorithms::World;

JobCosts some_costs() {
  JobCosts costs;
  costs.machine.within_host = {1, 0.2, 1e-4, 1e-4, 32768, 262144};
  costs.machine.between_hosts = {10, 1, 1e-4, 1e-4, 32768, 262144};
  costs.machine.host = {5e-5, 5e-5};
  costs.port = {1.25, 5};
  return costs;
}

World hosts_of_one(int ranks) {
  algorithms::Hosts::Lists lists;
  for (int r = 0; r < ranks; ++r) lists.push_back({r});
  return {ranks, std::move(lists)};
}

double us(const World& world, Collective collective, const char* name, std::size_t bytes) {
  return JobModel(graph_of(world, {}, {}), some_costs()).predict_us(*algorithms::find(collective, name), bytes);
}

TEST_CASE("the model knows the trade between rounds and bytes") {
  const World w{16, {}};
  constexpr auto kAllReduce = Collective::kAllReduce;
  CHECK(us(w, kAllReduce, "recursive_doubling", 8) < us(w, kAllReduce, "ring", 8));
  CHECK(us(w, kAllReduce, "ring", 64U << 20) < us(w, kAllReduce, "recursive_doubling", 64U << 20));
  CHECK(us(w, kAllReduce, "ring", 64U << 20) < us(w, kAllReduce, "k_nomial:2", 64U << 20));
  const World few{4, {}};
  CHECK(us(few, kAllReduce, "direct", 8) < us(few, kAllReduce, "recursive_doubling", 8));
  CHECK(us(few, kAllReduce, "direct", 1 << 20) > us(few, kAllReduce, "direct_two_phase", 1 << 20));
  const World many{64, {}};
  CHECK(us(many, kAllReduce, "direct", 8) > us(many, kAllReduce, "recursive_doubling", 8));
}

// For hosts with a slow port, which the ranks of a host share.
TEST_CASE("between hosts the port is shared, so what crosses it least is ahead") {
  const World w{8, {{0, 1, 2, 3}, {4, 5, 6, 7}}};
  const double hierarchical = us(w, Collective::kAllReduce, "hierarchical", 64U << 20);
  for (const char* flat : {"direct", "direct_two_phase", "recursive_doubling", "halving_doubling", "ring"}) {
    INFO(flat);
    CHECK(us(w, Collective::kAllReduce, flat, 64U << 20) > 1.4 * hierarchical);
  }
  // The port carries the vector once in each direction.
  CHECK(hierarchical > (64U << 20) / 1.25e3);
}

TEST_CASE("every algorithm of the catalog takes some time, and more for more bytes") {
  for (const AlgorithmEntry& entry : algorithms::catalog()) {
    const World divided{8, {{0, 1, 2, 3}, {4, 5, 6, 7}}};
    const std::vector<Place> places = {{0, 0}, {0, 0}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}, {1, 1}};
    Graph graph = graph_of(World{6, {}}, {}, {});
    if (!entry.supports(world_of(graph))) graph = graph_of(divided, {}, {});
    if (!entry.supports(world_of(graph))) graph = graph_of(divided, places, {});
    REQUIRE(entry.supports(world_of(graph)));
    INFO(entry.name << ' ' << name_of(entry.collective));
    const JobModel model(graph, some_costs());
    CHECK(model.predict_us(entry, 0) > 0);
    CHECK(std::isfinite(model.predict_us(entry, 1 << 20)));
    if (info_of(entry.collective).has_data) CHECK(model.predict_us(entry, 1 << 20) > model.predict_us(entry, 8));
    CHECK(JobModel(graph_of(World{1, {}}, {}, {}), some_costs()).predict_us(entry, 8) == 0);
  }
}

World equal_hosts(int hosts, int per_host) {
  algorithms::Hosts::Lists lists(static_cast<std::size_t>(hosts));
  for (int r = 0; r < hosts * per_host; ++r) lists[static_cast<std::size_t>(r / per_host)].push_back(r);
  return {hosts * per_host, std::move(lists)};
}

// The ratio of its time to that of a full simulation.
double carried_on(const World& world, const char* name, std::size_t bytes, double memory_us_per_byte = 0) {
  JobCosts costs = some_costs();
  costs.machine.memory_us_per_byte = memory_us_per_byte;
  const AlgorithmEntry& entry = *algorithms::find(Collective::kAllReduce, name);
  const auto schedules = write_schedules(entry, world, 0);
  REQUIRE(schedules.is_ok());
  const Graph graph = graph_of(world, {}, costs.port);
  const Routes routes(graph, costs.machine, {});
  const double simulated = simulate_calls(schedules.value(), bytes, 1, 1, routes).value();
  return JobModel(graph, costs).predict_us(entry, bytes) / simulated;
}

TEST_CASE("more ranks than are simulated go on as fewer do") {
  // One length is enough for a sanitizer.
  const std::vector<std::size_t> lengths =
      test::kAnySanitizer ? std::vector<std::size_t>{1 << 18} : std::vector<std::size_t>{64, 1 << 18, 16 << 20};
  for (const char* name : {"recursive_doubling", "ring", "halving_doubling", "hierarchical", "k_nomial:2", "k_nomial:4",
                           "k_nomial:8", "double_tree", "hierarchical_doubling"}) {
    for (const std::size_t bytes : lengths) {
      INFO(name << ", " << bytes << " bytes");
      CHECK(std::abs(carried_on(equal_hosts(64, 4), name, bytes) - 1) < 0.5);
      if (name == std::string("hierarchical") || name == std::string("hierarchical_doubling")) continue;
      CHECK(std::abs(carried_on(equal_hosts(200, 1), name, bytes) - 1) < 0.5);
    }
  }
  // With more ranks on a host than are simulated, which have to share its memory.
  for (const char* name : {"recursive_doubling", "ring", "halving_doubling", "k_nomial:4", "double_tree"}) {
    for (const std::size_t bytes : lengths) {
      if (bytes < (1 << 18)) continue;
      INFO(name << ", " << bytes << " bytes");
      CHECK(std::abs(carried_on({128, {}}, name, bytes, 2e-5) - 1) < 0.5);
      CHECK(std::abs(carried_on(equal_hosts(4, 48), name, bytes, 2e-5) - 1) < 0.5);
    }
  }
  // An algorithm that supports a job is predicted for it, for every shape.
  for (const int hosts : {2, 3, 4, 5, 6, 7, 8, 9, 33, 100}) {
    for (const int per_host : {2, 3, 8, 20, 40}) {
      const World world = equal_hosts(hosts, per_host);
      for (const char* name : {"hierarchical", "hierarchical_doubling", "ring", "k_nomial:4"}) {
        INFO(hosts << " hosts of " << per_host << ", " << name);
        CHECK(std::isfinite(us(world, Collective::kAllReduce, name, 1 << 20)));
      }
    }
  }
  CHECK(std::isfinite(us(hosts_of_one(100'000), Collective::kAllReduce, "recursive_doubling", 8)));
  CHECK(us(hosts_of_one(4096), Collective::kAllReduce, "ring", 8) >
        10 * us(hosts_of_one(4096), Collective::kAllReduce, "recursive_doubling", 8));
}

std::shared_ptr<const JobModel> model_of(const World& world, const JobCosts& costs) {
  return JobModel::of(graph_of(world, {}, {}), costs);
}

TEST_CASE("callers with the same job share one model as long as one of them has it") {
  const World world = hosts_of_one(5);
  auto first = model_of(world, some_costs());
  CHECK(model_of(hosts_of_one(5), some_costs()) == first);
  CHECK(model_of(hosts_of_one(4), some_costs()) != first);
  CHECK(model_of(World{5, {}}, some_costs()) != first);
  JobCosts others = some_costs();
  others.machine.turn_us = 1;
  CHECK(model_of(world, others) != first);
  std::vector<double> found(8);
  std::vector<std::thread> threads;
  const AlgorithmEntry& ring = *algorithms::find(Collective::kAllReduce, "ring");
  for (double& one : found) threads.emplace_back([&] { one = model_of(world, some_costs())->predict_us(ring, 999); });
  for (std::thread& t : threads) t.join();
  for (const double one : found) CHECK(one == first->predict_us(ring, 999));
  const std::weak_ptr<const JobModel> weak = first;
  first.reset();
  CHECK(weak.expired());
}

TEST_CASE("costs are the transports', or those that were fitted") {
  TransportCosts within;
  within.messages = {1, 2, 3e-4, 4e-4, 5, 6};
  within.turn_us = 0.5;
  TransportCosts between = within;
  between.messages.latency_us = 20;
  between.port_gbytes_per_second = 2.5;
  between.port_latency_us = 7;
  const World two{8, {{0, 1, 2, 3}, {4, 5, 6, 7}}};
  const JobCosts apart = default_costs(two, within, between, 2, false);
  CHECK(apart.sharing == Sharing{2, false});
  CHECK(apart.port == Speed{2.5, 7});
  CHECK(apart.machine.between_hosts.latency_us == 20);
  CHECK(default_costs(two, within, between, 2, true).sharing == Sharing{4, true});
  CHECK(default_costs(two, within, between, 2, true).port == Speed{});
  CHECK(default_costs(two, within, between, 1, false).sharing == Sharing{});
  // The only rank on its machine, beside other jobs.
  CHECK(default_costs(hosts_of_one(3), within, between, 5, false).sharing == Sharing{});
  JobCosts costs = apart;
  use_fitted(nullptr, costs);
  CHECK(costs == apart);
  TunedJob tuned;
  tuned.costs.emplace();
  tuned.costs->turn_us = 3;
  tuned.port_gbytes_per_second = 0.125;
  use_fitted(&tuned, costs);
  CHECK(costs.machine.turn_us == 3);
  CHECK(costs.port == Speed{0.125, 0});
  CHECK(costs.sharing == apart.sharing);
}

}  // namespace
}  // namespace tutti::internal::selection
