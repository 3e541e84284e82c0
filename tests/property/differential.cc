// Every algorithm on real numbers, compared with the collective's definition.
#include <random>

#include "algorithms/prove.h"
#include "catch_compat.h"
#include "interpreter.h"

namespace tutti::internal::schedule {
namespace {

using algorithms::AlgorithmEntry;
using algorithms::World;

// The correct output element i of the rank.
std::uint32_t expected(const Shape& shape, const std::vector<Vector>& inputs, std::size_t rank, std::size_t i,
                       std::size_t block, Order order) {
  const auto sum = [&](std::size_t ranks) {
    std::uint32_t total = ranks == 0 ? 0 : inputs[0][i];
    for (std::size_t r = 1; r < ranks; ++r) {
      total = order == Order::kRanks ? compose(total, inputs[r][i]) : total + inputs[r][i];
    }
    return total;
  };
  switch (shape.collective) {
    case Collective::kBroadcast:
    case Collective::kScatter:
    case Collective::kScatterV: return inputs[static_cast<std::size_t>(shape.root)][i];
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kAllGatherV:
    case Collective::kGatherV: return inputs[i / block][i];
    case Collective::kAllToAll:
    case Collective::kAllToAllV: return inputs[i / block][rank * block + i % block];
    case Collective::kScan: return sum(rank + 1);
    case Collective::kExscan: return sum(rank);
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kReduce:
    case Collective::kBarrier: break;
  }
  return sum(inputs.size());
}

// Whether the rank's output holds element i.
bool owed(const Shape& shape, std::size_t rank, std::size_t i, std::size_t block) {
  switch (shape.collective) {
    case Collective::kReduce:
    case Collective::kGather:
    case Collective::kGatherV: return rank == static_cast<std::size_t>(shape.root);
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
    case Collective::kScatter:
    case Collective::kScatterV: return rank == i / block;
    case Collective::kExscan: return rank > 0;
    default: return true;
  }
}

void compare(const AlgorithmEntry& entry, const World& world, int root, const Run& run) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < world.ranks; ++r) schedules.push_back(make_schedule(entry, world, r, root).value());
  const Shape shape = schedules[0].shape;
  std::mt19937 random(run.seed);
  std::vector<Vector> inputs(schedules.size(), Vector(shape.blocks * run.block_elements));
  for (Vector& v : inputs) {
    for (std::uint32_t& x : v) x = static_cast<std::uint32_t>(random());
  }
  const auto outputs = interpret(schedules, inputs, run);
  INFO(name_of(entry.collective) << " " << entry.name << ", " << world.ranks << " ranks, root " << root << ", block "
                                 << run.block_elements << ", seed " << run.seed << ", in place " << run.in_place);
  REQUIRE(outputs.is_ok());
  std::size_t wrong = 0;
  for (std::size_t r = 0; r < schedules.size(); ++r) {
    for (std::size_t i = 0; i < inputs[r].size(); ++i) {
      const std::size_t at = i % run.block_elements;
      const bool in_slice = at >= run.slice_begin && at < run.slice_begin + run.slice_elements;
      const std::uint32_t got = outputs.value()[r][i];
      const std::uint32_t before = run.in_place ? inputs[r][i] : kUntouched;
      const bool mine = in_slice && owed(shape, r, i, run.block_elements);
      if (got != (mine ? expected(shape, inputs, r, i, run.block_elements, run.order) : before)) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("every algorithm computes what the collective says, in place or not, whole or sliced") {
  unsigned seed = 1;
  for (const AlgorithmEntry& entry : algorithms::catalog()) {
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7, 8}) {
      int worlds = 0;
      for (const World& world : algorithms::worlds_to_prove(entry, ranks)) {
        if (++worlds > 3) break;
        const bool sliceable = make_schedule(entry, world, 0, 0).value().sliceable;
        for (const std::size_t elements : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{129}}) {
          const int root = static_cast<int>(++seed % static_cast<unsigned>(ranks));
          for (const bool in_place : {false, true}) {
            if (in_place && !input_is_output(entry.collective)) continue;
            const Order order = order_of(entry, world);
            compare(entry, world, root, {elements, 0, elements, in_place, Order::kAny, seed});
            if (order == Order::kRanks) compare(entry, world, root, {elements, 0, elements, in_place, order, seed});
            if (sliceable && elements > 4)
              compare(entry, world, root, {elements, 3, elements - 4, in_place, order, seed});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::internal::schedule
