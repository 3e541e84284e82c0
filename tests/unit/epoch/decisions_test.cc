// Decisions: rank 0 selects and proves, and announces the result; the other ranks use it, or decide themselves.
#include "epoch/decisions.h"

#include <bit>
#include <thread>

#include "algorithms/prove.h"
#include "join/in_process.h"
#include "plans_fixture.h"

using namespace tutti::internal;
using namespace tutti::internal::test;

namespace {

constexpr int kRanks = 16;
constexpr Decisions::CallKind kAllReduceOf8{Collective::kAllReduce, schedule::Order::kAny, 4};

// The trees of ranks that watch, and the decisions that each has received.
struct Told {
  explicit Told(int ranks) : told(static_cast<std::size_t>(ranks)) {
    auto made = make_in_process_jobs(ranks);
    REQUIRE(made.is_ok());
    jobs = std::move(*made);
    for (std::size_t r = 0; r < jobs.size(); ++r) {
      Witness witness;
      witness.decided = [this, r](const std::string& decision) { told[r].push_back(decision); };
      REQUIRE(jobs[r].tree->watch(std::make_shared<FailureState>(), witness).is_ok());
    }
  }
  [[nodiscard]] ControlTree* tree(std::size_t rank) const { return jobs[rank].tree.get(); }

  std::vector<std::vector<std::string>> told;
  std::vector<Job> jobs;
};

const algorithms::AlgorithmEntry* all_reduce(const char* name) {
  const auto* const entry = algorithms::find(Collective::kAllReduce, name);
  REQUIRE(entry != nullptr);
  return entry;
}

// In these tests, a rank waits at most this long for a decision.
Deadline soon() {
  return Deadline::after_ms(50);
}

}  // namespace

TEST_CASE("rank 0 announces each selection and each proof once, and the others know it") {
  const Told job(kRanks);
  const FailureState failure;
  Decisions of_root(job.tree(0), failure, 0, kRanks, 1);
  Decisions of_other(job.tree(3), failure, 3, kRanks, 1);
  CHECK_FALSE(of_root.are_told());
  CHECK(of_other.are_told());
  for (int i = 0; i < 3; ++i) {
    of_root.tell_selected(kAllReduceOf8, *all_reduce("ring"));
    of_root.tell_checked(*all_reduce("ring"), 2);
  }
  CHECK(job.told[0].empty());
  REQUIRE(job.told[3].size() == 2);
  CHECK(of_other.selected(kAllReduceOf8) == nullptr);
  for (const std::string& decision : job.told[3]) of_other.hear(decision);
  CHECK(of_other.await_selected(kAllReduceOf8, soon()) == all_reduce("ring"));
  CHECK(of_other.await_checked(*all_reduce("ring"), 2, soon()));
  CHECK_FALSE(of_other.checked(*all_reduce("ring"), 1));
  CHECK_FALSE(of_other.checked(*all_reduce("direct"), 2));
  CHECK(of_other.selected({Collective::kAllReduce, schedule::Order::kRanks, 4}) == nullptr);
  CHECK(of_other.selected({Collective::kAllReduce, schedule::Order::kAny, 5}) == nullptr);
}

TEST_CASE("a rank without a decision waits until its limit or the deadline, or until the communicator fails") {
  const Told job(kRanks);
  FailureState failure;
  const Decisions decisions(job.tree(3), failure, 3, kRanks, 1);
  const std::int64_t begin = now_ns();
  CHECK(decisions.await_selected(kAllReduceOf8, soon()) == nullptr);
  CHECK(now_ns() - begin >= 40'000'000);
  CHECK(decisions.await_selected(kAllReduceOf8, Deadline::after_ms(600'000)) == nullptr);
  CHECK_FALSE(decisions.await_checked(*all_reduce("ring"), 0, Deadline::after_ms(600'000)));
  failure.fail(Status::aborted("enough"));
  CHECK(Decisions(job.tree(3), failure, 3, kRanks, 1e6).await_selected(kAllReduceOf8, Deadline::after_ms(600'000)) ==
        nullptr);
}

TEST_CASE("a rank that waits for a decision continues when it arrives") {
  const Told job(kRanks);
  const FailureState failure;
  Decisions of_root(job.tree(0), failure, 0, kRanks, 1);
  // With a timeout so long that only the decision ends the wait.
  Decisions of_other(job.tree(3), failure, 3, kRanks, 1e4);
  const algorithms::AlgorithmEntry* found = nullptr;
  std::thread waits([&] { found = of_other.await_selected(kAllReduceOf8, Deadline::after_ms(600'000)); });
  of_root.tell_selected(kAllReduceOf8, *all_reduce("double_tree"));
  of_other.hear(job.told[3].at(0));
  waits.join();
  CHECK(found == all_reduce("double_tree"));
}

TEST_CASE("few ranks, and ranks without a control tree, decide for themselves") {
  const Told job(kRanks);
  const FailureState failure;
  CHECK_FALSE(Decisions(job.tree(3), failure, 3, Decisions::kFewRanks, 1).are_told());
  CHECK(Decisions(job.tree(3), failure, 3, Decisions::kFewRanks + 1, 1).are_told());
  CHECK_FALSE(Decisions(nullptr, failure, 3, kRanks, 1).are_told());
  Decisions few(job.tree(0), failure, 0, Decisions::kFewRanks, 1);
  few.tell_selected(kAllReduceOf8, *all_reduce("ring"));
  CHECK(job.told[3].empty());
}

TEST_CASE("a decision that is damaged, or names an unknown algorithm, is ignored") {
  const Told job(kRanks);
  const FailureState failure;
  Decisions of_root(job.tree(0), failure, 0, kRanks, 1);
  Decisions of_other(job.tree(3), failure, 3, kRanks, 1);
  of_root.tell_selected(kAllReduceOf8, *all_reduce("ring"));
  const std::string whole = job.told[3].at(0);
  for (std::size_t length = 0; length < whole.size(); ++length) of_other.hear(whole.substr(0, length));
  of_other.hear(whole + "x");
  std::string renamed = whole;
  renamed.replace(renamed.find("ring"), 4, "quantum");
  of_other.hear(renamed);
  renamed = whole;
  renamed.replace(renamed.find("ring"), 4, "rung");
  of_other.hear(renamed);
  CHECK(of_other.selected(kAllReduceOf8) == nullptr);
  of_other.hear(whole);
  CHECK(of_other.selected(kAllReduceOf8) == all_reduce("ring"));
}

TEST_CASE("plans: rank 0 announces its selection, once for a size class") {
  const Told job(kRanks);
  const Fixture f(kRanks, "", 60'000, 0, job.tree(0));
  f.make(Collective::kAllReduce, 0, 1000);
  f.make(Collective::kAllReduce, 0, 1001);
  REQUIRE(job.told[1].size() == 1);
  f.make(Collective::kAllReduce, 0, 2000);
  CHECK(job.told[1].size() == 2);
}

TEST_CASE("plans: another rank uses rank 0's selection, and simulates nothing") {
  const Told job(kRanks);
  const std::string own = Fixture(kRanks).plans->describe(Collective::kAllReduce, 1000).value();
  // The slowest of all for a few bytes.
  REQUIRE(own.find("ring") == std::string::npos);
  const Fixture f(kRanks, "", 60'000, 5, job.tree(5));
  const FailureState failure;
  Decisions of_root(job.tree(0), failure, 0, kRanks, 1);
  of_root.tell_selected({Collective::kAllReduce, schedule::Order::kAny, 10}, *all_reduce("ring"));
  f.plans->decisions().hear(job.told[5].at(0));
  CHECK_FALSE(f.plans->takes_long(Collective::kAllReduce, 0, 1000));
  CHECK(f.make(Collective::kAllReduce, 0, 1000)->identity.text.find("by ring,") == 0);
  // For another size class no decision came: it decides itself.
  CHECK(f.plans->takes_long(Collective::kAllReduce, 0, 8));
  CHECK(f.make(Collective::kAllReduce, 0, 8)->identity.text.find("by ring,") == std::string::npos);
}

TEST_CASE("plans: an exchange of a split connects each rank with few others, though all would be faster") {
  const int ranks = GENERATE(16, 24, 57);
  const Fixture all(ranks, "all_gather:direct");
  const Fixture few(ranks, "", 60'000, 5);
  all.make(Collective::kAllGather, 0, static_cast<std::size_t>(ranks) * 24);
  CHECK(all.links->asked.size() == static_cast<std::size_t>(ranks) - 1);
  auto made =
      few.plans->make(Collective::kAllGather, 0, static_cast<std::size_t>(ranks) * 24, &few.history, Demand::kFewPeers);
  REQUIRE(made.is_ok());
  CHECK(few.links->asked.size() <= 2 * static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(ranks))));
  // The program's own calls of this size have a separate plan.
  CHECK(few.plans->find(Collective::kAllGather, 0, static_cast<std::size_t>(ranks) * 24) == nullptr);
  // A forced algorithm applies to a split as well.
  auto forced =
      all.plans->make(Collective::kAllGather, 0, static_cast<std::size_t>(ranks) * 24, &all.history, Demand::kFewPeers);
  REQUIRE(forced.is_ok());
  CHECK((*forced)->identity.text.find("by direct,") == 0);
}

TEST_CASE("plans: a decision for an algorithm that does not support these ranks is ignored") {
  const Told job(kRanks);
  const Fixture f(kRanks, "", 60'000, 5, job.tree(5));
  const FailureState failure;
  Decisions of_root(job.tree(0), failure, 0, kRanks, 1);
  of_root.tell_selected({Collective::kAllReduce, schedule::Order::kAny, 10}, *all_reduce("hierarchical"));
  f.plans->decisions().hear(job.told[5].at(0));
  CHECK(f.make(Collective::kAllReduce, 0, 1000)->identity.text.find("by hierarchical,") == std::string::npos);
}

TEST_CASE("plans: rank 0 makes the proof, and the others hear that it is done") {
  // A number of ranks for which the tests prove nothing.
  constexpr int kUnproven = 83;
  const Told job(kUnproven);
  const auto* const ring = all_reduce("ring");
  const algorithms::World world{kUnproven, {}, {}};
  REQUIRE_FALSE(algorithms::proven_by_tests(*ring, world, 0));
  const Fixture root(kUnproven, "ring", 60'000, 0, job.tree(0));
  root.links->refusal = Status::timeout("no rank came");  // after the proof
  CHECK(root.plans->make(Collective::kAllReduce, 0, 1000, &root.history).status().message() == "no rank came");
  REQUIRE(job.told[5].size() == 1);
  const Fixture other(kUnproven, "ring", 60'000, 5, job.tree(5));
  CHECK(other.plans->takes_long(Collective::kAllReduce, 0, 1000));
  other.plans->decisions().hear(job.told[5].at(0));
  CHECK_FALSE(other.plans->takes_long(Collective::kAllReduce, 0, 1000));
}
