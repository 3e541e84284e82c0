#include "selection/tuning.h"

#include <fstream>
#include <string>

#include "base/version.h"
#include "catch_compat.h"
#include "made_tree.h"
#include "selection/select.h"
#include "topology/cluster.h"

namespace tutti::internal::selection {
using namespace topology;
namespace {

using algorithms::World;

Tuning some_tuning() {
  Tuning tuning;
  tuning.machine = machine_name();
  tuning.library = library_version();
  TunedJob job;
  job.kind = kind_of(World{4, {}}, "shm", "", 2);
  job.choices[Collective::kAllReduce] = {{0, "ring"}, {1000, "direct"}, {1 << 20, "k_nomial:4"}};
  job.choices[Collective::kBroadcast] = {{0, "chain:8"}};
  tuning.jobs.push_back(job);
  job.kind = kind_of(World{4, {{0, 1}, {2, 3}}}, "shm", "tcp", 1);
  job.choices.erase(Collective::kBroadcast);
  job.costs.emplace();
  job.costs->within_host.send_us_per_byte.values() = {1e-4, 2e-4, 3e-4, 4e-4};
  job.costs->between_hosts = {9, 1.5, 1e-4, 2e-4, 32768, 262144};
  job.costs->host.combine_us_per_byte = 3e-5;
  job.costs->turn_us = 0.5;
  job.costs->call_us = 0.25;
  job.costs->memory_us_per_byte = 3e-5;
  job.port_gbytes_per_second = 0.125;
  tuning.jobs.push_back(job);
  return tuning;
}

std::string error_of(const std::string& text) {
  return parse_tuning(text, "file").status().message();
}

std::string changed(const char* what, const char* into) {
  std::string text = to_json(some_tuning());
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, std::string(what).size(), into);
}

TEST_CASE("what is written is read back as it was") {
  const auto read = parse_tuning(to_json(some_tuning()), "file");
  REQUIRE(read.is_ok());
  CHECK(read.value() == some_tuning());
}

TEST_CASE("jobs are of the same kind whatever the order of their hosts, and within limits the load") {
  const Tuning tuning = some_tuning();
  CHECK(tuning.find(kind_of(World{4, {{2, 3}, {0, 1}}}, "shm", "tcp", 1)) == &tuning.jobs[1]);
  CHECK(tuning.find(kind_of(World{4, {}}, "shm", "tcp", 2.1)) == &tuning.jobs[0]);
  CHECK(tuning.find(kind_of(World{4, {}}, "shm", "tcp", 1)) == nullptr);
  CHECK(tuning.find(kind_of(World{4, {}}, "tcp", "tcp", 2)) == nullptr);
  CHECK(tuning.find(kind_of(World{5, {}}, "shm", "", 2)) == nullptr);
  CHECK(kind_of(World{3, {{0}, {1}, {2}}}, "shm", "tcp", 0.5).transports == "tcp");
  CHECK(kind_of(World{3, {{0, 2}, {1}}}, "shm", "verbs", 0.5).transports == "shm+verbs");
}

TEST_CASE("fitted costs are those of the same hosts, else of the nearest load and size over the same transports") {
  Tuning tuning;
  const auto add = [&](const World& world, double ranks_per_cpu, const char* within, const char* between) {
    TunedJob job;
    job.kind = kind_of(world, within, between, ranks_per_cpu);
    job.costs.emplace();
    job.costs->call_us = static_cast<double>(tuning.jobs.size());
    tuning.jobs.push_back(job);
  };
  add(World{2, {}}, 1, "shm", "");
  add(World{4, {}}, 1, "shm", "");
  add(World{8, {}}, 4, "shm", "");
  add(World{2, {{0}, {1}}}, 1, "shm", "tcp");
  const auto nearest = [&](const World& world, double ranks_per_cpu, const char* within, const char* between) {
    const TunedJob* job = tuning.nearest_costs(kind_of(world, within, between, ranks_per_cpu));
    return job == nullptr ? -1 : static_cast<int>(job->costs->call_us);
  };
  CHECK(nearest(World{2, {}}, 1, "shm", "") == 0);
  CHECK(nearest(World{4, {}}, 1, "shm", "") == 1);
  CHECK(nearest(World{4, {}}, 4, "shm", "") == 1);
  CHECK(nearest(World{16, {}}, 1, "shm", "") == 1);
  CHECK(nearest(World{16, {}}, 8, "shm", "") == 2);
  CHECK(nearest(World{3, {{0}, {1}, {2}}}, 1, "shm", "tcp") == 3);
  CHECK(nearest(World{3, {{0}, {1}, {2}}}, 1, "shm", "verbs") == -1);
  tuning.jobs[1].costs.reset();
  CHECK(nearest(World{4, {}}, 1, "shm", "") == 0);
}

TEST_CASE("a measured choice, if supported, comes before the costs and after a forced algorithm") {
  const Tuning tuning = some_tuning();
  const TunedJob* job = &tuning.jobs[0];
  const World world{4, {}};
  JobCosts costs;
  costs.machine.within_host = {0.5, 0.2, 1e-4, 1e-4, 32768, 262144};
  costs.machine.host = {1e-5, 1e-5};
  const JobModel model(graph_of(world, {}, {}), costs);
  const auto chosen = [&](Collective collective, std::size_t bytes, const std::string& forced = "",
                          schedule::Order order = schedule::Order::kAny) {
    return std::string(select(collective, model, bytes, forced, order, job).value()->name);
  };
  CHECK(chosen(Collective::kAllReduce, 8) == "ring");
  CHECK(chosen(Collective::kAllReduce, 999) == "ring");
  CHECK(chosen(Collective::kAllReduce, 1000) == "direct");
  CHECK(chosen(Collective::kAllReduce, std::size_t{1} << 30) == "k_nomial:4");
  CHECK(chosen(Collective::kBroadcast, 8) == "chain:8");
  CHECK(chosen(Collective::kAllReduce, 8, "recursive_doubling") == "recursive_doubling");
  // A ring does not combine in the order of ranks.
  CHECK(chosen(Collective::kAllReduce, 8, "", schedule::Order::kRanks) != "ring");
  // Nothing was measured.
  CHECK(chosen(Collective::kAllGather, 8) == select(Collective::kAllGather, model, 8, "").value()->name);
  const auto explained = explain(Collective::kAllReduce, model, 8, "", schedule::Order::kAny, job);
  REQUIRE(explained.is_ok());
  CHECK(explained.value().because == Because::kMeasured);
  CHECK(explained.value().candidates.size() > 5);
  CHECK(explained.value().candidates[0].predicted_us <= explained.value().candidates[1].predicted_us);
  // Beyond the measured sizes, predictions are used.
  Tuning less = some_tuning();
  less.jobs[0].choices[Collective::kAllReduce].push_back({std::size_t{1} << 22, ""});
  CHECK(less.jobs[0].choose(Collective::kAllReduce, 1 << 21) != nullptr);
  CHECK(less.jobs[0].choose(Collective::kAllReduce, 1 << 22) == nullptr);
  const Because because =
      explain(Collective::kAllReduce, model, 1 << 23, "", schedule::Order::kAny, &less.jobs[0]).value().because;
  CHECK((because == Because::kPredicted || because == Because::kNearly));
  CHECK(parse_tuning(to_json(less), "file").value() == less);
  // The source of the costs.
  CHECK(!explained.value().fitted_to);
  JobCosts others = costs;
  use_fitted(nullptr, others);
  CHECK(others == costs);
  use_fitted(job, others);
  const auto fitted = explain(Collective::kAllReduce, JobModel(graph_of(world, {}, {}), others), 8, "");
  REQUIRE(fitted.is_ok());
  CHECK(fitted.value().fitted_to == job->kind);
  CHECK(text_of(*fitted.value().fitted_to) == "4 ranks on 1 host over shm");
  CHECK(text_of(JobKind{{2, 1}, "shm+tcp", 1}) == "3 ranks on 2 hosts over shm+tcp");
  CHECK(text_of(JobKind{{1}, "", 1}) == "1 rank on 1 host over memory");
}

TEST_CASE("wrong files are refused with line and field") {
  CHECK(error_of(changed("\"ring\"", "\"round\"")).find("algorithm: all_reduce has no algorithm \"round\"") !=
        std::string::npos);
  CHECK(error_of(changed("\"from_bytes\": 0", "\"from_bytes\": 8")).find("is not 0") != std::string::npos);
  CHECK(error_of(changed("\"from_bytes\": 1000", "\"from_bytes\": 0"))
            .find("is not larger than that of the choice before") != std::string::npos);
  CHECK(error_of(changed("\"all_reduce\"", "\"all_reduced\"")).find("is not a collective") != std::string::npos);
  CHECK(error_of(changed("\"transports\"", "\"transport\"")).find("jobs[0].transport: is an unknown field") !=
        std::string::npos);
  CHECK(error_of(changed("4\n", "0\n")).find("jobs[0].hosts[0]: is not a number of ranks") != std::string::npos);
  const std::string text = to_json(some_tuning());
  for (std::size_t length = 0; length + 2 < text.size(); length += 7) CHECK(error_of(text.substr(0, length)) != "");
}

TEST_CASE("files of other machines and versions are refused") {
  const test::MadeTree tree;
  const auto written = [&](const std::string& text) {
    const std::string path = (tree.root() / "tuning.json").string();
    std::ofstream(path) << text;
    return read_tuning(path);
  };
  CHECK(written(to_json(some_tuning())).is_ok());
  Tuning other = some_tuning();
  other.machine = "another";
  auto refused = written(to_json(other));
  CHECK(refused.status().code() == Code::kInvalidUsage);
  CHECK(refused.status().message().find("tuning.json:4: machine: is \"another\", but here it is") != std::string::npos);
  other = some_tuning();
  other.library = "0.0.1";
  CHECK(written(to_json(other)).status().message().find("tuning.json:5: library: is \"0.0.1\"") != std::string::npos);
}

}  // namespace
}  // namespace tutti::internal::selection
