// Flat programs do what their schedules say, whatever is fused in them, and never stop each other: on numbers, for
// every algorithm, through lanes of two slots.
#include <algorithm>
#include <random>

#include "algorithms/prove.h"
#include "catch_compat.h"
#include "strand_rig.h"

namespace tutti::internal::executor {
namespace {

using algorithms::AlgorithmEntry;
using algorithms::World;
using schedule::Order;
using schedule::Run;
using schedule::Schedule;
using schedule::Vector;

constexpr std::uint32_t kSlotBytes = 64;

std::vector<Schedule> schedules_of(const AlgorithmEntry& entry, const World& world, int root) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < world.ranks; ++r) schedules.push_back(make_schedule(entry, world, r, root).value());
  return schedules;
}

std::vector<Vector> random_inputs(std::span<const Schedule> schedules, const Run& run) {
  std::mt19937 random(run.seed);
  std::vector<Vector> inputs(schedules.size(), Vector(schedules[0].shape.blocks * run.block_elements));
  for (Vector& v : inputs) {
    for (std::uint32_t& x : v) x = static_cast<std::uint32_t>(random());
  }
  return inputs;
}

// Whether a final combination makes this of the rank's output.
bool completes(const schedule::Shape& shape, std::size_t rank, std::size_t block) {
  if (shape.ranks == 1) return false;
  switch (shape.collective) {
    case Collective::kAllReduce:
    case Collective::kBarrier: return true;
    case Collective::kReduce: return rank == static_cast<std::size_t>(shape.root);
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV: return rank == block;
    default: return false;
  }
}

void compare(const AlgorithmEntry& entry, const World& world, int root, const Run& run, std::uint32_t slots) {
  const std::vector<Schedule> schedules = schedules_of(entry, world, root);
  const std::vector<Vector> inputs = random_inputs(schedules, run);
  auto expected = interpret(schedules, inputs, run);
  INFO(name_of(entry.collective) << " " << entry.name << ", " << world.ranks << " ranks, root " << root << ", block "
                                 << run.block_elements << ", seed " << run.seed << ", in place " << run.in_place
                                 << ", slots " << slots);
  REQUIRE(expected.is_ok());
  const bool scans = entry.collective == Collective::kScan || entry.collective == Collective::kExscan;
  const std::uint32_t mark = scans ? 0 : 0x01000193;
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    for (std::size_t i = 0; i < inputs[r].size(); ++i) {
      if (completes(schedules[0].shape, r, i / run.block_elements)) expected.value()[r][i] += mark;
    }
  }
  Wires wires(slots, kSlotBytes);
  FlatJob job(schedules, inputs, run, &wires, mark);
  REQUIRE(job.run_in_one_thread() == StrandState::kDone);
  CHECK((job.outputs() == expected.value()));
}

TEST_CASE("every flat program computes what its schedule says, through lanes of two slots") {
  unsigned seed = 1;
  for (const AlgorithmEntry& entry : algorithms::catalog()) {
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8, 12}) {
      int worlds = 0;
      for (const World& world : algorithms::worlds_to_prove(entry, ranks)) {
        if (++worlds > 3) break;
        for (const std::size_t elements : {std::size_t{0}, std::size_t{1}, std::size_t{33}, std::size_t{129}}) {
          if (ranks > 8 && elements > 33) continue;
          const int root = static_cast<int>(++seed % static_cast<unsigned>(ranks));
          for (const bool in_place : {false, true}) {
            if (in_place && !input_is_output(entry.collective)) continue;
            const Order order = order_of(entry, world);
            compare(entry, world, root, {elements, 0, elements, in_place, order, seed}, 2 + 2 * (seed % 2));
          }
        }
      }
    }
  }
}

// Without data that is compared, which would take long: that no strand waits for ever.
TEST_CASE("flat programs of up to 64 ranks end, through lanes of two slots") {
  std::size_t programs = 0;
  for (const AlgorithmEntry& entry : algorithms::catalog()) {
    for (int ranks = 9; ranks <= algorithms::kProvenRanks; ranks += ranks < 18 ? 1 : 5) {
      int worlds = 0;
      for (const World& world : algorithms::worlds_to_prove(entry, ranks)) {
        if (++worlds > 4) break;
        const int root = has_root(entry.collective) ? worlds * 7 % ranks : 0;
        const std::vector<Schedule> schedules = schedules_of(entry, world, root);
        // Three slices, with every chunk in each.
        const std::uint32_t parts = schedules[0].shape.chunks_per_block();
        const std::size_t elements = parts == 1 ? 40 : 3 * parts;
        const Run run{elements, 0, elements, false, Order::kAny, static_cast<unsigned>(ranks)};
        Wires wires(2, kSlotBytes);
        INFO(name_of(entry.collective) << " " << entry.name << ", " << ranks << " ranks, root " << root);
        FlatJob job(schedules, random_inputs(schedules, run), run, &wires);
        REQUIRE(job.run_in_one_thread() == StrandState::kDone);
        ++programs;
      }
    }
  }
  CHECK(programs > 1500);
}

// Local steps do not say that they depend on each other.
TEST_CASE("a reduction that is fused with its receive keeps its order with local steps") {
  // Output 0 is copied, then combined with what comes from rank 1 and rank 2, through scratch of their own.
  for (const bool copies_first : {true, false}) {
    schedule::Schedule s;
    s.shape = {Collective::kAllReduce, 3, 0, 1, 1};
    schedule::Step copy;
    copy.kind = schedule::StepKind::kCopy;
    copy.chunks = 1;
    if (copies_first) s.steps.push_back(copy);
    for (const std::int32_t peer : {1, 2}) {
      schedule::Step recv;
      recv.kind = schedule::StepKind::kRecv;
      recv.target = schedule::Buffer::kScratch;
      recv.source_chunk = recv.target_chunk = static_cast<std::uint32_t>(peer);
      recv.chunks = 1;
      recv.peer = peer;
      s.steps.push_back(recv);
      schedule::Step reduce;
      reduce.kind = schedule::StepKind::kReduce;
      reduce.source = schedule::Buffer::kScratch;
      reduce.source_chunk = static_cast<std::uint32_t>(peer);
      reduce.chunks = 1;
      reduce.first_dependency = static_cast<std::uint32_t>(s.dependencies.size());
      reduce.dependencies = 1;
      s.dependencies.push_back(static_cast<std::uint32_t>(s.steps.size() - 1));
      s.steps.push_back(reduce);
    }
    if (!copies_first) {
      copy.source = schedule::Buffer::kOutput;
      copy.target = schedule::Buffer::kScratch;
      copy.target_chunk = 3;
      s.steps.push_back(copy);
    }
    s.scratch_chunks = 4;
    const FlatProgram program = flatten(s);
    REQUIRE(program.first_step.size() == 4);
    REQUIRE(program.steps.size() == 3);
    // Each strand has one step. The first waits for nobody, the second for the first, the third for both.
    for (std::uint32_t strand = 0; strand < 3; ++strand) {
      const FlatStep& step = program.steps[strand];
      REQUIRE(step.waits == strand);
      for (std::uint32_t w = 0; w < strand; ++w) {
        CHECK(program.waits[step.first_wait + w].strand == w);
        CHECK(program.waits[step.first_wait + w].steps == 1);
      }
    }
  }
}

TEST_CASE("a ring through lanes of one slot stops, which the rig sees") {
  const AlgorithmEntry& ring = *algorithms::find(Collective::kAllReduce, "ring");
  const std::vector<Schedule> schedules = schedules_of(ring, World{4, {}}, 0);
  const Run run{64, 0, 64, false, Order::kAny, 1};
  Wires wires(1, kSlotBytes);
  FlatJob job(schedules, random_inputs(schedules, run), run, &wires);
  CHECK(job.run_in_one_thread() == StrandState::kIdle);
}

TEST_CASE("all steps of a ring but the first and the last are one strand that receives and sends") {
  for (const int ranks : {2, 3, 8}) {
    const AlgorithmEntry& ring = *algorithms::find(Collective::kAllReduce, "ring");
    const FlatProgram program = flatten(make_schedule(ring, World{ranks, {}}, 0, 0).value());
    REQUIRE(program.first_step.size() == 2);
    const auto both = std::count_if(program.steps.begin(), program.steps.end(),
                                    [](const FlatStep& s) { return s.in != kNone && s.out != kNone; });
    CHECK(both == 2 * (ranks - 1) - 1);
    CHECK(program.steps.size() == static_cast<std::size_t>(2 * (ranks - 1) + 1));
    // What only travels on is stored nowhere.
    const auto stored =
        std::count_if(program.steps.begin(), program.steps.end(), [](const FlatStep& s) { return s.stores; });
    CHECK(stored == ranks);
  }
}

}  // namespace
}  // namespace tutti::internal::executor
