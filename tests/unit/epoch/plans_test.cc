// Plans: found after they were made, shared between size classes, links requested once.
#include "epoch/plans.h"

#include <sys/resource.h>

#include <algorithm>
#include <memory>

#include "calls/descriptions.h"
#include "plans_fixture.h"

using namespace tutti::internal;
using namespace tutti::internal::test;

namespace {

constexpr std::size_t kMaxBytes = ~std::size_t{0};

}  // namespace

TEST_CASE("a plan is found in its class of sizes once it was made, and nowhere else") {
  const Fixture f(3);
  CHECK(f.plans->find(Collective::kAllReduce, 0, 1000) == nullptr);
  const executor::Plan* plan = f.make(Collective::kAllReduce, 0, 1000);
  CHECK(f.plans->find(Collective::kAllReduce, 0, 1000) == plan);
  CHECK(f.plans->find(Collective::kAllReduce, 0, 512) == plan);
  CHECK(f.plans->find(Collective::kAllReduce, 0, 1023) == plan);
  CHECK(f.plans->find(Collective::kAllReduce, 0, 511) == nullptr);
  CHECK(f.plans->find(Collective::kAllReduce, 0, 1024) == nullptr);
  CHECK(f.plans->find(Collective::kAllGather, 0, 1000) == nullptr);
}

TEST_CASE("the smallest and the largest sizes have classes") {
  const Fixture f(2);
  for (const std::size_t bytes : {std::size_t{1}, kMaxBytes / 2 + 1, kMaxBytes}) {
    CHECK(f.plans->find(Collective::kBroadcast, 1, bytes) == nullptr);
  }
  const executor::Plan* plan = f.make(Collective::kBroadcast, 1, kMaxBytes / 2 + 1);
  CHECK(f.plans->find(Collective::kBroadcast, 1, kMaxBytes) == plan);
  CHECK(f.plans->find(Collective::kBroadcast, 0, kMaxBytes) == nullptr);
  CHECK(f.plans->find(Collective::kBroadcast, 1, 1) == nullptr);
}

TEST_CASE("one algorithm has one plan for each root, and all sizes share it") {
  const Fixture f(4, "broadcast:chain");
  const executor::Plan* small = f.make(Collective::kBroadcast, 0, 8);
  CHECK(f.make(Collective::kBroadcast, 0, std::size_t{1} << 24) == small);
  CHECK(f.make(Collective::kBroadcast, 2, 8) != small);
}

TEST_CASE("trees of two radices are two plans, listed in the catalog or not") {
  const Fixture listed(4, "broadcast:k_nomial:2");
  const Fixture asked(4, "broadcast:k_nomial:3");
  const executor::Plan* two = listed.make(Collective::kBroadcast, 1, 8);
  const executor::Plan* three = asked.make(Collective::kBroadcast, 1, 8);
  CHECK(three->identity.text.find("by k_nomial:3,") == 0);
  CHECK(asked.plans->describe(Collective::kBroadcast, 8).value().find("k_nomial:3 over ") == 0);
  CHECK(two->identity.hash != three->identity.hash);
  CHECK(asked.make(Collective::kBroadcast, 1, 1000) == three);
}

TEST_CASE("links are made once for all plans, to the peers that a plan names") {
  const Fixture f(4, "ring");
  f.make(Collective::kAllReduce, 0, 100);
  std::sort(f.links->asked.begin(), f.links->asked.end());
  CHECK(f.links->asked == std::vector<int>{1, 3});
  f.make(Collective::kAllReduce, 0, 100'000);
  f.make(Collective::kReduceScatter, 0, 100);
  CHECK(f.links->asked.size() == 2);
}

TEST_CASE("without links there is no plan, and the error is the links'") {
  const Fixture f(3);
  f.links->refusal = Status::timeout("no rank came");
  const Status s = f.plans->make(Collective::kAllReduce, 0, 8, &f.history).status();
  CHECK(s.code() == Code::kTimeout);
  CHECK(s.message() == "no rank came");
  CHECK(f.plans->find(Collective::kAllReduce, 0, 8) == nullptr);
  f.links->refusal = {};
  const executor::Plan* plan = f.make(Collective::kAllReduce, 0, 8);
  CHECK(plan != nullptr);
  CHECK(f.plans->find(Collective::kAllReduce, 0, 8) == plan);
}

TEST_CASE("an unavailable algorithm is an error, not another algorithm") {
  const Fixture f(3, "all_reduce:quantum");
  const Status s = f.plans->make(Collective::kAllReduce, 0, 8, &f.history).status();
  CHECK(s.code() == Code::kInvalidUsage);
  CHECK(s.message().find("quantum") != std::string::npos);
  CHECK(f.plans->describe(Collective::kAllReduce, 8).status().code() == Code::kInvalidUsage);
  CHECK(f.links->asked.empty());
}

TEST_CASE("a single rank needs no links") {
  const Fixture f(1);
  for (int c = 0; c < kCollectives; ++c) {
    CHECK(f.make(static_cast<Collective>(c), 0, 64) != nullptr);
  }
  CHECK(f.links->asked.empty());
}

TEST_CASE("the description names the transports of the hosts") {
  const auto described = [](const std::vector<int>& machines) {
    const Fixture f(4);
    const Membership membership = threads(machines, "ring");
    const Plans plans(membership, nullptr, nullptr, f.failure, *f.waiter, 1000);
    auto text = plans.describe(Collective::kAllReduce, 1000);
    return text.is_ok() ? *text : text.status().message();
  };
  CHECK(described({1, 1, 1, 1}) == "ring over shm");
  CHECK(described({1, 2, 3, 4}) == "ring over tcp");
  CHECK(described({1, 1, 2, 2}) == "ring over shm+tcp");
  CHECK(described({1, 2, 2}) == "ring over shm+tcp");  // this rank has no link through shared memory
  CHECK(described({1}) == "ring over memory");
}

TEST_CASE("the choice is explained by why it is made, and by what the candidates take") {
  const Fixture f(4);
  const auto explained = [&](const Membership& membership) {
    return Plans(membership, nullptr, nullptr, f.failure, *f.waiter, 1000)
        .describe_choice(Collective::kAllReduce, 1000);
  };
  const auto named = [](const std::vector<std::string>& lines, const std::string& name) {
    return std::count_if(lines.begin(), lines.end(),
                         [&](const std::string& line) { return line.starts_with(name + ": predicted "); });
  };
  Membership membership = threads({1, 1, 1, 1}, "");
  const std::vector<std::string> predicted = explained(membership);
  REQUIRE(predicted.size() > 5);
  CHECK(predicted[0] == "predicted to be fastest");
  CHECK(named(predicted, "ring") == 1);
  CHECK(named(predicted, "k_nomial:4") == 1);
  CHECK(predicted[1].ends_with(" us"));
  const std::vector<std::string> forced = explained(threads({1, 1, 1, 1}, "k_nomial:3"));
  CHECK(forced.at(0).starts_with("forced: "));
  CHECK(named(forced, "k_nomial:3") == 1);
  CHECK(forced.size() == predicted.size() + 1);
  CHECK(explained(threads({1, 1, 1, 1}, "quantum")).empty());

  selection::Tuning tuning;
  tuning.jobs.push_back({{{4}, "shm", membership.ranks_per_cpu}, topology::MachineCosts(), 0, {}});
  membership.tuning = std::make_shared<const selection::Tuning>(tuning);
  CHECK(explained(membership).at(0) ==
        "predicted to be fastest; predictions with the costs of 4 ranks on 1 host over shm (TUTTI_TUNING)");
  tuning.jobs[0].choices[Collective::kAllReduce] = {{0, "ring"}};
  membership.tuning = std::make_shared<const selection::Tuning>(tuning);
  CHECK(explained(membership).at(0).starts_with("measured to be fastest: TUTTI_TUNING; predictions with "));
}

TEST_CASE("lines for which there is no room are omitted completely") {
  const std::vector<std::string> lines = {"ring over shm", "why", "ring: 1", "direct: 2"};
  CHECK(lines_within(lines, 100) == "ring over shm\nwhy\nring: 1\ndirect: 2");
  CHECK(lines_within(lines, 36) == "ring over shm\nwhy\nring: 1\ndirect: 2");
  CHECK(lines_within(lines, 35) == "ring over shm\nwhy\nring: 1");
  CHECK(lines_within(lines, 18) == "ring over shm\nwhy");
  CHECK(lines_within(lines, 17) == "ring over shm");
  CHECK(lines_within(lines, 3) == "ring over shm");
}

// The tests have not proven 400 ranks, and their proof takes long enough to be interrupted.
TEST_CASE("a proof ends with the communicator's failure") {
  Fixture f(400, "all_reduce:ring");
  REQUIRE(f.failure.fail(Status::aborted("rank 7 aborted the communicator")));
  const Status s = f.plans->make(Collective::kAllReduce, 0, 8, &f.history).status();
  CHECK(s.code() == Code::kAborted);
  CHECK(s.message() == "rank 7 aborted the communicator");
  CHECK(f.links->asked.empty());  // the proof had not finished
}

TEST_CASE("a proof ends at the operation's deadline") {
  Fixture f(400, "all_reduce:ring", 1);
  const Status s = f.plans->make(Collective::kAllReduce, 0, 8, &f.history).status();
  CHECK(s.code() == Code::kTimeout);
  CHECK(s.message().find("timed out while proving the schedule of all_reduce ring for 400 ranks") == 0);
  CHECK(f.links->asked.empty());
}

TEST_CASE("a schedule whose proof would cost too much is not proven") {
  Fixture f(3000, "all_reduce:ring");
  f.links->refusal = Status::timeout("no rank came");
  rusage before{};
  rusage after{};
  REQUIRE(::getrusage(RUSAGE_SELF, &before) == 0);
  CHECK(f.plans->make(Collective::kAllReduce, 0, 8, &f.history).status().message() == "no rank came");
  REQUIRE(::getrusage(RUSAGE_SELF, &after) == 0);
  CHECK(after.ru_maxrss - before.ru_maxrss < 300 * 1024);  // KiB; the proof takes 2 GiB
}
