// The step function as a device runs it: a thread for each strand of each rank, over memory that they share. What
// ThreadSanitizer finds here would be a race between thread blocks.
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

struct Job {
  Job(const AlgorithmEntry& entry, const World& world, int root) {
    for (int r = 0; r < world.ranks; ++r) schedules.push_back(make_schedule(entry, world, r, root).value());
  }
  [[nodiscard]] std::vector<Vector> inputs(std::size_t block, unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<Vector> made(schedules.size(), Vector(schedules[0].shape.blocks * block));
    for (Vector& v : made) {
      for (std::uint32_t& x : v) x = static_cast<std::uint32_t>(random());
    }
    return made;
  }
  std::vector<Schedule> schedules;
};

}  // namespace

// Operations one after the other through the same lanes, whose counters go on.
TEST_CASE("strands with a thread each compute what their schedules say") {
  unsigned seed = 1;
  for (const AlgorithmEntry& entry : algorithms::catalog()) {
    for (const int ranks : {2, 3, 4}) {
      int worlds = 0;
      for (const World& world : algorithms::worlds_to_prove(entry, ranks)) {
        if (++worlds > 2) break;
        const Job job(entry, world, has_root(entry.collective) ? static_cast<int>(++seed) % ranks : 0);
        Wires wires(2, 64);
        for (const std::size_t elements : {std::size_t{150}, std::size_t{1}, std::size_t{33}}) {
          const Run run{elements,    0,     elements, elements == 33 && input_is_output(entry.collective),
                        Order::kAny, ++seed};
          const std::vector<Vector> inputs = job.inputs(elements, seed);
          INFO(name_of(entry.collective) << " " << entry.name << ", " << ranks << " ranks, block " << elements);
          FlatJob flat(job.schedules, inputs, run, &wires);
          REQUIRE(flat.run_in_threads() == StrandState::kDone);
          CHECK((flat.outputs() == interpret(job.schedules, inputs, run).value()));
        }
      }
    }
  }
}

// The threads of a team share the rank's call, and with it the counts of messages.
TEST_CASE("strands with two threads each compute what their schedules say") {
  unsigned seed = 1;
  for (const AlgorithmEntry& entry : algorithms::catalog()) {
    // Some serve even numbers of ranks alone, some no fewer than eight.
    std::vector<World> worlds;
    for (int ranks = 3; worlds.empty() && ranks <= 8; ++ranks) worlds = algorithms::worlds_to_prove(entry, ranks);
    REQUIRE(!worlds.empty());
    const Job job(entry, worlds.front(), 0);
    Wires wires(2, 64);
    for (const std::size_t elements : {std::size_t{40}, std::size_t{1}}) {
      const Run run{elements, 0, elements, false, Order::kAny, ++seed};
      const std::vector<Vector> inputs = job.inputs(elements, seed);
      INFO(name_of(entry.collective) << " " << entry.name << ", block " << elements);
      FlatJob flat(job.schedules, inputs, run, &wires);
      REQUIRE(flat.run_in_teams() == StrandState::kDone);
      CHECK((flat.outputs() == interpret(job.schedules, inputs, run).value()));
    }
  }
}

TEST_CASE("a rank that calls something else is found out by those that hear from it") {
  const Job job(*algorithms::find(Collective::kAllReduce, GENERATE("ring", "direct", "k_nomial:2")), World{3, {}}, 0);
  Wires wires(4, 256);
  const Run run{100, 0, 100, false, Order::kAny, 1};
  FlatJob flat(job.schedules, job.inputs(100, 1), run, &wires);
  transport::Fingerprint other;
  other.sequence = 1;
  flat.set_fingerprint(1, other);
  CHECK(flat.run_in_threads() == StrandState::kMismatch);
}

}  // namespace tutti::internal::executor
