// Ranks that leave before others have received all of their messages.
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "sanitizers.h"
#include "sim/world/family.h"
#include "sim/world/job.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;
using tutti::internal::test::kAnySanitizer;

namespace {

void sleep_until_ms(World* world, std::int64_t ms) {
  const FailureState never;
  static_cast<void>(never.await(Deadline::after_ms(std::max<std::int64_t>(0, ms - world->elapsed_ms()))));
}

// A job from whose ranks some gather in a communicator, and leave it at once, while two others are killed. None of the
// two is a member, so no gather may fail, whichever messages the two had not forwarded.
class Gatherers {
 public:
  explicit Gatherers(unsigned seed);
  // Empty: nothing is wrong.
  std::string run();

 private:
  struct Member {
    int rank = -1;
    bool leaves_job = false;
    Status status = Status::internal("not ended");
    std::shared_ptr<FailureState> failure = std::make_shared<FailureState>();
    [[nodiscard]] Status error() const { return status.is_ok() ? failure->status() : status; }
  };
  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }
  void start(Family* job, Member* member, const std::vector<int>& ranks);
  void start_death(Family* job, int rank);

  std::mt19937 random_;
  const unsigned seed_;
  const bool some_leave_job_;
  const std::int64_t finish_ms_;
  const int ranks_;
  std::vector<int> victims_;
  std::vector<Member> members_;
  std::size_t left_ = 0;
};

Gatherers::Gatherers(unsigned seed)
    : random_(seed),
      seed_(seed),
      some_leave_job_(seed % 2 != 0),
      finish_ms_(seed / 2 % 2 != 0 ? 1000 : 0),
      ranks_(6 + static_cast<int>(draw(20))) {
  // One with others below it; the other one often.
  const unsigned inner = static_cast<unsigned>(ranks_ - 2) / 4 + 1;
  victims_.push_back(static_cast<int>(draw(inner)));
  while (victims_.size() < 2) {
    const int other = static_cast<int>(draw(draw(3) == 0 ? static_cast<unsigned>(ranks_) : inner + 1));
    if (other != victims_[0]) victims_.push_back(other);
  }
  const std::vector<int> others = all_but(ranks_, victims_);
  const std::size_t fewest = std::min<std::size_t>(2, others.size());
  for (std::size_t i = 0; i < others.size(); ++i) {
    const bool needed = others.size() - i + members_.size() <= fewest;
    if (!needed && draw(4) == 0) continue;
    members_.emplace_back().rank = others[i];
    members_.back().leaves_job = some_leave_job_ && draw(2) == 0;
  }
}

void Gatherers::start(Family* job, Member* member, const std::vector<int>& ranks) {
  const std::int64_t pause_ms = draw(3) == 0 ? draw(40) : 0;
  const auto live = [this, job, member, ranks] {
    {
      auto tree = job->at(member->rank).whole->split(9, ranks, [] { return Status(); });
      Status status = tree.status();
      for (int round = 0; status.is_ok() && round < 2; ++round) {
        status = (*tree)->all_gather("x", Deadline::after_ms(kLongMs)).status();
      }
      if (status.is_ok()) status = (*tree)->watch(member->failure, {});
      if (status.is_ok()) static_cast<void>((*tree)->finish(finish_ms_));
      if (tree.is_ok()) (*tree)->leave();
      member->status = status;
    }
    // At the end of the world, a rank that still waited has no job.
    if (member->leaves_job && job->at(member->rank).whole != nullptr) job->at(member->rank).whole->leave();
    ++left_;
  };
  job->world().after_ms(pause_ms,
                        [job, member, live] { job->world().start_thread(job->at(member->rank).process, live); });
}

void Gatherers::start_death(Family* job, int rank) {
  const auto die = [job, rank] { job->kill(rank); };
  if (draw(2) == 0) {
    World::at_step(job->at(rank).process, 1 + draw(40), die);
  } else {
    job->world().after_ms(draw(60), die);
  }
}

std::string Gatherers::run() {
  Family job(seed_, ranks_, {});
  std::vector<int> ranks;
  for (const Member& member : members_) ranks.push_back(member.rank);
  for (Member& member : members_) start(&job, &member, ranks);
  for (const int rank : victims_) start_death(&job, rank);
  const bool done = job.eventually([this] { return left_ == members_.size(); });
  std::string wrong = done ? "" : "a member waits without end";
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const Status error = members_[i].error();
    if (!error.is_ok()) wrong += fmt::format("; member {}, rank {}: {}", i, members_[i].rank, error.message());
  }
  if (!wrong.empty()) wrong += fmt::format(" ({} ranks, {} and {} die)", ranks_, victims_[0], victims_[1]);
  return wrong;
}

void run_gatherers(unsigned first, unsigned last) {
  constexpr int kMostFindings = 4;
  int findings = 0;
  for (unsigned seed = first; seed <= last && findings < kMostFindings; ++seed) {
    const std::string wrong = Gatherers(seed).run();
    if (wrong.empty()) continue;
    FAIL_CHECK("seed " << seed << ": " << wrong);
    ++findings;
  }
  CHECK(findings == 0);
}

}  // namespace

TEST_CASE("leaving: a gather succeeds although its members leave at once and ranks between them die") {
  run_gatherers(1, kAnySanitizer ? 20 : 300);
}

// With any seeds, from the environment.
TEST_CASE("leaving: any gathers", "[.long]") {
  const char* const first = std::getenv("TUTTI_TEST_FIRST_SEED");
  const char* const last = std::getenv("TUTTI_TEST_LAST_SEED");
  REQUIRE((first != nullptr && last != nullptr));
  run_gatherers(static_cast<unsigned>(std::stoul(first)), static_cast<unsigned>(std::stoul(last)));
}

// Rank 3 gathers with rank 1 and leaves, while it is cut off. Its messages are in flight to rank 0, which has left when
// the network is back.
TEST_CASE("leaving: a rank's part in an all-gather comes before its leave notice, also by another parent") {
  WorldOptions options;
  options.seed = GENERATE(1, 2, 3, 4, 5, 6);
  Status gathered[5];
  JobWorld job(5, options, [&](int rank, Job* mine) {
    World& world = job.world();
    if (rank != 1 && rank != 3) return sleep_until_ms(&world, 200);
    auto part = mine->tree->split(7, {1, 3});
    gathered[rank] = part.status();
    if (!part.is_ok()) return;
    sleep_until_ms(&world, rank == 3 ? 100 : 0);
    if (rank == 3) world.cut_off(world.self());
    gathered[rank] = (*part)->all_gather("part", Deadline::after_ms(30'000)).status();
    if (gathered[rank].is_ok()) gathered[rank] = (*part)->watch(std::make_shared<FailureState>(), {});
    if (gathered[rank].is_ok()) static_cast<void>((*part)->finish(1000));
    (*part)->leave();
    sleep_until_ms(&world, 6000);
  });
  job.world().after_ms(3000, [&] { job.world().reconnect(job.rank(3).process); });
  const bool done = job.run(20'000);
  INFO(job.report());
  REQUIRE(done);
  for (const int rank : {1, 3}) {
    INFO("rank " << rank << ": " << gathered[rank].message());
    CHECK(gathered[rank].is_ok());
    CHECK(job.rank(rank).error().is_ok());
  }
  CHECK(job.world().finish());
}

TEST_CASE("leaving: a rank that is stopped while it says so does not make others take a living rank for dead") {
  // Rank 1 has told some of its neighbours, before its n-th step. Those find other parents, and tell them that it has
  // left. So it hears that from other ranks when it goes on.
  const unsigned step = GENERATE(range(1U, 60U));
  const unsigned seed = GENERATE(range(0U, kAnySanitizer ? 1U : 5U));
  INFO("seed " << seed << ", step " << step);
  Family job(seed, 26, {});
  Process* const process = job.at(1).process;
  World::at_step(process, step, [&job, process] {
    job.stop(1);
    job.world().after_ms(100, [&job, process] { job.world().go_on(process); });
  });
  job.world().start_thread(process, [&job] { job.at(1).whole->leave(); });
  job.world().run_for(1000);
  for (const int rank : all_but(26, {1})) {
    INFO("rank " << rank);
    CHECK(job.at(rank).failure->departed(1));
    CHECK(job.at(rank).failure->status().message() == "");
  }
}

namespace {

enum class Fate : std::uint8_t { kKilled, kStopped };

struct Leaving {
  int ranks;
  int leaver;
  int carrier;              // the leaver's only neighbour, not a member of the part
  std::vector<int> before;  // leave the job before
};

// The carrier is killed at its n-th step from the moment at which the leaver begins to leave; or it is stopped there,
// and killed later. False if it has made fewer steps.
bool leave_past(const Leaving& of, Fate fate, std::uint64_t step, unsigned seed, std::string* wrong) {
  std::vector<int> absent = of.before;
  absent.push_back(of.carrier);
  Family job(seed, of.ranks, all_but(of.ranks, absent));
  for (const int rank : of.before) job.have(rank, [](Rank* self) { self->whole->leave(); });
  job.world().run_for(500);
  Process* const carrier = job.at(of.carrier).process;
  bool struck = false;
  World::at_step(carrier, step, [&] {
    struck = true;
    fate == Fate::kKilled ? job.kill(of.carrier) : job.stop(of.carrier);
  });
  std::int64_t took_ms = job.world().elapsed_ms();
  job.have(of.leaver, [](Rank* self) {
    self->part->leave();
    self->whole->leave();
  });
  took_ms = job.world().elapsed_ms() - took_ms;
  job.world().run_for(200);
  if (fate == Fate::kStopped) job.kill(of.carrier);
  job.world().run_for(12'000);
  wrong->clear();
  if (took_ms >= 1000) *wrong = fmt::format("the rank takes {} ms to leave", took_ms);
  const auto number =
      static_cast<int>(std::find(job.members().begin(), job.members().end(), of.leaver) - job.members().begin());
  for (const int rank : job.members()) {
    if (rank == of.leaver) continue;
    const Status status = job.at(rank).part_failure->status();
    if (!status.is_ok()) *wrong = fmt::format("rank {} fails: {}", rank, status.message());
    if (!job.at(rank).part_failure->departed(number)) *wrong += fmt::format("; rank {} has not heard", rank);
  }
  return struck;
}

}  // namespace

TEST_CASE("leaving: other ranks hear that a rank has left though its only neighbour dies at any step") {
  const auto fate = GENERATE(Fate::kKilled, Fate::kStopped);
  // A leaf below rank 1; rank 0, of whose children the others have left.
  const auto of = GENERATE(Leaving{6, 5, 1, {}}, Leaving{7, 0, 1, {2, 3, 4}});
  constexpr int kMostFindings = 4;
  int findings = 0;
  for (unsigned seed = 0; seed < (kAnySanitizer ? 1 : 8); ++seed) {
    std::string wrong;
    std::uint64_t step = 1;
    for (; leave_past(of, fate, step, seed, &wrong) && findings < kMostFindings; ++step) {
      if (wrong.empty()) continue;
      FAIL_CHECK("seed " << seed << ", step " << step << ", rank " << of.leaver << ": " << wrong);
      ++findings;
    }
    CHECK(step > 5);
  }
}
