// Communicators that get new ranks, in place of dead ones or beside those that live.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "faults.h"

namespace tutti::internal::test {
namespace {

using List = std::vector<int>;

// How the new ranks get their ids: one for each call.
struct Post {
  std::atomic<int> sent{0};
  tuttiUniqueId ids[4];
  std::atomic<int> ready{0};
  std::atomic<int> done{0};
};

void send_id(Post* post, const tuttiUniqueId& id) {
  post->ids[post->sent] = id;
  ++post->sent;
}

// The number-th id; its sender may have failed.
bool await_id(Post* post, int number, tuttiUniqueId* id) {
  const Deadline deadline = Deadline::after_ms(60'000);
  while (post->sent <= number && !deadline.passed()) sleep_ms(1);
  *id = post->ids[number];
  return post->sent > number;
}

// What is wrong with a communicator of `ranks`, in which this one is `rank`.
std::string try_out(tuttiComm_t comm, int rank, int ranks) {
  int count = 0;
  int own = -1;
  if (tuttiCommCount(comm, &count) != tuttiSuccess || count != ranks) return std::to_string(count) + " ranks";
  if (tuttiCommUserRank(comm, &own) != tuttiSuccess || own != rank) return "rank " + std::to_string(own);
  for (const std::size_t elements : {1, 1000, 300'000}) {
    std::vector<std::int64_t> values(elements, 1 + rank);
    const tuttiResult_t result =
        tuttiAllReduce(values.data(), values.data(), elements, tuttiInt64, tuttiSum, comm, nullptr);
    if (result != tuttiSuccess) return "on the new communicator: " + describe(result, comm);
    const std::int64_t sum = std::int64_t{1} * ranks * (ranks + 1) / 2;
    if (values.front() != sum || values.back() != sum) return "a wrong sum";
  }
  return {};
}

// One rank of a test.
struct Part {
  tuttiComm_t comm;  // of the ranks that are there before; null for a new rank
  int rank;          // there; or the number of the new rank, from 0
  Post* post;
};

// `old` ranks with a communicator, and `added` ranks without.
std::vector<Outcome> run(RunJobKind kind, const std::string& transports, int old, int added,
                         const std::function<std::string(const Part&)>& body) {
  const SharedMemory<Post> post;
  const auto part = [&](tuttiComm_t world, int rank, int) {
    tuttiComm_t comm = nullptr;
    const tuttiResult_t split = tuttiCommSplit(world, rank < old ? 0 : TUTTI_SPLIT_NOCOLOR, 0, &comm, nullptr);
    if (split != tuttiSuccess) return Outcome{describe(split, world)};
    await_all(&post->ready, old + added);  // no rank dies before all have their communicator
    std::string wrong = body({comm, rank < old ? rank : rank - old, post.get()});
    if (tuttiCommDestroy(comm) != tuttiSuccess) wrong += "; destroy fails";
    return Outcome{wrong};
  };
  return kind == RunJobKind::kThreads ? run_threads(old + added, transports, part)
                                      : run_processes(old + added, transports, part);
}

// All ranks of a communicator call it; rank `maker` makes the id.
tuttiResult_t grow(const Part& part, int ranks, int maker, tuttiComm_t* larger, const tuttiConfig_t* config = nullptr) {
  tuttiUniqueId id;
  if (part.rank == maker) {
    if (const tuttiResult_t made = tuttiCommGetUniqueId(part.comm, &id); made != tuttiSuccess) return made;
    send_id(part.post, id);
  }
  return tuttiCommGrow(part.comm, ranks, part.rank == maker ? &id : nullptr, -1, larger, config);
}

tuttiResult_t join(const Part& part, int ranks, int rank, tuttiComm_t* larger, int number = 0,
                   const tuttiConfig_t* config = nullptr) {
  tuttiUniqueId id;
  if (!await_id(part.post, number, &id)) return tuttiTimeout;
  return tuttiCommGrow(nullptr, ranks, &id, rank, larger, config);
}

// `larger`: by reference, so that a call in the other argument has written it.
std::string used(tuttiResult_t result, const tuttiComm_t& larger, int rank, int ranks) {
  std::string wrong = result == tuttiSuccess ? try_out(larger, rank, ranks) : describe(result, nullptr);
  if (tuttiCommDestroy(larger) != tuttiSuccess) wrong += "; destroy of the new one fails";
  return wrong;
}

std::string expect(tuttiResult_t result, tuttiResult_t code, const std::string& text, const tuttiComm_t& larger) {
  const std::string told = tuttiGetLastError(nullptr);
  const bool right = result == code && contains(told, text) && larger == nullptr;
  return right ? "" : std::string(tuttiGetErrorString(result)) + " (" + told + ") instead of " + text;
}

void require_grows(RunJobKind kind, const std::string& transports, int old, int added) {
  INFO(transports << ", " << old << " and " << added << " ranks");
  const auto outcomes = run(kind, transports, old, added, [&](const Part& part) {
    const int ranks = old + added;
    tuttiComm_t larger = nullptr;
    const int rank = part.comm != nullptr ? part.rank : old + part.rank;
    const tuttiResult_t result =
        part.comm != nullptr ? grow(part, ranks, old - 1, &larger) : join(part, ranks, rank, &larger);
    std::string wrong = used(result, larger, rank, ranks);
    // The communicator stays as it is.
    std::int32_t one = 1;
    if (part.comm != nullptr) {
      const tuttiResult_t after = tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, part.comm, nullptr);
      if (after != tuttiSuccess || one != old) wrong += "; then " + describe(after, part.comm);
    }
    return wrong;
  });
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace

// Over TCP alone: in one process, ranks that join by an id map their shared memory twice, which ThreadSanitizer does
// not follow.
TEST_CASE("a communicator grows by threads", "[threads]") {
  require_grows(RunJobKind::kThreads, "tcp", 3, 2);
  require_grows(RunJobKind::kThreads, "tcp", 1, 1);
}

TEST_CASE("a communicator grows by processes", "[processes]") {
  for (const char* transports : {"shm", "tcp"}) {
    require_grows(RunJobKind::kProcesses, transports, 3, 2);
    require_grows(RunJobKind::kProcesses, transports, 1, 4);
    require_grows(RunJobKind::kProcesses, transports, 2, 1);
  }
}

TEST_CASE("without new ranks it is another communicator of the same ranks", "[threads]") {
  const auto outcomes = run(RunJobKind::kThreads, "tcp", 3, 0, [](const Part& part) {
    tuttiComm_t same = nullptr;
    const tuttiResult_t result = grow(part, 3, 0, &same);
    return used(result, same, part.rank, 3);
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("new ranks replace those that have died, again and again", "[processes]") {
  const int first = GENERATE(0, 2, 3);
  for (const char* transports : {"shm", "tcp"}) {
    INFO(transports << ", without rank " << first);
    const int second = (first + 1) % 4;
    const auto outcomes = run(RunJobKind::kProcesses, transports, 4, 2, [&](const Part& part) -> std::string {
      Part now = part;
      tuttiComm_t larger = nullptr;
      for (int round = 0; round < 2; ++round) {
        const int victim = round == 0 ? first : second;
        if (now.comm != nullptr) {
          std::thread assassin([&] {
            sleep_ms(20);
            if (now.rank == victim) ::kill(::getpid(), SIGKILL);
          });
          const tuttiResult_t error = reduce_until_error(now.comm);
          assassin.join();
          if (error != tuttiRemoteError) return "no remote error: " + describe(error, now.comm);
          const int maker = victim == 1 ? 2 : 1;
          const tuttiResult_t result = grow(now, 4, maker, &larger);
          if (result != tuttiSuccess) return describe(result, nullptr);
          int count = 0;
          int dead = -1;
          if (tuttiCommGetFailed(now.comm, &dead, 1, &count) != tuttiSuccess || count != 1 || dead != victim)
            return "another rank counts as failed";
          if (now.comm != part.comm) (void)tuttiCommDestroy(now.comm);
        } else if (now.rank == round) {
          const tuttiResult_t result = join(now, 4, victim, &larger, round);
          if (result != tuttiSuccess) return describe(result, nullptr);
          now.rank = victim;
        } else {
          continue;
        }
        if (std::string wrong = try_out(larger, now.rank, 4); !wrong.empty()) return wrong;
        now.comm = larger;
        // The death of a rank may fail operations that it has completed and others have not: all complete theirs first.
        await_all(&now.post->done, 4 * (round + 1));
      }
      if (now.comm != part.comm) (void)tuttiCommDestroy(now.comm);
      return "";
    });
    for (int rank = 0; rank < 6; ++rank) {
      INFO("rank " << rank);
      const std::string& wrong = outcomes[static_cast<std::size_t>(rank)].wrong;
      const bool dies = rank == first || rank == second;
      if (dies) REQUIRE(contains(wrong, "wait status 9"));
      if (!dies) REQUIRE(wrong == "");
    }
  }
}

TEST_CASE("a revoked communicator grows", "[threads]") {
  const auto outcomes = run(RunJobKind::kThreads, "tcp", 2, 1, [](const Part& part) {
    tuttiComm_t larger = nullptr;
    if (part.comm == nullptr) return used(join(part, 3, 2, &larger), larger, 2, 3);
    if (tuttiCommRevoke(part.comm, TUTTI_REVOKE_DEFAULT) != tuttiSuccess) return std::string("revoke fails");
    const tuttiResult_t result = grow(part, 3, 1, &larger);
    return used(result, larger, part.rank, 3);
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("new ranks that do not come are a timeout that names them", "[threads]") {
  ::setenv("TUTTI_INIT_TIMEOUT_MS", "5000", 1);
  const auto outcomes = run(RunJobKind::kThreads, "tcp", 2, 1, [](const Part& part) {
    tuttiComm_t larger = nullptr;
    if (part.comm == nullptr)
      return expect(join(part, 4, 2, &larger), tuttiTimeout, "rank 3 of 4 has not joined", larger);
    const tuttiResult_t result = grow(part, 4, 0, &larger);
    return expect(result, tuttiTimeout, "rank 3 of 4 has not joined", larger);
  });
  ::unsetenv("TUTTI_INIT_TIMEOUT_MS");
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("a rank that dies while new ranks are awaited is an error on all, at once", "[processes]") {
  const int victim = GENERATE(0, 1, 2);
  const bool failed_before = GENERATE(false, true);
  INFO("rank " << victim << (failed_before ? " after rank 3" : ""));
  const auto outcomes = run(RunJobKind::kProcesses, "tcp", 4, 1, [&](const Part& part) {
    tuttiComm_t larger = nullptr;
    if (failed_before && part.rank == 3) ::kill(::getpid(), SIGKILL);
    if (failed_before && part.comm != nullptr && reduce_until_error(part.comm) != tuttiRemoteError)
      return std::string("no remote error");
    std::thread assassin([&] {
      if (part.comm == nullptr || part.rank != victim) return;
      tuttiUniqueId id;
      (void)await_id(part.post, 0, &id);
      sleep_ms(300);
      ::kill(::getpid(), SIGKILL);
    });
    const std::int64_t begin_ns = now_ns();
    const tuttiResult_t result = part.comm == nullptr ? join(part, 6, 5, &larger) : grow(part, 6, 1, &larger);
    const std::int64_t ms = (now_ns() - begin_ns) / 1'000'000;
    assassin.join();
    std::string wrong = expect(result, tuttiRemoteError, "", larger);
    if (victim != 1) wrong += expect(result, tuttiRemoteError, "rank " + std::to_string(victim), larger);
    if (ms > 300 + kNoticeMs) wrong += " after " + std::to_string(ms) + " ms";
    return wrong;
  });
  for (int rank = 0; rank < 5; ++rank) {
    INFO("rank " << rank);
    const std::string& wrong = outcomes[static_cast<std::size_t>(rank)].wrong;
    const bool dies = rank == victim || (rank == 3 && failed_before);
    INFO(wrong);
    CHECK((dies ? contains(wrong, "wait status 9") : wrong.empty()));
  }
}

TEST_CASE("the ranks of a communicator get one result, whenever another one dies", "[processes]") {
  constexpr int kOld = 4;
  // Not by the variable, which would also apply to the start of the processes.
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.init_timeout_ms = 2000;
  std::mt19937 random(7);
  int grown = 0;
  for (int round = 0; round < 24; ++round) {
    const auto victim = static_cast<int>(random() % kOld);
    const auto us = static_cast<std::int64_t>(random() % 30'000);
    INFO("round " << round << ": rank " << victim << " after " << us << " us");
    const char* transports = round % 2 == 0 ? "shm" : "tcp";
    const auto outcomes = run(RunJobKind::kProcesses, transports, kOld, 1, [&](const Part& part) -> std::string {
      std::thread assassin([&] {
        if (part.comm == nullptr || part.rank != victim) return;
        std::this_thread::sleep_for(std::chrono::microseconds(us));
        ::kill(::getpid(), SIGKILL);
      });
      const int maker = victim == 0 ? 1 : 0;
      tuttiComm_t larger = nullptr;
      const bool is_new = part.comm == nullptr;
      const tuttiResult_t result =
          is_new ? join(part, kOld + 1, kOld, &larger, 0, &config) : grow(part, kOld + 1, maker, &larger, &config);
      const std::string text = describe(result, nullptr);
      // Then it is in the new communicator, or is to be replaced: this rank is too late for that.
      const tuttiResult_t later = result == tuttiSuccess ? reduce_until_error(larger) : tuttiRemoteError;
      assassin.join();
      if (later != tuttiRemoteError) return "then " + describe(later, larger);
      (void)tuttiCommDestroy(larger);
      if (result == tuttiSuccess) return "success";
      const bool told = result == tuttiRemoteError || result == tuttiTimeout;
      return told ? "error" : "another error: " + text;
    });
    const std::string& first = outcomes[victim == 0 ? 1 : 0].wrong;
    REQUIRE((first == "error" || first == "success"));
    for (int rank = 0; rank < kOld; ++rank) {
      if (rank != victim) REQUIRE(outcomes[static_cast<std::size_t>(rank)].wrong == first);
    }
    if (first == "success") ++grown;
    // A new rank may have it before the others know of the death; then it has failed.
    const std::string& of_new = outcomes[kOld].wrong;
    CHECK((of_new == "error" || of_new == "success"));
  }
  std::printf("%d of 24 communicators grew before the death\n", grown);
}

TEST_CASE("an abort ends the wait for new ranks, and is an error on all others", "[threads]") {
  const auto outcomes = run(RunJobKind::kThreads, "tcp", 3, 1, [](const Part& part) {
    tuttiComm_t larger = nullptr;
    if (part.comm == nullptr) return expect(join(part, 5, 3, &larger), tuttiAborted, "rank 2", larger);
    std::thread other([&] {
      sleep_ms(300);
      if (part.rank == 2) (void)tuttiCommAbort(part.comm);
    });
    const tuttiResult_t result = grow(part, 5, 0, &larger);
    other.join();
    return expect(result, tuttiAborted, part.rank == 2 ? "has been aborted" : "rank 2", larger);
  });
  for (const int rank : {0, 1, 3}) CHECK(outcomes[static_cast<std::size_t>(rank)].wrong == "");
  CHECK(outcomes[2].wrong == "; destroy fails");
}

TEST_CASE("calls that differ are an error on all ranks", "[threads]") {
  SECTION("in the number of ranks") {
    const auto outcomes = run(RunJobKind::kThreads, "tcp", 3, 1, [](const Part& part) {
      tuttiComm_t larger = nullptr;
      if (part.comm == nullptr)
        return expect(join(part, 4, 3, &larger), tuttiRemoteError, "has called tuttiCommGrow to", larger);
      const tuttiResult_t result = grow(part, part.rank == 2 ? 5 : 4, 0, &larger);
      std::string wrong = expect(result, tuttiMismatch, " has called tuttiCommGrow to 4 ranks", larger);
      return wrong + expect(result, tuttiMismatch, "rank 2 has called tuttiCommGrow to 5 ranks", larger);
    });
    REQUIRE(wrong_of(outcomes) == "");
  }
  SECTION("in the call") {
    const auto outcomes = run(RunJobKind::kThreads, "tcp", 2, 0, [](const Part& part) {
      tuttiComm_t other = nullptr;
      const tuttiResult_t result = part.rank == 0
                                       ? grow(part, 2, 0, &other)
                                       : tuttiCommShrink(part.comm, nullptr, 0, &other, nullptr, TUTTI_SHRINK_DEFAULT);
      return expect(result, tuttiMismatch, "rank 1 has called tuttiCommShrink", other);
    });
    REQUIRE(wrong_of(outcomes) == "");
  }
  SECTION("in the number of ranks that a new rank passes") {
    const auto outcomes = run(RunJobKind::kThreads, "tcp", 2, 1, [](const Part& part) {
      tuttiComm_t larger = nullptr;
      const tuttiResult_t result = part.comm == nullptr ? join(part, 4, 2, &larger) : grow(part, 3, 0, &larger);
      return expect(result, tuttiInvalidUsage, "Pass the same number of ranks", larger);
    });
    REQUIRE(wrong_of(outcomes) == "");
  }
  SECTION("in the id") {
    const auto outcomes = run(RunJobKind::kThreads, "tcp", 3, 0, [](const Part& part) {
      tuttiComm_t larger = nullptr;
      tuttiUniqueId id;
      if (tuttiCommGetUniqueId(part.comm, &id) != tuttiSuccess) return std::string("no id");
      const tuttiResult_t result = tuttiCommGrow(part.comm, 3, part.rank == 2 ? nullptr : &id, -1, &larger, nullptr);
      await_all(&part.post->done, 3);
      return expect(result, part.rank == 1 ? tuttiMismatch : tuttiRemoteError, "different unique ids", larger);
    });
    REQUIRE(wrong_of(outcomes) == "");
  }
}

TEST_CASE("without an id no rank gets a communicator", "[threads]") {
  const auto outcomes = run(RunJobKind::kThreads, "tcp", 2, 0, [](const Part& part) {
    tuttiComm_t larger = nullptr;
    const tuttiResult_t result = tuttiCommGrow(part.comm, 3, nullptr, -1, &larger, nullptr);
    return expect(result, tuttiInvalidUsage, "no rank has passed a unique id", larger);
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("an id makes one communicator", "[threads]") {
  const auto outcomes = run(RunJobKind::kThreads, "tcp", 2, 0, [](const Part& part) {
    tuttiUniqueId id;
    if (part.rank == 0) {
      if (tuttiCommGetUniqueId(part.comm, &id) != tuttiSuccess) return std::string("no id");
      send_id(part.post, id);
    }
    (void)await_id(part.post, 0, &id);
    tuttiComm_t first = nullptr;
    std::string wrong = used(tuttiCommGrow(part.comm, 2, &id, -1, &first, nullptr), first, part.rank, 2);
    tuttiComm_t second = nullptr;
    const tuttiResult_t result = tuttiCommGrow(part.comm, 2, &id, -1, &second, nullptr);
    return wrong + expect(result, tuttiRemoteError, "a unique id makes one communicator", second);
  });
  REQUIRE(wrong_of(outcomes) == "");
}

TEST_CASE("a rank that refuses its arguments tells all others", "[threads]") {
  struct Case {
    int rank;
    bool has_newcomm;
    const char* text;
  };
  for (const Case& bad :
       {Case{0, true, "rank is 0, but a rank of `comm` keeps its rank"}, Case{-1, false, "newcomm is NULL"}}) {
    const auto outcomes = run(RunJobKind::kThreads, "tcp", 2, 1, [&](const Part& part) {
      tuttiComm_t larger = nullptr;
      if (part.comm == nullptr) return expect(join(part, 3, 2, &larger), tuttiRemoteError, bad.text, larger);
      if (part.rank == 0) return expect(grow(part, 3, 0, &larger), tuttiRemoteError, bad.text, larger);
      return expect(tuttiCommGrow(part.comm, 3, nullptr, bad.rank, bad.has_newcomm ? &larger : nullptr, nullptr),
                    tuttiInvalidArgument, bad.text, larger);
    });
    REQUIRE(wrong_of(outcomes) == "");
  }
  SECTION("a rank would have no place in the new communicator") {
    const auto outcomes = run(RunJobKind::kThreads, "tcp", 3, 0, [](const Part& part) {
      tuttiComm_t smaller = nullptr;
      const tuttiResult_t result = grow(part, 2, 0, &smaller);
      return expect(result, tuttiInvalidArgument, "nRanks is 2, but rank 2 lives and keeps its rank", smaller);
    });
    REQUIRE(wrong_of(outcomes) == "");
  }
  SECTION("a new rank takes the number of one that lives") {
    const auto outcomes = run(RunJobKind::kThreads, "tcp", 2, 1, [](const Part& part) {
      tuttiComm_t larger = nullptr;
      const tuttiResult_t result = part.comm == nullptr ? join(part, 3, 1, &larger) : grow(part, 3, 0, &larger);
      return expect(result, tuttiInvalidUsage, "two processes joined as the same rank", larger);
    });
    REQUIRE(wrong_of(outcomes) == "");
  }
  tuttiComm_t larger = nullptr;
  CHECK(expect(tuttiCommGrow(nullptr, 2, nullptr, 0, &larger, nullptr), tuttiInvalidArgument, "id is NULL", larger) ==
        "");
  tuttiUniqueId id{};
  CHECK(expect(tuttiCommGrow(nullptr, 2, &id, -1, &larger, nullptr), tuttiInvalidArgument, "rank -1 of 2", larger) ==
        "");
  CHECK(expect(tuttiCommGrow(nullptr, 2, &id, 1, nullptr, nullptr), tuttiInvalidArgument, "newcomm is NULL", larger) ==
        "");
}

}  // namespace tutti::internal::test
