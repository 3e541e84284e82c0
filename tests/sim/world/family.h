// A job in the simulated world (world.h) whose ranks are ready and do nothing more by themselves. A test lets them die,
// leave and fail, one by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "join/join.h"
#include "sim/world/world.h"

namespace tutti::internal::sim {

inline constexpr std::int64_t kLongMs = 60'000;
inline constexpr std::int64_t kHeardMs = 100;  // all ranks must know within this time
// The same for a rank that has died together with its only neighbour.
inline constexpr std::int64_t kMissedMs = 1000;

inline bool contains(const Status& status, const std::string& part) {
  return status.message().find(part) != std::string::npos;
}

inline bool is_in(const std::vector<int>& list, int rank) {
  return std::find(list.begin(), list.end(), rank) != list.end();
}

// A rank with the job's communicator and perhaps one with only some ranks.
struct Rank {
  Process* process = nullptr;
  std::shared_ptr<FailureState> failure = std::make_shared<FailureState>();
  std::shared_ptr<FailureState> part_failure = std::make_shared<FailureState>();
  std::unique_ptr<ControlTree> part;
  std::unique_ptr<ControlTree> whole;
  Status status;
  bool ready = false;
  int attended = 0;  // how often the tree has attended the rank's listeners
  bool remakes_connections = false;
  bool is_attacked = false;  // connections there are not authenticated yet
  int inside = 0;            // the number of its threads that use its communicators

  Status join_job(const UniqueIdBytes& id, int rank, int ranks) {
    Settings settings;
    settings.wait_notice_ms = 0;
    Result<Job> job = join(id, rank, ranks, settings, Deadline::after_ms(kLongMs));
    if (!job.is_ok()) return job.status();
    whole = std::move(job->tree);
    if (Status s = whole->all_gather("x", Deadline::after_ms(kLongMs)).status(); !s.is_ok()) return s;
    return whole->watch(failure, witness());
  }
  Witness witness() {
    Witness made;
    made.attend_listeners = [this] {
      ++attended;
      return is_attacked;
    };
    made.remakes_connections = remakes_connections;
    return made;
  }
  Status split_off(std::uint64_t id, const std::vector<int>& members) {
    auto tree = whole->split(id, members);
    if (!tree.is_ok()) return tree.status();
    part = std::move(tree).value();
    if (Status s = part->all_gather("y", Deadline::after_ms(kLongMs)).status(); !s.is_ok()) return s;
    return part->watch(part_failure, witness());
  }
};

// Members of a communicator of their own with the id 9.
struct Group {
  std::vector<int> members;
  std::vector<Status> made;  // by member, Status::internal() until then
  [[nodiscard]] bool is_made() const {
    return std::all_of(made.begin(), made.end(), [](const Status& status) { return status.is_ok(); });
  }
};

// A job whose ranks are ready, with a communicator of its `members`. They do nothing more by themselves.
class Family {
 public:
  // `two_networks`: of WorldOptions.
  Family(unsigned seed, int ranks, std::vector<int> members, bool two_networks = false,
         bool remakes_connections = false)
      : members_(std::move(members)), world_(with(seed, two_networks)) {
    for (int rank = 0; rank < ranks; ++rank) {
      all_.emplace_back(std::make_unique<Rank>())->remakes_connections = remakes_connections;
    }
    for (int rank = 0; rank < ranks; ++rank) at(rank).process = world_.start("rank", [this, rank] { live(rank); });
    auto waiting = all_.begin();
    const bool ready = world_.run_until(
        [&] {
          while (waiting != all_.end() && (*waiting)->ready) ++waiting;
          return waiting == all_.end();
        },
        kLongMs);
    expect(ready);
    for (const auto& rank : all_) {
      if (!rank->status.is_ok()) FAIL(rank->status.message());
    }
  }
  ~Family() { CHECK(world_.finish()); }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  [[nodiscard]] World& world() { return world_; }
  [[nodiscard]] Rank& at(int rank) { return *all_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const std::vector<int>& members() const { return members_; }
  void kill(int rank) { world_.kill(at(rank).process); }
  void stop(int rank) { world_.stop(at(rank).process); }
  // Runs `action` in a thread of the rank, until it returns.
  void have(int rank, const std::function<void(Rank*)>& action) {
    bool done = false;
    world_.start_thread(at(rank).process, [&] {
      action(&at(rank));
      done = true;
    });
    expect(world_.run_until([&] { return done; }, kLongMs));
  }
  // Starts a thread of each rank in `now`, which makes its part of the group. The group outlives these threads.
  void split_off(Group* group, const std::vector<int>& now) {
    group->made.resize(group->members.size(), Status::internal("not made"));
    for (std::size_t i = 0; i < group->members.size(); ++i) {
      if (!is_in(now, group->members[i])) continue;
      Rank* const rank = &at(group->members[i]);
      world_.start_thread(rank->process, [rank, group, i] { group->made[i] = rank->split_off(9, group->members); });
    }
  }
  [[nodiscard]] bool eventually(const std::function<bool()>& condition, std::int64_t ms = 20'000) {
    return world_.run_until(condition, ms);
  }
  // Its name in the members' communicator.
  [[nodiscard]] std::string name_of(int rank) const {
    return "rank " + std::to_string(std::find(members_.begin(), members_.end(), rank) - members_.begin());
  }
  [[nodiscard]] std::vector<int> living_members() {
    std::vector<int> living;
    for (const int rank : members_) {
      if (!at(rank).process->dead && !at(rank).process->stopped) living.push_back(rank);
    }
    return living;
  }
  void expect_heard(int victim, std::int64_t within_ms = kHeardMs) {
    const std::int64_t until_ms = world_.elapsed_ms() + within_ms;
    for (const int rank : living_members()) {
      INFO("rank " << rank << " of " << all_.size() << " is to hear that " << victim << " has died");
      REQUIRE(eventually([&] { return at(rank).part_failure->failed(); }, until_ms - world_.elapsed_ms() + 1));
      CHECK(contains(at(rank).part_failure->status(), name_of(victim) + " (host "));
      CHECK(contains(at(rank).part_failure->status(), "died"));
    }
  }

 private:
  // The report takes longer than most runs.
  void expect(bool in_time) {
    if (!in_time) FAIL(world_.report());
  }
  static WorldOptions with(unsigned seed, bool two_networks) {
    WorldOptions options;
    options.seed = seed;
    options.two_networks = two_networks;
    return options;
  }
  void live(int rank) {
    Rank& self = at(rank);
    if (rank == 0) {
      Settings settings;
      settings.wait_notice_ms = 0;
      id_ = create_unique_id(settings).value();
      world_.open(&has_id_);
    }
    world_.pass(has_id_);
    self.status = self.join_job(id_, rank, static_cast<int>(all_.size()));
    if (self.status.is_ok() && is_in(members_, rank)) self.status = self.split_off(7, members_);
    self.ready = true;
    world_.pass(end_);
    while (self.inside != 0) static_cast<void>(FailureState().await(Deadline::after_ms(10)));
    self.part.reset();
    self.whole.reset();
  }

  const std::vector<int> members_;
  std::vector<std::unique_ptr<Rank>> all_;
  UniqueIdBytes id_{};
  Gate has_id_;
  Gate end_;  // opens when the world ends
  World world_;
};

// All ranks but some.
inline std::vector<int> all_but(int ranks, const std::vector<int>& others) {
  std::vector<int> result;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!is_in(others, rank)) result.push_back(rank);
  }
  return result;
}

}  // namespace tutti::internal::sim
