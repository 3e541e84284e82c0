#include "selection/fitting.h"

#include <algorithm>
#include <cmath>

#include "catch_compat.h"
#include "sanitizers.h"
#include "topology/cluster.h"

namespace tutti::internal::selection {
using namespace topology;
namespace {

using algorithms::World;

MachineCosts true_costs() {
  MachineCosts costs;
  costs.within_host = {0.3, 0.1, 6e-5, 9e-5, 32768, 262144};
  costs.within_host.send_us_per_byte.values() = {2e-4, 6e-5, 7e-5, 1.2e-4};
  costs.between_hosts = {12, 2, 2e-4, 2e-4, 65536, 1048576};
  costs.host = {5e-5, 4e-5};
  costs.turn_us = 0.6;
  costs.call_us = 0.2;
  costs.memory_us_per_byte = 6e-5;
  return costs;
}
MachineCosts first_guess() {
  MachineCosts costs;
  costs.within_host = {1, 0.4, 1e-4, 1e-4, 32768, 262144};
  costs.between_hosts = {30, 5, 1e-4, 1e-4, 65536, 1048576};
  costs.host = {4e-5, 4e-5};
  costs.turn_us = 0.2;
  costs.call_us = 0.05;
  return costs;
}

// Sanitizers also see every path with fewer sizes.
constexpr std::size_t kBetweenSizes = test::kAnySanitizer ? 4096 : 64;
constexpr std::size_t kBetweenEntries = test::kAnySanitizer ? 3 : 1;

// Uses the simulator's times as measurements.
std::vector<Observation> observe(const ObservedJob& job) {
  std::vector<Observation> all;
  const World world = world_of(job.graph);
  for (std::size_t i = 0; i < algorithms::catalog().size(); i += kBetweenEntries) {
    const algorithms::AlgorithmEntry& entry = algorithms::catalog()[i];
    if (info_of(entry.collective).varies || !entry.supports(world)) continue;
    for (std::size_t bytes = 64; bytes <= (16U << 20); bytes *= kBetweenSizes) {
      Question question;
      question.entry = &entry;
      question.bytes = bytes;
      question.sharing = job.sharing;
      question.calls = bytes > 65536 ? 1 : 20;
      const auto predicted = predict(job.graph, true_costs(), question);
      REQUIRE(predicted.is_ok());
      all.push_back({&entry, bytes, question.calls, predicted.value().us_of_call});
    }
  }
  return all;
}

double median_error(const std::vector<Observation>& observed, const std::vector<double>& predicted) {
  REQUIRE(observed.size() == predicted.size());
  std::vector<double> errors;
  for (std::size_t i = 0; i < observed.size(); ++i) errors.push_back(std::abs(predicted[i] / observed[i].us - 1));
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() / 2];
}

TEST_CASE("costs are found again from the times that they lead to") {
  ObservedJob job;
  SECTION("ranks of one host that share its processors") {
    job.graph = graph_of(World{4, {}}, {}, {});
    job.sharing.cores = 2;
  }
  SECTION("ranks of one host with processors of their own") {
    job.graph = graph_of(World{3, {}}, {}, {});
  }
  SECTION("ranks of one host that wait for its memory") {
    job.graph = graph_of(World{8, {}}, {}, {});
  }
  SECTION("two hosts whose port is slower than their ranks") {
    job.graph = graph_of(World{4, {{0, 1}, {2, 3}}}, {}, {0.125, 0});
  }
  const auto observed = observe(job);
  ObservedJob unknown = job;
  for (Node& node : unknown.graph.nodes) node.out = {};
  const auto fitted = fit_costs(unknown, observed, first_guess());
  REQUIRE(fitted.is_ok());
  CHECK(median_error(observed, fitted.value().predicted_us) < 0.05);
  if (job.graph.ranks.size() == 8) CHECK(std::abs(fitted.value().costs.memory_us_per_byte / 6e-5 - 1) < 0.2);
  if (job.graph.nodes.size() > 1) CHECK(std::abs(fitted.value().port.gbytes_per_second / 0.125 - 1) < 0.1);
  // It does not change costs about which the measurements say nothing.
  CHECK(fitted.value().costs.between_devices == first_guess().between_devices);
  if (job.graph.nodes.size() == 1) CHECK(fitted.value().costs.between_hosts == first_guess().between_hosts);
}

TEST_CASE("a fit is a function of what was measured") {
  ObservedJob job;
  job.graph = graph_of(World{2, {}}, {}, {});
  const auto observed = observe(job);
  CHECK(fit_costs(job, observed, first_guess()).value().costs == fit_costs(job, observed, first_guess()).value().costs);
}

TEST_CASE("a fit ends on request, and needs measurements") {
  ObservedJob job;
  job.graph = graph_of(World{2, {}}, {}, {});
  const auto observed = observe(job);
  const auto at_once = fit_costs(job, observed, first_guess(), [] { return true; });
  REQUIRE(at_once.is_ok());
  CHECK(at_once.value().costs.within_host == first_guess().within_host);
  CHECK(fit_costs(job, {}, first_guess()).status().code() == Code::kInvalidArgument);
}

TEST_CASE("the cost of a byte is interpolated between the given sizes") {
  PerByte costs;
  costs.values() = {4, 2, 1, 3};
  CHECK(costs.at(0) == 4);
  CHECK(costs.at(PerByte::kBytes[0]) == 4);
  CHECK(costs.at(PerByte::kBytes[1]) == Approx(2));
  CHECK(costs.at(std::sqrt(PerByte::kBytes[1] * PerByte::kBytes[2])) == Approx(1.5).epsilon(0.02));
  CHECK(costs.at(1e12) == 3);
}

}  // namespace
}  // namespace tutti::internal::selection
