// The control tree after initialisation: deaths, announced failures and leave notices.
#include <sys/socket.h>
#include <unistd.h>

#include "catch_compat.h"
#include "control/control_messages.h"
#include "control/socket_tree.h"
#include "join/in_process.h"
#include "join/root_service.h"
#include "net/frame.h"
#include "ranks.h"

using namespace tutti::internal;
using tutti::internal::test::Child;
using tutti::internal::test::eventually;
using tutti::internal::test::on_threads;
using tutti::internal::test::Watcher;

namespace {

constexpr std::int64_t kLongMs = 60'000;

Settings loopback() {
  Settings settings;
  settings.interface = "lo";
  return settings;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Status join_and_watch(const UniqueIdBytes& id, int rank, int ranks, Watcher* watcher) {
  const Deadline deadline = Deadline::after_ms(kLongMs);
  Result<Job> job = join(id, rank, ranks, loopback(), deadline);
  if (!job.is_ok()) return job.status();
  watcher->job = std::move(job).value();
  Result<std::vector<std::string>> all = watcher->job.tree->all_gather("x", deadline);
  if (!all.is_ok()) return all.status();
  return watcher->job.tree->watch(watcher->failure, {});
}

std::vector<Watcher> over_sockets(int ranks) {
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  std::vector<Watcher> watchers(static_cast<std::size_t>(ranks));
  std::vector<Status> statuses(watchers.size());
  on_threads(ranks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    statuses[r] = join_and_watch(*id, rank, ranks, &watchers[r]);
  });
  for (const Status& status : statuses) {
    INFO(status.message());
    REQUIRE(status.is_ok());
  }
  return watchers;
}

std::vector<Watcher> in_process(int ranks) {
  Result<std::vector<Job>> jobs = make_in_process_jobs(ranks);
  REQUIRE(jobs.is_ok());
  std::vector<Watcher> watchers(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < watchers.size(); ++r) {
    watchers[r].job = std::move(jobs.value()[r]);
    REQUIRE(watchers[r].job.tree->watch(watchers[r].failure, {}).is_ok());
  }
  return watchers;
}

// One rank as a separate process, among threads of this one. It waits until it is killed.
struct WithVictim {
  std::vector<Watcher> watchers;  // the victim's stays empty
  std::unique_ptr<Child> victim;
};

WithVictim join_with_victim(int ranks, int victim) {
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  WithVictim result;
  result.watchers.resize(static_cast<std::size_t>(ranks));
  result.victim = std::make_unique<Child>([&] {
    Watcher watcher;
    if (!join_and_watch(*id, victim, ranks, &watcher).is_ok()) return 1;
    ::sleep(120);
    return 0;
  });
  std::vector<Status> statuses(result.watchers.size());
  on_threads(ranks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank != victim) statuses[r] = join_and_watch(*id, rank, ranks, &result.watchers[r]);
  });
  for (const Status& status : statuses) {
    INFO(status.message());
    REQUIRE(status.is_ok());
  }
  return result;
}

}  // namespace

TEST_CASE("a rank that has completed an all-gather has sent its own part, and may die", "[fork]") {
  for (int i = 0; i < 20; ++i) {
    Result<UniqueIdBytes> id = create_unique_id(loopback());
    REQUIRE(id.is_ok());
    const Child last([&] {
      const Deadline deadline = Deadline::after_ms(kLongMs);
      Result<Job> job = join(*id, 1, 2, loopback(), deadline);
      if (!job.is_ok()) return 1;
      ::usleep(5000);  // the other rank's part is here
      if (!job.value().tree->all_gather("last", deadline).is_ok()) return 2;
      return ::kill(::getpid(), SIGKILL);
    });
    const Deadline deadline = Deadline::after_ms(kLongMs);
    Result<Job> job = join(*id, 0, 2, loopback(), deadline);
    REQUIRE(job.is_ok());
    Result<std::vector<std::string>> all = job.value().tree->all_gather("first", deadline);
    INFO(all.status().message());
    REQUIRE(all.is_ok());
    CHECK(all.value() == std::vector<std::string>{"first", "last"});
  }
}

TEST_CASE("a killed process fails all others, which name it", "[fork]") {
  const int victim = GENERATE(0, 1, 5, 20);
  WithVictim job = join_with_victim(21, victim);
  for (int rank = 0; rank < 21; ++rank) CHECK_FALSE(job.watchers[static_cast<std::size_t>(rank)].failure->failed());
  job.victim->kill(SIGKILL);
  for (int rank = 0; rank < 21; ++rank) {
    if (rank == victim) continue;
    const Watcher& watcher = job.watchers[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << " of the survivors of " << victim);
    REQUIRE(eventually([&] { return watcher.failure->failed(); }));
    CHECK(watcher.failure->status().code() == Code::kRemoteError);
    CHECK(contains(watcher.failure->status().message(), "rank " + std::to_string(victim) + " (host "));
    CHECK(contains(watcher.failure->status().message(), "died"));
  }
}

TEST_CASE("an announced failure reaches all others with its code and origin") {
  const bool sockets = GENERATE(true, false);
  const int origin = GENERATE(0, 7, 12);
  std::vector<Watcher> watchers = sockets ? over_sockets(13) : in_process(13);
  const auto o = static_cast<std::size_t>(origin);
  watchers[o].job.tree->announce_failure(Status::aborted("the user pressed a key"));
  for (std::size_t r = 0; r < watchers.size(); ++r) {
    if (r == o) continue;
    INFO("rank " << r << " told by " << origin);
    REQUIRE(eventually([&] { return watchers[r].failure->failed(); }));
    CHECK(watchers[r].failure->status().code() == Code::kAborted);
    CHECK(watchers[r].failure->status().message() == "rank " + std::to_string(origin) + ": the user pressed a key");
  }
  CHECK_FALSE(watchers[o].failure->failed());
}

TEST_CASE("ranks that leave right after an all-gather send leave notices") {
  for (int i = 0; i < 60; ++i) {
    Result<UniqueIdBytes> id = create_unique_id(loopback());
    REQUIRE(id.is_ok());
    std::vector<Watcher> watchers(3);
    std::vector<Status> statuses(watchers.size());
    on_threads(3, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      statuses[r] = join_and_watch(*id, rank, 3, &watchers[r]);
      if (!statuses[r].is_ok()) return;
      watchers[r].job.tree->leave();
      watchers[r].job.tree.reset();
    });
    for (std::size_t r = 0; r < watchers.size(); ++r) {
      INFO("rank " << r << ", round " << i << ": " << statuses[r].message());
      REQUIRE(statuses[r].is_ok());
      INFO(watchers[r].failure->status().message());
      REQUIRE_FALSE(watchers[r].failure->failed());
    }
  }
}

TEST_CASE("a leave notice is not a failure, and reaches all ranks") {
  const bool sockets = GENERATE(true, false);
  const int leaver = GENERATE(0, 2, 9);
  std::vector<Watcher> watchers = sockets ? over_sockets(10) : in_process(10);
  const auto l = static_cast<std::size_t>(leaver);
  watchers[l].job.tree->leave();
  watchers[l].job.tree.reset();
  for (std::size_t r = 0; r < watchers.size(); ++r) {
    if (r == l) continue;
    INFO("rank " << r << " left by " << leaver);
    REQUIRE(eventually([&] { return watchers[r].failure->departed(leaver); }));
  }
  for (const Watcher& watcher : watchers) CHECK_FALSE(watcher.failure->failed());
}

TEST_CASE("all may leave at once, again and again, without a failure") {
  for (int round = 0; round < 20; ++round) {
    std::vector<Watcher> watchers = over_sockets(8);
    on_threads(8, [&](int rank) { watchers[static_cast<std::size_t>(rank)].job.tree->leave(); });
    for (const Watcher& watcher : watchers) {
      INFO("round " << round << ": " << watcher.failure->status().message());
      REQUIRE_FALSE(watcher.failure->failed());
    }
  }
}

TEST_CASE("ending without a leave notice is a death") {
  const bool sockets = GENERATE(true, false);
  std::vector<Watcher> watchers = sockets ? over_sockets(6) : in_process(6);
  watchers[1].job.tree.reset();
  for (const std::size_t r : {0, 2, 3, 4, 5}) {
    REQUIRE(eventually([&] { return watchers[r].failure->failed(); }));
    CHECK(watchers[r].failure->status().code() == Code::kRemoteError);
    CHECK(contains(watchers[r].failure->status().message(), "rank 1"));
  }
}

TEST_CASE("a failure during the initialisation ends all gathers") {
  const bool sockets = GENERATE(true, false);
  constexpr int kRanks = 9;
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  Result<std::vector<Job>> jobs = make_in_process_jobs(kRanks);
  REQUIRE(id.is_ok());
  REQUIRE(jobs.is_ok());
  std::vector<Status> statuses(kRanks);
  on_threads(kRanks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const Deadline deadline = Deadline::after_ms(kLongMs);
    Job job;
    if (sockets) {
      Result<Job> joined = join(*id, rank, kRanks, loopback(), deadline);
      // Rank 4 may have joined before others.
      statuses[r] = joined.status();
      if (!joined.is_ok()) return;
      job = std::move(joined).value();
    } else {
      job = std::move(jobs.value()[r]);
    }
    if (rank == 4) {
      job.tree->announce_failure(Status::mismatch("no shared memory here"));
      job.tree->leave();
      return;
    }
    statuses[r] = job.tree->all_gather("x", deadline).status();
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == 4) continue;
    INFO("rank " << rank);
    CHECK(statuses[static_cast<std::size_t>(rank)].code() == Code::kMismatch);
    CHECK(contains(statuses[static_cast<std::size_t>(rank)].message(), "rank 4: no shared memory here"));
  }
}

TEST_CASE("a gather that one rank does not join times out everywhere and names the rank") {
  const bool sockets = GENERATE(true, false);
  const int absent = GENERATE(3, 14);
  constexpr int kRanks = 23;
  std::vector<Watcher> watchers(kRanks);
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  Result<std::vector<Job>> jobs = make_in_process_jobs(kRanks);
  REQUIRE(id.is_ok());
  REQUIRE(jobs.is_ok());
  std::vector<Status> statuses(kRanks);
  on_threads(kRanks, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (sockets) {
      Result<Job> joined = join(*id, rank, kRanks, loopback(), Deadline::after_ms(kLongMs));
      if (joined.is_ok()) watchers[r].job = std::move(joined).value();
    } else {
      watchers[r].job = std::move(jobs.value()[r]);
    }
    // Otherwise a rank whose thread starts late would also be missing.
    statuses[r] = watchers[r].job.tree->all_gather("here", Deadline::after_ms(kLongMs)).status();
    if (!statuses[r].is_ok() || rank == absent) return;
    statuses[r] = watchers[r].job.tree->all_gather("x", Deadline::after_ms(5000)).status();
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == absent) continue;
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    INFO("rank " << rank << ": " << status.message());
    CHECK(status.code() == Code::kTimeout);
    // Below the absent rank, a rank only knows that nothing comes from above.
    if (rank > 0 && tree_parent(rank) == absent) continue;
    CHECK(contains(status.message(), "rank " + std::to_string(absent)));
  }
}

namespace {

struct Ends {
  net::ByteStream ours;
  net::ByteStream trees;
};

Ends socket_pair() {
  int fds[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
  return {net::ByteStream(UniqueFd(fds[0])), net::ByteStream(UniqueFd(fds[1]))};
}

Deadline soon() {
  return Deadline::after_ms(20'000);
}

int kind_of(const Result<std::string>& frame) {
  return frame.is_ok() && !frame.value().empty() ? frame.value()[0] : 0;
}

void send(Ends& ends, const std::string& frame) {
  REQUIRE(net::send_frame(&ends.ours, frame, soon()).is_ok());
}

}  // namespace

TEST_CASE("a failure after the end of an all-gather ends no initialisation, here or below") {
  constexpr int kRanks = 6;  // rank 1 has rank 0 above and rank 5 below
  const bool dies = GENERATE(true, false);
  Ends up = socket_pair();
  Ends down = socket_pair();
  TreeSeed seed;
  seed.rank = 1;
  seed.ranks = kRanks;
  seed.neighbours.push_back({0, true, "a", 1, std::move(up.trees)});
  seed.neighbours.push_back({5, false, "a", 6, std::move(down.trees)});
  auto made = make_socket_tree(std::move(seed));
  REQUIRE(made.is_ok());
  const std::unique_ptr<ControlTree> tree = std::move(made).value();
  Result<std::vector<std::string>> gathered = Status::internal("not yet");
  std::thread gathers([&] { gathered = tree->all_gather("x", soon()); });
  // Rank 0 has all parts, and its last messages arrive together with the parts that rank 1 does not have.
  CHECK(kind_of(net::recv_frame(&up.ours, 1 << 16, soon())) == static_cast<int>(control::FrameKind::kContacts));
  CHECK(kind_of(net::recv_frame(&up.ours, 1 << 16, soon())) == static_cast<int>(control::FrameKind::kParts));
  send(down, control::pack_parts(0, {0, 5, RankSet(5, 6), {"x"}}));
  // Without it rank 0 would not have all parts.
  CHECK(kind_of(net::recv_frame(&up.ours, 1 << 16, soon())) == static_cast<int>(control::FrameKind::kParts));
  for (const int rank : {2, 3, 4, 0}) send(up, control::pack_parts(0, {0, rank, RankSet(rank, rank + 1), {"x"}}));
  if (dies) {
    REQUIRE(::shutdown(up.ours.get(), SHUT_WR) == 0);
  } else {
    send(up, control::pack_notice(0, {Code::kMismatch, "rank 0: the calls differ"}));
  }
  gathers.join();
  INFO(gathered.status().message());
  REQUIRE(gathered.is_ok());
  // Below, all parts come before it.
  CHECK(kind_of(net::recv_frame(&down.ours, 1 << 16, soon())) == static_cast<int>(control::FrameKind::kContacts));
  RankSet places;
  Result<std::string> frame = net::recv_frame(&down.ours, 1 << 16, soon());
  for (; kind_of(frame) == static_cast<int>(control::FrameKind::kParts);
       frame = net::recv_frame(&down.ours, 1 << 16, soon())) {
    net::Unpacker unpacker(frame.value());
    control::Header header;
    control::Parts parts;
    REQUIRE((control::unpack_header(&unpacker, &header) && control::unpack_parts(&unpacker, kRanks, kRanks, &parts)));
    places.add(parts.places);
  }
  CHECK(places == RankSet(0, 5));
  CHECK(kind_of(frame) == static_cast<int>(dies ? control::FrameKind::kDeath : control::FrameKind::kNotice));
  auto failure = std::make_shared<FailureState>();
  REQUIRE(tree->watch(failure, {}).is_ok());
  REQUIRE(eventually([&] { return failure->failed(); }));
  CHECK(failure->status().code() == (dies ? Code::kRemoteError : Code::kMismatch));
  CHECK(contains(failure->status().message(), dies ? "rank 0 (host a, pid 1) died" : "rank 0: the calls differ"));
}
