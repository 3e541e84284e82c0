// Tests the verifier: every mutant of a correct schedule must be rejected, or shown to be equivalent by an independent
// argument.
#include <cstdio>
#include <map>
#include <string>

#include "algorithms/prove.h"
#include "catch_compat.h"
#include "mutants.h"
#include "schedule/verify.h"

namespace tutti::internal::schedule {
namespace {

struct Tally {
  int mutants = 0;
  int rejected = 0;
  int equivalent = 0;
};

void mutate(const algorithms::AlgorithmEntry& entry, const algorithms::World& world, int root, int rank,
            std::map<std::string, Tally>& tallies) {
  std::vector<Schedule> schedules;
  for (int r = 0; r < world.ranks; ++r) {
    schedules.push_back(algorithms::make_schedule(entry, world, r, root).value());
    schedules.back().sliceable = false;  // like the mutants: none is rejected only because a step spans blocks
  }
  const Order order = algorithms::order_of(entry, world);
  REQUIRE(verify(schedules, order).is_ok());
  const Schedule correct = schedules[static_cast<std::size_t>(rank)];
  for (Mutant& mutant : mutants_of(correct, order)) {
    Tally& tally = tallies[mutant.what];
    ++tally.mutants;
    schedules[static_cast<std::size_t>(rank)] = mutant.schedule;
    const Result<Proof> proof = verify(schedules, order);
    if (!proof.is_ok()) {
      ++tally.rejected;
      continue;
    }
    ++tally.equivalent;
    INFO(mutant.what << " in " << name_of(entry.collective) << " " << entry.name << ", " << world.ranks
                     << " ranks, root " << root << "\n"
                     << to_text(correct) << "mutant:\n"
                     << to_text(mutant.schedule));
    CHECK(is_equivalent(correct, mutant));
  }
}

TEST_CASE("the verifier rejects every mutant that is not equivalent") {
  std::map<std::string, Tally> tallies;
  for (const algorithms::AlgorithmEntry& entry : algorithms::catalog()) {
    for (const int ranks : {2, 3, 4, 5, 6, 7, 8}) {
      int worlds = 0;
      for (const algorithms::World& world : algorithms::worlds_to_prove(entry, ranks)) {
        if (++worlds > 2) break;
        mutate(entry, world, ranks / 3, 0, tallies);
        mutate(entry, world, ranks / 3, ranks / 2, tallies);
        mutate(entry, world, ranks - 1, ranks - 1, tallies);
      }
    }
  }
  Tally all;
  for (const auto& [what, t] : tallies) {
    std::printf("%-16s %6d mutants, %6d rejected, %5d equivalent\n", what.c_str(), t.mutants, t.rejected, t.equivalent);
    CHECK(t.rejected > 0);
    all.mutants += t.mutants;
    all.rejected += t.rejected;
  }
  std::printf("rejected: %.2f%% of %d\n", 100.0 * all.rejected / all.mutants, all.mutants);
  CHECK(all.mutants > 10000);
  CHECK(tallies.size() == 12);
}

}  // namespace
}  // namespace tutti::internal::schedule
