// Communicators that some ranks of another one make without the others.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <latch>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "os/clock.h"
#include "splits.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

struct Way {
  RunJob run;
  const char* transports;
};
const std::vector<Way>& ways_of_threads() {
  static const std::vector<Way> all = {{run_threads, "shm"}, {run_threads, "sim:7"}, {run_threads, "tcp"}};
  return all;
}
const std::vector<Way>& ways_of_processes() {
  static const std::vector<Way> all = {{run_processes, "shm"}, {run_processes, "tcp"}};
  return all;
}

void require_on(const std::vector<Way>& ways, int ranks, const Body& body) {
  for (const Way& way : ways) {
    INFO(way.transports << ", " << ranks << " ranks");
    REQUIRE(wrong_of(way.run(ranks, way.transports, body)) == "");
  }
}

// The first member draws the id and sends it to the others. A rank that is not listed makes nothing.
std::string make(const Split& parent, const std::vector<int>& listed, Split* made,
                 const tuttiConfig_t* config = nullptr) {
  *made = {};
  const auto own = std::find(listed.begin(), listed.end(), parent.rank);
  if (own == listed.end()) return "";
  std::uint64_t id = 0;
  if (own == listed.begin()) {
    if (tuttiCommGetGroupId(parent.comm, &id) != tuttiSuccess) return "no id";
    for (auto other = listed.begin() + 1; other != listed.end(); ++other) {
      if (tuttiSend(&id, 1, tuttiUint64, *other, parent.comm, nullptr) != tuttiSuccess) return "the id is not sent";
    }
  } else if (tuttiRecv(&id, 1, tuttiUint64, listed.front(), parent.comm, nullptr) != tuttiSuccess) {
    return "the id does not arrive";
  }
  const tuttiResult_t result =
      tuttiCommCreateGroup(parent.comm, id, static_cast<int>(listed.size()), listed.data(), &made->comm, config);
  if (result != tuttiSuccess) return tuttiGetLastError(nullptr);
  made->rank = static_cast<int>(own - listed.begin());
  for (const int r : listed) made->members.push_back(parent.members[static_cast<std::size_t>(r)]);
  return check_members(*made);
}

std::vector<int> draw_members(std::mt19937& random, int ranks) {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(r);
  std::shuffle(all.begin(), all.end(), random);
  all.resize(1 + random() % all.size());
  return all;
}

// Groups, and groups of groups, which are used concurrently and end in any order.
Outcome make_many(tuttiComm_t comm, int rank, int ranks) {
  std::mt19937 random(7);
  const Split parent = whole(comm, rank, ranks);
  for (int round = 0; round < 6; ++round) {
    Split first;
    Split second;
    Split below;
    std::string wrong = make(parent, draw_members(random, ranks), &first);
    if (wrong.empty()) wrong = make(parent, draw_members(random, ranks), &second);
    const auto seed = static_cast<std::uint32_t>(random());
    if (wrong.empty() && first.comm != nullptr) {
      std::mt19937 of_first(seed);
      wrong = make(first, draw_members(of_first, first.ranks()), &below);
    }
    for (const Split* one : std::initializer_list<const Split*>{&below, &second, &first, &parent, &second, &below}) {
      if (wrong.empty() && one->comm != nullptr) wrong = check_members(*one);
    }
    for (const Split* one : std::initializer_list<const Split*>{&first, &below, &second}) {
      if (wrong.empty() && one->comm != nullptr && tuttiCommDestroy(one->comm) != tuttiSuccess) wrong = "not destroyed";
    }
    if (!wrong.empty()) return {"round " + std::to_string(round) + ": " + wrong};
  }
  return {};
}

TEST_CASE("a group of ranks makes a communicator without the others, threads", "[threads]") {
  for (int ranks = 1; ranks <= 5; ++ranks) require_on(ways_of_threads(), ranks, make_many);
}
TEST_CASE("a group of ranks makes a communicator without the others, processes", "[processes]") {
  for (int ranks = 1; ranks <= 5; ++ranks) require_on(ways_of_processes(), ranks, make_many);
}

TEST_CASE("a communicator that has failed still makes groups", "[processes]") {
  require_on(ways_of_processes(), 3, [](tuttiComm_t comm, int rank, int ranks) {
    std::vector<std::uint64_t> ids(1);
    if (rank == 0) (void)tuttiCommGetGroupId(comm, ids.data());
    if (tuttiBroadcast(ids.data(), ids.data(), 1, tuttiUint64, 0, comm, nullptr) != tuttiSuccess) return Outcome{"id"};
    // After the barrier every rank has the id; another rank's revocation may end the barrier here.
    (void)tuttiBarrier(comm, nullptr);
    (void)tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT);
    const Split parent = whole(comm, rank, ranks);
    Split made{nullptr, {0, 1, 2}, rank};
    const tuttiResult_t result = tuttiCommCreateGroup(comm, ids[0], 3, made.members.data(), &made.comm, nullptr);
    if (result != tuttiSuccess) return Outcome{tuttiGetLastError(nullptr)};
    std::string wrong = check_members(made);
    (void)tuttiCommDestroy(made.comm);
    return Outcome{wrong};
  });
}

constexpr int kLongInitMs = 60'000;
// Far less than the timeout, far more than a busy machine takes.
constexpr std::int64_t kSoonNs = 20'000'000'000;

// Makes a group of all ranks and expects it to fail.
std::string check_refused_soon(tuttiComm_t comm, std::uint64_t id, std::vector<int> listed, tuttiResult_t expected,
                               const std::string& why) {
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.init_timeout_ms = kLongInitMs;
  tuttiComm_t made = nullptr;
  const std::int64_t begin_ns = now_ns();
  const tuttiResult_t result =
      tuttiCommCreateGroup(comm, id, static_cast<int>(listed.size()), listed.data(), &made, &config);
  const std::string text = tuttiGetLastError(nullptr);
  if (now_ns() - begin_ns > kSoonNs) return "it waits: " + text;
  if (result != expected) return "another result: " + std::to_string(result) + ", " + text;
  return text.find(why) != std::string::npos ? "" : "not \"" + why + "\": " + text;
}

// Rank 0's id, for all ranks.
std::string share_id(tuttiComm_t comm, int rank, std::uint64_t* id) {
  if (rank == 0) (void)tuttiCommGetGroupId(comm, id);
  return tuttiBroadcast(id, id, 1, tuttiUint64, 0, comm, nullptr) == tuttiSuccess ? "" : tuttiGetLastError(comm);
}

// A communicator of all, and an id for a group of it.
std::string split_and_share_id(tuttiComm_t world, int rank, tuttiComm_t* comm, std::uint64_t* id) {
  if (tuttiCommSplit(world, 0, rank, comm, nullptr) != tuttiSuccess) return tuttiGetLastError(world);
  if (std::string wrong = share_id(*comm, rank, id); !wrong.empty()) return wrong;
  // No rank ends the communicator before all have the id.
  return tuttiBarrier(world, nullptr) == tuttiSuccess ? "" : tuttiGetLastError(world);
}

// Ranks 0 and 1 make a group of all three, and rank 2 does not take part. Then rank 0 ends the communicator.
void require_end(const std::vector<Way>& ways, tuttiResult_t (*end)(tuttiComm_t)) {
  require_on(ways, 3, [end](tuttiComm_t world, int rank, int) {
    tuttiComm_t comm = nullptr;
    std::uint64_t id = 0;
    std::string wrong = split_and_share_id(world, rank, &comm, &id);
    if (!wrong.empty()) return Outcome{wrong};
    if (rank == 2) {
      for (int i = 0; i < 2 && wrong.empty(); ++i)
        wrong = tuttiBarrier(world, nullptr) == tuttiSuccess ? "" : tuttiGetLastError(world);
      (void)tuttiCommAbort(comm);
      return Outcome{wrong};
    }
    std::string of_group;
    std::latch calls(1);
    std::thread maker([&] {
      calls.count_down();
      of_group = check_refused_soon(comm, id, {0, 1, 2}, tuttiAborted, "has been aborted or revoked");
    });
    calls.wait();
    const bool both = tuttiBarrier(world, nullptr) == tuttiSuccess;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (rank == 0) (void)end(comm);
    maker.join();
    if (!both) return Outcome{tuttiGetLastError(world)};
    wrong = tuttiBarrier(world, nullptr) == tuttiSuccess ? of_group : tuttiGetLastError(world);
    // The handle is gone if this rank has aborted it.
    (void)tuttiCommAbort(comm);
    return Outcome{wrong};
  });
}

TEST_CASE("an abort of the communicator ends a group that is being made of it, threads", "[threads]") {
  require_end(ways_of_threads(), tuttiCommAbort);
}
TEST_CASE("an abort of the communicator ends a group that is being made of it, processes", "[processes]") {
  require_end(ways_of_processes(), tuttiCommAbort);
}
TEST_CASE("a revoke of the communicator ends a group that is being made of it", "[processes]") {
  require_end(ways_of_processes(), [](tuttiComm_t comm) { return tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT); });
}

// Rank 2 keeps the world, and with it the job's connections.
void require_leave(const std::vector<Way>& ways, tuttiResult_t (*leave)(tuttiComm_t), bool before) {
  require_on(ways, 3, [leave, before](tuttiComm_t world, int rank, int) {
    tuttiComm_t comm = nullptr;
    std::uint64_t id = 0;
    std::string wrong = split_and_share_id(world, rank, &comm, &id);
    if (!wrong.empty()) return Outcome{wrong};
    if (rank == 2) {
      if (!before) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      (void)leave(comm);
    }
    if (before && tuttiBarrier(world, nullptr) != tuttiSuccess) return Outcome{tuttiGetLastError(world)};
    if (rank != 2) {
      // The notice of an abort may come first, and later than the call.
      wrong = check_refused_soon(comm, id, {0, 1, 2}, tuttiRemoteError, "rank 2 left");
      const bool aborted = wrong.find("another result") == 0 && wrong.find("has been aborted") != std::string::npos;
      if (leave == tuttiCommAbort && aborted) wrong = "";
    }
    if (tuttiBarrier(world, nullptr) != tuttiSuccess) wrong += tuttiGetLastError(world);
    if (rank != 2) (void)tuttiCommAbort(comm);
    return Outcome{wrong};
  });
}

TEST_CASE("members hear that a rank has left the communicator without calling, threads", "[threads]") {
  for (const auto leave : {tuttiCommAbort, tuttiCommDestroy}) require_leave(ways_of_threads(), leave, true);
}
TEST_CASE("members hear that a rank has left the communicator without calling, processes", "[processes]") {
  for (const auto leave : {tuttiCommAbort, tuttiCommDestroy}) require_leave(ways_of_processes(), leave, true);
  require_leave(ways_of_processes(), tuttiCommDestroy, false);
}

TEST_CASE("the id of a destroyed group is refused at once", "[processes]") {
  require_on(ways_of_processes(), 3, [](tuttiComm_t comm, int rank, int) {
    std::uint64_t id = 0;
    std::string wrong = share_id(comm, rank, &id);
    const std::vector<int> all{0, 1, 2};
    tuttiComm_t made = nullptr;
    if (wrong.empty() && tuttiCommCreateGroup(comm, id, 3, all.data(), &made, nullptr) != tuttiSuccess)
      wrong = tuttiGetLastError(nullptr);
    if (made != nullptr) (void)tuttiCommDestroy(made);
    if (wrong.empty())
      wrong = check_refused_soon(comm, id, all, tuttiInvalidUsage, "has served a communicator already");
    if (tuttiBarrier(comm, nullptr) != tuttiSuccess) wrong += tuttiGetLastError(comm);
    return Outcome{wrong};
  });
}

void require_no_agreement(const std::vector<Way>& ways) {
  require_on(ways, 3, [](tuttiComm_t comm, int rank, int) {
    std::vector<std::uint64_t> ids(3);
    if (rank == 0) {
      for (std::uint64_t& id : ids) (void)tuttiCommGetGroupId(comm, &id);
    }
    if (tuttiBroadcast(ids.data(), ids.data(), 3, tuttiUint64, 0, comm, nullptr) != tuttiSuccess) return Outcome{"ids"};
    tuttiComm_t made = nullptr;
    const auto refused = [&](std::uint64_t id, std::vector<int> listed, tuttiResult_t expected,
                             const std::string& why) {
      const tuttiResult_t result =
          tuttiCommCreateGroup(comm, id, static_cast<int>(listed.size()), listed.data(), &made, nullptr);
      const std::string text = tuttiGetLastError(nullptr);
      return result == expected && text.find(why) != std::string::npos ? std::string() : "not \"" + why + "\": " + text;
    };
    std::string wrong = refused(ids[0], {rank, rank}, tuttiInvalidArgument, "twice");
    if (wrong.empty())
      wrong = refused(ids[0], {(rank + 1) % 3}, tuttiInvalidArgument, "does not list the calling rank");
    if (wrong.empty()) wrong = refused(ids[0], {rank, 3}, tuttiInvalidArgument, "ranks[1] is 3");
    if (wrong.empty()) wrong = refused(0, {rank}, tuttiInvalidArgument, "id is 0");
    // In another order.
    const std::vector<int> listed = rank == 2 ? std::vector<int>{0, 2, 1} : std::vector<int>{0, 1, 2};
    if (wrong.empty() && tuttiCommCreateGroup(comm, ids[1], 3, listed.data(), &made, nullptr) == tuttiSuccess)
      wrong = "lists that differ are taken";
    // Rank 2 does not come.
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.init_timeout_ms = 500;
    if (wrong.empty() && rank != 2) {
      const std::vector<int> all{0, 1, 2};
      const tuttiResult_t result = tuttiCommCreateGroup(comm, ids[2], 3, all.data(), &made, &config);
      const std::string text = tuttiGetLastError(nullptr);
      if (result == tuttiSuccess || text.find("rank 2") == std::string::npos) wrong = "does not name rank 2: " + text;
    }
    if (wrong.empty() && tuttiBarrier(comm, nullptr) != tuttiSuccess) wrong = tuttiGetLastError(comm);
    return Outcome{wrong};
  });
}

TEST_CASE("members that do not agree get errors that name the cause, threads", "[threads]") {
  require_no_agreement(ways_of_threads());
}
TEST_CASE("members that do not agree get errors that name the cause, processes", "[processes]") {
  require_no_agreement(ways_of_processes());
}

// Ranks 0 and 1 make one group, the other four another one.
TEST_CASE("groups of different ranks with one id get an error", "[threads]") {
  require_on(ways_of_threads(), 6, [](tuttiComm_t comm, int rank, int) {
    std::uint64_t id = 0;
    std::string wrong = share_id(comm, rank, &id);
    // The larger group begins while the smaller one waits for rank 1.
    if (rank >= 1) std::this_thread::sleep_for(std::chrono::milliseconds(rank == 1 ? 200 : 50));
    if (wrong.empty()) {
      wrong = check_refused_soon(comm, id, rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3, 4, 5},
                                 tuttiMismatch, "has split off a communicator of other ranks, with the same id");
    }
    if (tuttiBarrier(comm, nullptr) != tuttiSuccess) wrong += tuttiGetLastError(comm);
    return Outcome{wrong};
  });
}

void require_reason_later(const std::vector<Way>& ways) {
  require_on(ways, 3, [](tuttiComm_t comm, int rank, int) {
    std::uint64_t id = 0;
    std::string wrong = share_id(comm, rank, &id);
    const std::vector<int> all{0, 1, 2};
    if (rank == 0) {
      tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
      config.port_range = "5000-5001";
      tuttiComm_t made = nullptr;
      if (tuttiCommCreateGroup(comm, id, 3, all.data(), &made, &config) != tuttiInvalidArgument) wrong = "not refused";
    }
    // The others call when rank 0 has returned.
    if (tuttiBarrier(comm, nullptr) != tuttiSuccess) wrong += tuttiGetLastError(comm);
    if (wrong.empty() && rank != 0) {
      wrong = check_refused_soon(comm, id, all, tuttiRemoteError, "config.port_range must equal that of the parent");
    }
    if (tuttiBarrier(comm, nullptr) != tuttiSuccess) wrong += tuttiGetLastError(comm);
    return Outcome{wrong};
  });
}

TEST_CASE("members that call after another one was refused get its reason, threads", "[threads]") {
  require_reason_later(ways_of_threads());
}
TEST_CASE("members that call after another one was refused get its reason, processes", "[processes]") {
  require_reason_later(ways_of_processes());
}

}  // namespace
}  // namespace tutti::internal::test
