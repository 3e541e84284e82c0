// A rank that stops at any step: the ranks that complete their schedules all the same have the right results.
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "algorithms/catalog.h"
#include "catch_compat.h"

namespace tutti::internal::schedule {
namespace {

using Values = std::vector<std::uint64_t>;

// What a rank contributes to a chunk: sums of any other contributions differ from sums of all.
std::uint64_t contribution(std::int32_t rank, std::uint32_t chunk) {
  std::uint64_t x = (static_cast<std::uint64_t>(rank) << 32 | chunk) + 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

// Does the steps of all ranks. A send is done at once; what has been sent arrives even if the sender stops.
class Run {
 public:
  explicit Run(const std::vector<Schedule>& schedules) : schedules_(schedules), ranks_(schedules.size()) {
    for (std::size_t r = 0; r < schedules.size(); ++r) {
      const Schedule& s = schedules[r];
      ranks_[r].done.assign(s.steps.size(), false);
      for (Values& values : ranks_[r].buffers) values.assign(s.shape.chunks, 0);
      ranks_[r].buffers[static_cast<std::size_t>(Buffer::kScratch)].assign(s.scratch_chunks, 0);
      const ChunkRange input = s.shape.held(info_of(s.shape.collective).input, s.rank);
      for (std::uint32_t c = input.first; c < input.first + input.count; ++c) {
        ranks_[r].buffers[static_cast<std::size_t>(Buffer::kInput)][c] = contribution(s.rank, c);
      }
    }
  }

  // Until no rank can go on. `victim` stops after `steps` of its steps; it prefers early or late ones.
  void go(std::size_t victim, std::size_t steps, bool prefers_late) {
    for (bool moves = true; moves;) {
      moves = false;
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const std::size_t n = schedules_[r].steps.size();
        for (std::size_t i = 0; i < n; ++i) {
          if (r == victim && ranks_[r].steps_done >= steps) break;
          moves = attempt(r, r == victim && prefers_late ? n - 1 - i : i) || moves;
        }
      }
    }
  }

  [[nodiscard]] bool completes(std::size_t rank) const {
    return ranks_[rank].steps_done == schedules_[rank].steps.size();
  }
  [[nodiscard]] Values output(std::size_t rank) const {
    const Shape& shape = schedules_[rank].shape;
    const ChunkRange held = shape.held(info_of(shape.collective).output, static_cast<std::int32_t>(rank));
    const Values& values = ranks_[rank].buffers[static_cast<std::size_t>(Buffer::kOutput)];
    return {values.begin() + held.first, values.begin() + held.first + held.count};
  }

 private:
  struct Rank {
    std::array<Values, kBuffers> buffers;
    std::vector<bool> done;
    std::size_t steps_done = 0;
  };

  [[nodiscard]] bool is_ready(std::size_t rank, std::size_t step) const {
    const Schedule& s = schedules_[rank];
    const Step& own = s.steps[step];
    for (const std::uint32_t d : s.dependencies_of(own)) {
      if (!ranks_[rank].done[d]) return false;
    }
    for (std::size_t i = 0; i < step; ++i) {  // of the same lane
      const Step& before = s.steps[i];
      const bool same_lane = own.kind == StepKind::kSend ? before.kind == StepKind::kSend && before.peer == own.peer
                                                         : same_ordered_lane(before, own);
      if (same_lane && !ranks_[rank].done[i]) return false;
    }
    return true;
  }

  bool attempt(std::size_t rank, std::size_t step) {
    Rank& me = ranks_[rank];
    if (me.done[step] || !is_ready(rank, step)) return false;
    const Step& s = schedules_[rank].steps[step];
    const auto peer = static_cast<std::size_t>(s.peer);
    const auto values = [&](Buffer buffer) -> Values& { return me.buffers[static_cast<std::size_t>(buffer)]; };
    if (is_recv(s.kind) && sent_[{peer, rank}].size() < s.chunks) return false;
    for (std::uint32_t k = 0; k < s.chunks; ++k) {
      const std::uint32_t from = s.source_chunk + k;
      const std::uint32_t to = s.target_chunk + k;
      std::uint64_t received = 0;
      if (is_recv(s.kind)) {
        received = sent_[{peer, rank}].front();
        sent_[{peer, rank}].pop_front();
      }
      switch (s.kind) {
        case StepKind::kSend: sent_[{rank, peer}].push_back(values(s.source)[from]); break;
        case StepKind::kRecv: values(s.target)[to] = received; break;
        case StepKind::kRecvReduce: values(s.target)[to] = values(s.source)[from] + received; break;
        case StepKind::kCopy: values(s.target)[to] = values(s.source)[from]; break;
        case StepKind::kReduce: values(s.target)[to] = values(s.source)[from] + values(s.operand)[to]; break;
      }
    }
    me.done[step] = true;
    ++me.steps_done;
    return true;
  }

  const std::vector<Schedule>& schedules_;
  std::vector<Rank> ranks_;
  std::map<std::pair<std::size_t, std::size_t>, std::deque<std::uint64_t>> sent_;  // chunks, by sender and receiver
};

struct Stops {
  std::size_t runs = 0;
  std::size_t completed = 0;  // ranks beside the victim
  std::size_t stuck = 0;
  std::size_t wrong = 0;  // of the completed ones
};

// Each rank stops after each number of its steps.
Stops stop_everywhere(const std::vector<Schedule>& schedules) {
  Stops stops;
  Run undisturbed(schedules);
  undisturbed.go(schedules.size(), 0, false);
  for (std::size_t r = 0; r < schedules.size(); ++r) REQUIRE(undisturbed.completes(r));
  for (std::size_t victim = 0; victim < schedules.size(); ++victim) {
    for (std::size_t steps = 0; steps < schedules[victim].steps.size(); ++steps) {
      for (const bool late : {false, true}) {
        Run run(schedules);
        run.go(victim, steps, late);
        ++stops.runs;
        for (std::size_t r = 0; r < schedules.size(); ++r) {
          if (r == victim) continue;
          if (!run.completes(r)) {
            ++stops.stuck;
            continue;
          }
          ++stops.completed;
          if (run.output(r) != undisturbed.output(r)) ++stops.wrong;
        }
      }
    }
  }
  return stops;
}

std::vector<Schedule> schedules_of(const algorithms::AlgorithmEntry& entry, const algorithms::World& world, int root) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < world.ranks; ++r) schedules.push_back(algorithms::make_schedule(entry, world, r, root).value());
  return schedules;
}

}  // namespace

TEST_CASE("ranks that complete a collective in which another rank stops have the right results") {
  Stops all;
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    for (const int ranks : {2, 3, 4, 5, 6, 8}) {
      std::vector<std::vector<int>> hosts(2);
      for (int r = 0; r < ranks; ++r) hosts[r < (ranks + 1) / 2 ? 0 : 1].push_back(r);
      for (const algorithms::World& world : {algorithms::World{ranks, {}}, algorithms::World{ranks, hosts}}) {
        if (!entry.supports(world)) continue;
        const int root = has_root(entry.collective) ? ranks - 1 : 0;
        const std::vector<Schedule> schedules = schedules_of(entry, world, root);
        if (schedules.front().steps.size() > 100) continue;  // long chains; their short ones have the same steps
        const Stops stops = stop_everywhere(schedules);
        INFO(entry.name << " of " << name_of(entry.collective) << ", " << ranks << " ranks");
        REQUIRE(stops.wrong == 0);
        all.runs += stops.runs;
        all.completed += stops.completed;
        all.stuck += stops.stuck;
      }
    }
  }
  CHECK(all.runs > 10'000);
  CHECK(all.completed > 1'000);
  CHECK(all.stuck > 10'000);
}

TEST_CASE("a send that does not wait for its data is found by a stop") {
  const algorithms::World world{4, {}};
  std::vector<Schedule> schedules = schedules_of(*algorithms::find(Collective::kBroadcast, "chain"), world, 0);
  for (Schedule& schedule : schedules) {
    for (Step& step : schedule.steps) {
      if (step.kind == StepKind::kSend) step.dependencies = 0;
    }
  }
  Run run(schedules);
  run.go(0, 0, false);
  CHECK(run.completes(3));
  CHECK(run.output(3) != Values(schedules[0].shape.chunks, contribution(0, 0)));
}

}  // namespace tutti::internal::schedule
