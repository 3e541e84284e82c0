// Agreements in a row, with faults that are drawn from a seed: all members that live and take part return the same
// result. In the simulated world: see world.h.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "control/tree_shape.h"
#include "sanitizers.h"
#include "sim/world/meeting.h"

using namespace tutti::internal;
using namespace tutti::internal::sim;
using tutti::internal::test::kAnySanitizer;

namespace {

// The number of ranks is drawn such that each power of two is as frequent as the others.
int draw_ranks(std::mt19937_64* random, int most) {
  return static_cast<int>(2 * std::pow(most / 2.0, std::uniform_real_distribution<>()(*random)) + 0.001);
}

// Several agreements in a row, with faults at random moments in and between them: ranks die, perhaps with the rank
// above them, so that the tree heals late; ranks stop or are cut off for a while; connections break, and are made anew;
// packet filters hide ranks; members call late, and are left out of the next agreement.
class Chaos {
 public:
  Chaos(std::uint64_t seed, int most_ranks) : seed_(seed), random_(seed) {
    ranks_ = draw_ranks(&random_, most_ranks);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (draw(3) != 0) members_.push_back(rank);
    }
    if (members_.size() < 2) members_ = ranks_below(ranks_);
    std::shuffle(members_.begin(), members_.end(), random_);
    two_networks_ = draw(4) == 0;
    remakes_connections_ = draw(4) == 0;
  }

  std::string run() {
    Family job(static_cast<unsigned>(seed_), ranks_, members_, two_networks_, remakes_connections_);
    job_ = &job;
    for (int n = 2 + draw(3); n > 0; --n) {
      for (int faults = draw(4); faults > 0; --faults) add_fault();
      if (draw(3) == 0) job.world().run_for(1 + draw(400));  // some of the faults come before the calls
      if (std::string wrong = draw(4) == 0 ? agree_without_late() : agree(); !wrong.empty()) return wrong;
    }
    return {};
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("seed {}: {} ranks, agreement {}", seed_, ranks_, agreements_);
  }

 private:
  int draw(int below) { return static_cast<int>(random_() % static_cast<std::uint64_t>(below)); }

  // ---- Faults
  void add_fault() {
    const int rank = draw(ranks_);
    const auto step = static_cast<std::uint64_t>(1 + draw(80));
    switch (draw(8)) {
      case 0:
      case 1: return hold(rank, step);
      case 2:
        if (rank > 0) kill(tree_parent(rank), step);
        return kill(rank, step);
      case 3:
        if (!remakes_connections_ || job_->at(rank).process->dead) return;
        return World::at_step(job_->at(rank).process, step, [job = job_, rank] {
          if (!job->at(rank).process->dead) job->world().break_connections(job->at(rank).process);
        });
      case 4:
        if (two_networks_) job_->world().filter(job_->at(rank).process);
        return;
      default: return kill(rank, step);
    }
  }
  void kill(int rank, std::uint64_t step) {
    if (job_->at(rank).process->dead || draw(ranks_) == 0) return;
    World::at_step(job_->at(rank).process, step, [job = job_, rank] { job->kill(rank); });
  }
  // Stops the rank, or cuts it off from the others, for a while.
  void hold(int rank, std::uint64_t step) {
    if (job_->at(rank).process->dead) return;
    held_.push_back(rank);
    const bool cut = draw(2) == 0;
    const int ms = 1 + draw(2000);
    World::at_step(job_->at(rank).process, step, [job = job_, rank, cut, ms] {
      World& world = job->world();
      Process* const process = job->at(rank).process;
      if (process->dead) return;
      cut ? world.cut_off(process) : world.stop(process);
      world.after_ms(ms, [&world, process, cut] { cut ? world.reconnect(process) : world.go_on(process); });
    });
  }

  // ---- Agreements
  [[nodiscard]] bool takes_part(int rank) const { return !job_->at(rank).process->dead && !is_in(given_up_, rank); }
  std::string end_of(Meeting* meeting) {
    ++agreements_;
    if (!job_->eventually([&] { return meeting->is_over(); }, 30'000)) return "a rank waits: " + job_->world().report();
    for (const int rank : members_) {
      if (takes_part(rank) && is_in(held_, rank) && !meeting->of(rank).is_ok()) given_up_.push_back(rank);
    }
    return meeting->what_is_wrong(held_);
  }
  std::string agree() {
    Meeting meeting(job_, "agree");
    for (const int rank : members_) {
      if (takes_part(rank)) meeting.enter(rank);
    }
    return end_of(&meeting);
  }
  [[nodiscard]] int place_of(int rank) const {
    return static_cast<int>(std::find(members_.begin(), members_.end(), rank) - members_.begin());
  }
  // Of an agreement to which one member came late: all that live have the same result, in which it is late.
  std::string wrong_with_late(const Meeting& meeting, int late) {
    const Agreement* first = nullptr;
    bool is_alone = true;
    for (const int rank : members_) {
      if (!takes_part(rank)) continue;
      is_alone = is_alone && rank == late;
      if (!meeting.of(rank).is_ok()) return fmt::format("rank {}: {}", rank, meeting.error_of(rank).message());
      const Agreement& own = meeting.of(rank).value();
      if (first == nullptr) first = &own;
      if (own.late != first->late || own.flags != first->flags || own.failed != first->failed) {
        return fmt::format("rank {} has another result with a late rank", rank);
      }
    }
    // If it is dead, or all others are, nothing has been decided without it.
    return is_alone || !takes_part(late) || is_in(first->late, place_of(late)) ? "" : "the late rank takes part";
  }
  // One member calls late. It gets the decision of the others, which agree without it, and then with it.
  std::string agree_without_late() {
    std::vector<int> on_time;
    for (const int rank : members_) {
      if (takes_part(rank) && !is_in(held_, rank)) on_time.push_back(rank);
    }
    // A rank that is held may be late as well: then it is not known which members are.
    if (!held_.empty() || on_time.size() < 2) return agree();
    const int late = on_time.back();
    on_time.pop_back();
    Meeting first(job_, "agree");
    first.take_late(kLatePatienceMs);
    for (const int rank : on_time) first.enter(rank);
    ++agreements_;
    if (!job_->eventually([&] { return first.is_over(); }, 2 * kLatePatienceMs)) {
      return "a rank waits for a late one: " + job_->world().report();
    }
    if (takes_part(late)) first.enter(late);
    if (!job_->eventually([&] { return first.is_over(); }, kBoundMs)) return "the late rank waits";
    if (std::string wrong = wrong_with_late(first, late); !wrong.empty()) return wrong;
    const auto any = std::find_if(members_.begin(), members_.end(), [&](int rank) { return takes_part(rank); });
    if (any == members_.end()) return {};
    const std::vector<int> out = first.of(*any).value().late;
    Meeting second(job_, "agree without the late rank");
    for (const int rank : on_time) {
      if (takes_part(rank) && !is_in(out, place_of(rank))) second.enter(rank, out);
    }
    ++agreements_;
    if (!job_->eventually([&] { return second.is_over(); }, kBoundMs)) return "a rank waits without the late one";
    for (const int rank : on_time) {
      if (!takes_part(rank) || is_in(out, place_of(rank))) continue;
      if (!second.of(rank).is_ok()) return fmt::format("rank {}: {}", rank, second.error_of(rank).message());
      if ((second.of(rank).value().flags & ~without(late)) == 0 && ranks_ <= 64) return "the late rank takes part";
    }
    return agree();
  }

  static constexpr std::int64_t kLatePatienceMs = 8000;
  const std::uint64_t seed_;
  std::mt19937_64 random_;
  int ranks_ = 2;
  std::vector<int> members_;
  bool two_networks_ = false;
  bool remakes_connections_ = false;
  Family* job_ = nullptr;
  int agreements_ = 0;
  std::vector<int> held_;      // ranks that did not answer for a while, and may count as dead
  std::vector<int> given_up_;  // those of them that have had an error
};

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

// With up to TUTTI_TEST_RANKS ranks, and the seeds from TUTTI_TEST_FIRST_SEED to TUTTI_TEST_LAST_SEED.
TEST_CASE("agreement: deaths, stops, lost connections and late members, several faults drawn from a seed") {
  const auto most_ranks = static_cast<int>(number_from("TUTTI_TEST_RANKS", 24));
  const std::uint64_t last = number_from("TUTTI_TEST_LAST_SEED", kAnySanitizer ? 100 : 1000);
  for (std::uint64_t seed = number_from("TUTTI_TEST_FIRST_SEED", 1); seed <= last; ++seed) {
    Chaos chaos(seed, most_ranks);
    const std::string wrong = chaos.run();
    INFO(chaos.text() << ": " << wrong);
    CHECK(wrong.empty());
  }
}
