// Jobs that are simulated with a slow link or a late rank, and what is found in their traces.
#include "tools/trace/delays.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/catalog.h"
#include "catch_compat.h"
#include "executor/fingerprint.h"
#include "schedule/layout.h"
#include "schedule/simulate.h"
#include "selection/job_text.h"
#include "selection/prediction.h"
#include "topology/cluster.h"
#include "topology/routes.h"

namespace tutti::internal::test {
namespace {

using observe::TracedProcess;
using observe::TracedSteps;
using tools::Delays;
using tools::find_delays;

constexpr std::uint32_t kOperations = 12;
constexpr std::uint32_t kPlan = 9;
constexpr std::uint32_t kElementBytes = 4;
constexpr double kLeastSlowUs = 1000;  // for each message
constexpr double kLateUs = 3000;
constexpr unsigned kSeeds = 40;

struct Job {
  const algorithms::AlgorithmEntry* entry = nullptr;
  int hosts = 2;
  int per_host = 2;
  std::size_t bytes = 0;
  double factor = 1;  // the time on the machine over that of the model
  std::pair<int, int> slow{-1, -1};
  int late = -1;
};

// As Routes, with a latency on one link.
class SlowRoutes final : public topology::Routes {
 public:
  SlowRoutes(const topology::Graph& graph, const topology::MachineCosts& costs, std::pair<int, int> slow, double us)
      : Routes(graph, costs, {}), slow_(slow), us_(us) {}
  void find_route(int from, int to, double call_bytes, schedule::Route& route) const override {
    Routes::find_route(from, to, call_bytes, route);
    if (std::pair(from, to) == slow_) route.latency_us += us_;
  }

 private:
  const std::pair<int, int> slow_;
  const double us_;
};

selection::JobCosts some_costs() {
  selection::JobCosts costs;
  costs.machine.within_host = {1, 0.2, 1e-4, 1e-4, 32768, 262144};
  costs.machine.between_hosts = {10, 1, 1e-4, 1e-4, 32768, 262144};
  costs.machine.host = {5e-5, 5e-5};
  costs.port = {1.25, 5};
  return costs;
}

topology::Graph graph_of(const Job& job) {
  topology::Cluster cluster;
  cluster.hosts = job.hosts;
  cluster.ranks_per_host = job.per_host;
  return topology::make_cluster(cluster).value();
}

class Traced {
 public:
  Traced(const Job& job, std::mt19937& random)
      : job_(job),
        model_(graph_of(job), some_costs()),
        schedules_(selection::write_schedules(*job.entry, model_.world(), 0).value()) {
    const int ranks = job.hosts * job.per_host;
    std::uniform_real_distribution<double> noise(0.8, 1.25);
    for (int rank = 0; rank < ranks; ++rank) {
      TracedProcess process;
      process.pid = 100 + rank;
      process.host = process.machine = "node";
      process.ranks.push_back(
          {0xabc, rank, ranks, {}, {{kPlan, std::string("by ") + job.entry->name + ", 1 chunks"}}, {}, {}});
      processes_.push_back(std::move(process));
    }
    processes_[0].ranks[0].job = selection::text_of(model_);
    const double usual_us = model_.predict_us(*job.entry, job.bytes);
    const SlowRoutes routes(model_.graph(), model_.costs().machine, job.slow, 3 * usual_us + kLeastSlowUs);
    schedule::SimulationOptions options;
    options.keeps_steps = true;
    const schedule::Shape& shape = schedules_.front().shape;
    const schedule::Layout layout(shape, job.bytes / kElementBytes / shape.blocks, kElementBytes);
    auto timing = schedule::simulate(schedules_, layout, routes, options);
    REQUIRE(timing.is_ok());
    for (std::uint32_t number = 1; number <= kOperations; ++number) {
      const double factor = job.factor * noise(random);
      for (int rank = 0; rank < ranks; ++rank) add(number, rank, *timing, layout, factor, noise(random));
    }
  }
  [[nodiscard]] const std::vector<TracedProcess>& processes() const { return processes_; }
  // From a rank to another that it sends to.
  [[nodiscard]] std::vector<std::pair<int, int>> links() const {
    std::set<std::pair<int, int>> all;
    for (const schedule::Schedule& one : schedules_) {
      for (const schedule::Step& step : one.steps) {
        if (step.kind == schedule::StepKind::kSend) all.emplace(one.rank, step.peer);
      }
    }
    return {all.begin(), all.end()};
  }

 private:
  void add(std::uint32_t number, int rank, const schedule::Timing& timing, const schedule::Layout& layout,
           double factor, double late_us) {
    const auto own = static_cast<std::size_t>(rank);
    const std::int64_t start_ns = std::int64_t{number} * 1'000'000'000;
    const auto ns = [&](double us) { return start_ns + static_cast<std::int64_t>(1000 * factor * us); };
    observe::TracedOperation operation;
    operation.number = number;
    operation.call = executor::call_word(job_.entry->collective, DataType::kFloat32, ReduceOp::kSum);
    operation.count = job_.bytes / kElementBytes;
    operation.plan = kPlan;
    operation.begun_ns = start_ns + static_cast<std::int64_t>(1000 * late_us);
    if (rank == job_.late) operation.begun_ns += static_cast<std::int64_t>(1000 * kLateUs);
    TracedSteps steps;
    steps.number = number;
    steps.plan = kPlan;
    steps.bytes = job_.bytes;
    steps.element_bytes = kElementBytes;
    double last_us = 0;
    const std::vector<schedule::Step>& all = schedules_[own].steps;
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      const schedule::Step& step = all[i];
      const auto range = schedule::writes_target(step.kind) ? step.target_range() : step.source_range();
      const schedule::StepTime& time = timing.steps[own][i];
      steps.steps.push_back({i, static_cast<std::uint32_t>(step.kind), step.peer, layout.bytes(range).size,
                             ns(time.begin_us), ns(time.end_us)});
      last_us = std::max(last_us, time.end_us);
    }
    operation.ended_ns = ns(last_us);
    if (job_.late >= 0) operation.ended_ns += static_cast<std::int64_t>(1000 * kLateUs);
    processes_[own].ranks[0].operations.push_back(operation);
    // The simulator has no late ranks.
    if (job_.late < 0) processes_[own].ranks[0].steps.push_back(std::move(steps));
  }

  const Job job_;
  const selection::JobModel model_;
  const std::vector<schedule::Schedule> schedules_;
  std::vector<TracedProcess> processes_;
};

Job some_job(std::mt19937& random) {
  constexpr const char* kNames[] = {"ring", "direct", "k_nomial:2", "halving_doubling"};
  Job job;
  job.hosts = 1 + static_cast<int>(random() % 3);
  job.per_host = 2 + static_cast<int>(random() % 3);
  job.bytes = std::size_t{1} << (12 + random() % 12);
  job.factor = 0.5 + static_cast<double>(random() % 100) / 20;
  do {
    job.entry = algorithms::find(Collective::kAllReduce, kNames[random() % std::size(kNames)]);
  } while (job.entry == nullptr || !job.entry->supports(selection::world_of(graph_of(job))));
  return job;
}

Delays delays_of(const Job& job, std::mt19937& random) {
  const Traced traced(job, random);
  const std::vector<Delays> all = find_delays(traced.processes(), {});
  REQUIRE(all.size() == 1);
  INFO(text_of(all[0]));
  CHECK(all[0].collectives == kOperations);
  CHECK(all[0].uncompared.empty());
  CHECK(all[0].compared == (job.late < 0 ? kOperations : 0));
  return all[0];
}

}  // namespace

TEST_CASE("delays: a job that runs as the model, faster or slower, has none") {
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937 random(seed);
    const Job job = some_job(random);
    const Delays delays = delays_of(job, random);
    INFO("seed " << seed << ", " << text_of(delays));
    CHECK(delays.late.empty());
    CHECK(delays.slow_links.empty());
    CHECK(delays.slow_ranks.empty());
    CHECK(text_of(delays).find("no rank was late, and no link was slower than the others") != std::string::npos);
  }
}

TEST_CASE("delays: the one slow link is named") {
  unsigned named = 0;
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937 random(seed);
    Job job = some_job(random);
    const auto links = Traced(job, random).links();
    if (links.size() < 3) {
      ++named;  // with nothing to compare with
      continue;
    }
    job.slow = links[random() % links.size()];
    const Delays delays = delays_of(job, random);
    INFO("seed " << seed << ", rank " << job.slow.first << " to " << job.slow.second << ": " << text_of(delays));
    CHECK(delays.late.empty());
    CHECK(delays.slow_ranks.empty());
    for (const tools::SlowLink& link : delays.slow_links) {
      CHECK(std::pair(link.from, link.to) == job.slow);
      CHECK(link.slow == kOperations);
    }
    if (delays.slow_links.size() == 1) ++named;
  }
  CHECK(named == kSeeds);
}

TEST_CASE("delays: the late rank is named") {
  for (unsigned seed = 1; seed <= kSeeds; ++seed) {
    std::mt19937 random(seed);
    Job job = some_job(random);
    job.bytes = std::min<std::size_t>(job.bytes, 1 << 16);
    job.late = static_cast<int>(random() % static_cast<unsigned>(job.hosts * job.per_host));
    const Delays delays = delays_of(job, random);
    INFO("seed " << seed << ", " << text_of(delays));
    REQUIRE(delays.late.size() == 1);
    CHECK(delays.late[0].rank == job.late);
    CHECK(delays.late[0].last == kOperations);
  }
}

}  // namespace tutti::internal::test
