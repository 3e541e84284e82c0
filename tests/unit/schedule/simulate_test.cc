#include "schedule/simulate.h"

#include <cmath>
#include <string>
#include <vector>

#include "algorithms/catalog.h"
#include "catch_compat.h"
#include "schedule/builder.h"

namespace tutti::internal::schedule {
namespace {

// All ranks have their own processor and port; `shared` adds one link between all of them.
class Star : public Interconnect {
 public:
  explicit Star(std::size_t ranks) : ranks_(ranks) {}
  [[nodiscard]] std::size_t resources() const override { return 2 * ranks_ + 1; }
  [[nodiscard]] double us_per_byte(std::uint32_t r) const override { return r == 2 * ranks_ ? shared : port; }
  void find_route(int from, int to, double /*call_bytes*/, Route& route) const override {
    route = common;
    route.resources = {static_cast<std::uint32_t>(2 * from), static_cast<std::uint32_t>(2 * to + 1)};
    if (shared > 0) route.resources.push_back(static_cast<std::uint32_t>(2 * ranks_));
  }
  [[nodiscard]] std::size_t processors() const override { return ranks_; }
  [[nodiscard]] Processors processors_of(int rank) const override {
    if (cores == 0) return {static_cast<std::uint32_t>(rank), 1, 0};
    return {0, cores, turn};
  }
  [[nodiscard]] double call_us() const override { return call; }
  [[nodiscard]] double slowness(int rank) const override { return rank == slow_rank ? 2 : 1; }
  [[nodiscard]] double combine_us_per_byte(int, double) const override { return combine; }
  [[nodiscard]] double copy_us_per_byte(int, double) const override { return 0; }

  double port = 0;
  double shared = 0;
  double combine = 0;
  int slow_rank = -1;
  std::uint32_t cores = 0;  // that all ranks share; 0: no sharing
  double turn = 0;
  double call = 0;
  Route common;

 private:
  std::size_t ranks_;
};

std::vector<Schedule> schedules_of(Collective collective, const std::string& name, int ranks, int root = 0) {
  const auto* entry = algorithms::find(collective, name);
  std::vector<Schedule> all;
  for (int r = 0; r < ranks; ++r) all.push_back(make_schedule(*entry, algorithms::World{ranks, {}}, r, root).value());
  return all;
}

double time_of(const std::vector<Schedule>& schedules, std::size_t bytes, const Star& star) {
  const Shape& shape = schedules.front().shape;
  auto timing = simulate(schedules, Layout(shape, bytes / shape.blocks, 1), star);
  REQUIRE(timing.is_ok());
  return (*timing).total_us;
}

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

bool says(const std::string& text, const char* what) {
  return text.find(what) != std::string::npos;
}

TEST_CASE("a message takes its sender's work, the link, the latency and its receiver's work") {
  const auto broadcast = schedules_of(Collective::kBroadcast, "direct", 2);
  Star star(2);
  star.port = 0.25;
  star.common.message_us = 3;
  star.common.latency_us = 10;
  star.common.send_us_per_byte = 0.5;
  star.common.receive_us_per_byte = 0.125;
  star.common.buffer_bytes = 1000;
  CHECK(near(time_of(broadcast, 100, star), (3 + 50) + 25 + 10 + (3 + 12.5)));
  star.slow_rank = 0;
  CHECK(near(time_of(broadcast, 100, star), 2 * (3 + 50) + 25 + 10 + (3 + 12.5)));
  star.slow_rank = 1;
  CHECK(near(time_of(broadcast, 100, star), (3 + 50) + 25 + 10 + 2 * (3 + 12.5)));
}

TEST_CASE("a chain passes on the first piece before the last one comes") {
  const auto chain = schedules_of(Collective::kBroadcast, "chain", 5);
  Star star(5);
  star.port = 1;
  star.common.buffer_bytes = 1e9;
  CHECK(near(time_of(chain, 1000, star), 4 * 1000));  // as a whole
  star.common.piece_bytes = 10;
  const double piecewise = time_of(chain, 1000, star);
  CHECK(piecewise >= 1000);
  CHECK(piecewise <= 1000 + 8 * 10);
}

TEST_CASE("messages that share a link are sent one after the other, others are not") {
  const auto gather = schedules_of(Collective::kGather, "direct", 5);
  Star star(5);
  star.port = 1;
  star.common.buffer_bytes = 1e9;
  CHECK(near(time_of(gather, 500, star), 400));  // four blocks into the port of the root
  const auto all_to_all = schedules_of(Collective::kAllToAll, "direct", 5);
  CHECK(near(time_of(all_to_all, 500, star), 400));
  star.shared = 1;
  CHECK(near(time_of(all_to_all, 500, star), 2000));  // twenty
}

TEST_CASE("a message longer than the buffer waits for its receiver") {
  // Rank 1 receives from rank 0 after a late message of rank 2.
  std::vector<Schedule> schedules;
  const Shape shape{Collective::kBroadcast, 3, 0, 1, 1};
  for (int r = 0; r < 3; ++r) {
    Builder b(shape, r);
    if (r == 0) {
      b.send(1, {0, 1});
      b.send(2, {0, 1});
    } else if (r == 1) {
      b.recv(2, {0, 1});
      b.recv(0, {0, 1});
    } else {
      b.recv(0, {0, 1});
      b.send(1, {0, 1});
    }
    schedules.push_back(b.finish().value());
  }
  Star star(3);
  star.port = 1;
  star.common.buffer_bytes = 1000;
  CHECK(near(time_of(schedules, 100, star), 300));  // two from rank 0, the second of which rank 2 forwards
  star.common.buffer_bytes = 0;
  star.common.latency_us = 7;
  CHECK(time_of(schedules, 100, star) > 307);  // the first one goes last
}

TEST_CASE("every algorithm ends, in no less time than its bytes take") {
  for (const auto& entry : algorithms::catalog()) {
    if (info_of(entry.collective).varies) continue;
    for (int ranks = 1; ranks <= 9; ++ranks) {
      if (!entry.supports({ranks, {}})) continue;
      const auto schedules = schedules_of(entry.collective, entry.name, ranks);
      std::uint64_t sends = 0;
      for (const Schedule& s : schedules) {
        for (const Step& step : s.steps) sends += step.kind == StepKind::kSend ? 1 : 0;
      }
      Star star(static_cast<std::size_t>(ranks));
      star.port = 1e-3;
      star.combine = 1e-4;
      star.common = {{}, 1, 0.25, 1e-4, 1e-4, 4096, 16384};
      const Layout layout(schedules.front().shape, 100'000, 1);
      const auto timing = simulate(schedules, layout, star);
      INFO(name_of(entry.collective) << ' ' << entry.name << ", " << ranks << " ranks");
      REQUIRE(timing.is_ok());
      CHECK(timing.value().messages == sends);
      double most = 0;
      for (const double us : timing.value().resource_us) most = std::max(most, us);
      for (const double us : timing.value().processor_us) most = std::max(most, us);
      CHECK(timing.value().total_us >= most * (1 - 1e-9));
      CHECK(timing.value().total_us == simulate(schedules, layout, star).value().total_us);
    }
  }
}

TEST_CASE("steps are recorded on request, and dependents follow their dependences") {
  const auto ring = schedules_of(Collective::kAllReduce, "ring", 4);
  Star star(4);
  star.port = 0.01;
  star.common.latency_us = 1;
  star.common.buffer_bytes = 1e9;
  SimulationOptions options;
  options.keeps_steps = true;
  const auto timing = simulate(ring, Layout(ring.front().shape, 4096, 1), star, options);
  REQUIRE(timing.is_ok());
  for (std::size_t r = 0; r < 4; ++r) {
    const auto& times = timing.value().steps[r];
    REQUIRE(times.size() == ring[r].steps.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
      CHECK(times[i].end_us >= times[i].begin_us);
      for (const std::uint32_t d : ring[r].dependencies_of(ring[r].steps[i])) CHECK(times[i].end_us >= times[d].end_us);
    }
  }
}

TEST_CASE("schedules that do not match, or wait for themselves, are refused") {
  auto schedules = schedules_of(Collective::kAllReduce, "ring", 3);
  const Star star(3);
  const Layout layout(schedules.front().shape, 300, 1);
  auto missing = schedules;
  missing[1].steps[0].peer = 0;  // rank 2's awaited message goes to rank 0
  CHECK(simulate(missing, layout, star).status().code() == Code::kInvalidArgument);
  auto nobody = schedules;
  nobody[2].steps[0].peer = 3;
  CHECK(says(simulate(nobody, layout, star).status().message(), "rank 2, step 0: its peer is not a rank"));
  std::vector<Schedule> stuck;
  for (int r = 0; r < 2; ++r) {
    Builder b(Shape{Collective::kAllToAll, 2, 0, 2, 2}, r);
    b.recv_into(1 - r, {Buffer::kOutput, static_cast<std::uint32_t>(1 - r)}, 1);
    b.wait_for_last();
    b.send_from(1 - r, {Buffer::kInput, static_cast<std::uint32_t>(1 - r)}, 1);
    b.copy({Buffer::kInput, static_cast<std::uint32_t>(r)}, {Buffer::kOutput, static_cast<std::uint32_t>(r)}, 1);
    stuck.push_back(b.finish().value());
  }
  CHECK(says(simulate(stuck, Layout(stuck.front().shape, 8, 1), star).status().message(), "wait for each other"));
}

TEST_CASE("an interrupt ends a simulation with its error") {
  const auto schedules = schedules_of(Collective::kAllToAll, "direct", 300);
  Star star(300);
  SimulationOptions options;
  options.interrupt = [] { return Status::aborted("enough"); };
  const auto timing = simulate(schedules, Layout(schedules.front().shape, 8, 1), star, options);
  CHECK(timing.status().code() == Code::kAborted);
}

TEST_CASE("ranks that share processors wait for these, and for their turn where they have waited for a message") {
  constexpr int kRanks = 6;
  const auto chain = schedules_of(Collective::kBroadcast, "chain", kRanks);
  Star star(kRanks);
  star.common.message_us = 1;
  star.common.latency_us = 2;
  star.common.buffer_bytes = 1e9;
  const double alone = time_of(chain, 64, star);
  star.cores = kRanks;
  star.turn = 0.75;
  CHECK(near(time_of(chain, 64, star), alone + (kRanks - 1) * 0.75));
  star.turn = 0;
  CHECK(near(time_of(chain, 64, star), alone));
  star.cores = 1;  // enough for a chain, in which one rank works at a time
  CHECK(near(time_of(chain, 64, star), alone));
  const auto all = schedules_of(Collective::kAllToAll, "direct", kRanks);
  CHECK(time_of(all, 6 * 64, star) >= 2 * kRanks * (kRanks - 1));  // one processor does all work
  star.cores = 2;
  const double two = time_of(all, 6 * 64, star);
  CHECK(two >= kRanks * (kRanks - 1));
  CHECK(two < 2 * kRanks * (kRanks - 1));
}

TEST_CASE("a call costs each of its ranks some time before its steps") {
  const auto all = schedules_of(Collective::kAllReduce, "recursive_doubling", 4);
  Star star(4);
  star.common.message_us = 1;
  star.common.buffer_bytes = 1e9;
  const double without = time_of(all, 64, star);
  star.call = 0.25;
  CHECK(near(time_of(all, 64, star), without + 0.25));
}

TEST_CASE("calls in a row follow each other as far as their ranks let them") {
  const auto simulated = [](const char* name, Collective collective, int calls) {
    const auto schedules = schedules_of(collective, name, 4);
    Star star(4);
    star.common.message_us = 1;
    star.common.latency_us = 10;
    star.common.buffer_bytes = 1e9;
    SimulationOptions options;
    options.calls = calls;
    auto timing = simulate(schedules, Layout(schedules.front().shape, 64, 1), star, options);
    REQUIRE(timing.is_ok());
    CHECK(timing.value().messages % static_cast<std::uint64_t>(calls) == 0);
    return *timing;
  };
  const Timing one = simulated("chain", Collective::kBroadcast, 1);
  CHECK(one.calls_us.front() == one.total_us);
  const Timing chain = simulated("chain", Collective::kBroadcast, 5);
  CHECK(chain.messages == 5 * one.messages);
  // After the first one, each further one adds a message to receive and one to send.
  CHECK(near(chain.total_us, one.total_us + 4 * 2));
  // All wait for all.
  const Timing exchanged = simulated("recursive_doubling", Collective::kAllReduce, 1);
  const Timing thrice = simulated("recursive_doubling", Collective::kAllReduce, 3);
  CHECK(near(thrice.calls_us.front(), exchanged.total_us));
  CHECK(near(thrice.total_us, 3 * exchanged.total_us));
}

}  // namespace
}  // namespace tutti::internal::schedule
