// tuttiCommRevoke: every operation ends on all ranks, and the communicator exists until it is destroyed.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>

#include "faults.h"
#include "sanitizers.h"

namespace tutti::internal::test {
namespace {

tuttiResult_t all_reduce(tuttiComm_t comm, void* stream = nullptr) {
  // A queued operation may end after its thread. A rank that waits for a peer writes nothing to it.
  static std::array<std::int32_t, 2> queued{};
  std::array<std::int32_t, 2> own{};
  std::int32_t* const value = stream == nullptr ? own.data() : queued.data();
  return tuttiAllReduce(value, value + 1, 1, tuttiInt32, tuttiSum, comm, stream);
}

// Queries of a communicator that `rank` has revoked, and that all its ranks still have.
std::string wrong_of_revoked(tuttiComm_t comm, int rank) {
  const std::string who = "rank " + std::to_string(rank);
  tuttiResult_t error = tuttiSuccess;
  int number = -1;
  if (tuttiCommGetAsyncError(comm, &error) != tuttiSuccess || error != tuttiAborted) return "no error is reported";
  for (int times = 0; times < 2; ++times) {
    const tuttiResult_t result = all_reduce(comm);
    const std::string text = tuttiGetLastError(comm);
    if (result != tuttiAborted) return "an operation afterwards: " + describe(result, comm);
    if (!contains(text, who) || !contains(text, "revoked the communicator")) return "it does not say who: " + text;
    if (text != tuttiGetLastError(nullptr)) return std::string("the thread's error is ") + tuttiGetLastError(nullptr);
    // Again, by any rank.
    if (tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT) != tuttiSuccess) return "not again";
  }
  if (tuttiCommCount(comm, &number) != tuttiSuccess || number < 2) return "it does not count";
  return {};
}

// The last rank revokes while the others are inside an all-reduce that waits for it. `past` counts the ranks that have
// left the all-reduce before: a rank may leave it long before another.
Outcome revoke_while_waiting(std::atomic<int>& past, tuttiComm_t comm, int rank, int ranks) {
  if (const tuttiResult_t result = all_reduce(comm); result != tuttiSuccess) return Outcome{describe(result, comm)};
  past.fetch_add(1);
  const int revokes = ranks - 1;
  if (rank == revokes) {
    const std::int64_t first = now_ns();
    while (past.load() < ranks) {
      if (now_ns() - first > kNoticeMs * 1'000'000) return Outcome{"a rank does not leave the first operation"};
      sleep_ms(1);
    }
    sleep_ms(50);
    const std::int64_t begin = now_ns();
    if (tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT) != tuttiSuccess) return Outcome{describe(tuttiSuccess, comm)};
    if (now_ns() - begin > kNoticeMs * 1'000'000) return Outcome{"it took long"};
  } else {
    const std::int64_t begin = now_ns();
    const tuttiResult_t result = all_reduce(comm);
    if (result != tuttiAborted) return Outcome{"the operation under way: " + describe(result, comm)};
    if (now_ns() - begin > kNoticeMs * 1'000'000) return Outcome{"the error came late"};
  }
  return Outcome{wrong_of_revoked(comm, revokes)};
}

// Two ranks of this process; null handles if they cannot be made.
std::array<tuttiComm_t, 2> try_pair_of_ranks() {
  std::array<tuttiComm_t, 2> comms{};
  if (tuttiCommInitAll(comms.data(), 2, nullptr) != tuttiSuccess) return {};
  return comms;
}

// Over sockets, like ranks that are processes.
std::array<tuttiComm_t, 2> try_to_join_pair_of_ranks() {
  std::array<tuttiComm_t, 2> comms{};
  tuttiUniqueId id;
  if (tuttiGetUniqueId(&id) != tuttiSuccess) return {};
  tuttiResult_t joined = tuttiInternalError;
  std::thread rank_1([&] { joined = tuttiCommInitRank(&comms[1], 2, id, 1); });
  const tuttiResult_t own = tuttiCommInitRank(&comms[0], 2, id, 0);
  rank_1.join();
  return own == tuttiSuccess && joined == tuttiSuccess ? comms : std::array<tuttiComm_t, 2>{};
}

std::array<tuttiComm_t, 2> make_pair_of_ranks() {
  const auto comms = try_pair_of_ranks();
  REQUIRE(comms[0] != nullptr);
  return comms;
}

// One thread revokes or aborts a communicator that another destroys at the same time: the other rank must notice.
// Returns what is wrong, or "".
std::string wrong_of_destroyed(bool joins, bool aborts, int round) {
  const auto comms = joins ? try_to_join_pair_of_ranks() : try_pair_of_ranks();
  if (comms[0] == nullptr) return "no communicators";
  tuttiStream_t stream = nullptr;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return "no stream";
  if (all_reduce(comms[0], stream) != tuttiSuccess) return "not queued";  // rank 1 comes when this one has gone
  // Waits for the queued operation, and leaves when that has failed.
  tuttiResult_t destroyed = tuttiInternalError;
  std::thread destroys([&] { destroyed = tuttiCommDestroy(comms[0]); });
  std::this_thread::sleep_for(std::chrono::microseconds(50 + round % 200));
  const tuttiResult_t ended = aborts ? tuttiCommAbort(comms[0]) : tuttiCommRevoke(comms[0], TUTTI_REVOKE_DEFAULT);
  destroys.join();
  std::string wrong;
  if (ended != tuttiSuccess) wrong += "ended by " + std::to_string(ended) + "; ";
  if (destroyed != tuttiSuccess && !(aborts && destroyed == tuttiInvalidArgument)) {
    wrong += "destroyed by " + std::to_string(destroyed) + "; ";
  }
  const tuttiResult_t result = all_reduce(comms[1]);
  if (result != tuttiAborted) wrong += "the other rank: " + describe(result, comms[1]) + "; ";
  if (tuttiStreamDestroy(stream) != tuttiAborted) wrong += "the stream does not tell of it; ";
  if (tuttiCommDestroy(comms[1]) != tuttiSuccess) wrong += "the other rank is not destroyed; ";
  return wrong;
}

}  // namespace

TEST_CASE("revoking ends the operations of all ranks, threads", "[threads]") {
  for (const int ranks : {2, 4}) {
    for (const char* transports : {"shm", "tcp"}) {
      std::atomic<int> past{0};
      const auto body = [&](tuttiComm_t comm, int rank, int n) { return revoke_while_waiting(past, comm, rank, n); };
      CHECK(wrong_of(run_threads(ranks, transports, body)) == "");
    }
  }
}

TEST_CASE("revoking ends the operations of all ranks, processes", "[processes]") {
  for (const int ranks : {2, 4}) {
    for (const char* transports : {"shm", "tcp"}) {
      SharedMemory<std::atomic<int>> past;
      const auto body = [&](tuttiComm_t comm, int rank, int n) {
        return revoke_while_waiting(*past.get(), comm, rank, n);
      };
      CHECK(wrong_of(run_processes(ranks, transports, body)) == "");
    }
  }
}

TEST_CASE("only a valid call revokes a communicator, and an earlier error stays", "[threads]") {
  const auto comms = make_pair_of_ranks();
  for (const int flags : {1, -1, 0x40000000}) {
    CHECK(tuttiCommRevoke(comms[0], flags) == tuttiInvalidArgument);
    CHECK(contains(tuttiGetLastError(comms[0]), "flags"));
  }
  CHECK(tuttiCommRevoke(nullptr, TUTTI_REVOKE_DEFAULT) == tuttiInvalidArgument);
  tuttiResult_t error = tuttiInternalError;
  CHECK(tuttiCommGetAsyncError(comms[0], &error) == tuttiSuccess);
  CHECK(error == tuttiSuccess);
  CHECK(tuttiCommAbort(comms[1]) == tuttiSuccess);
  CHECK(tuttiCommRevoke(comms[1], TUTTI_REVOKE_DEFAULT) == tuttiInvalidArgument);
  CHECK(all_reduce(comms[0]) == tuttiAborted);
  CHECK(tuttiCommRevoke(comms[0], TUTTI_REVOKE_DEFAULT) == tuttiSuccess);
  CHECK(contains(tuttiGetLastError(comms[0]), "aborted the communicator"));
  CHECK(tuttiCommDestroy(comms[0]) == tuttiSuccess);
}

TEST_CASE("revoking ends queued operations, and a finalize and a destroy that wait for them", "[threads]") {
  for (const bool destroys : {true, false}) {
    const auto comms = make_pair_of_ranks();
    const auto other = make_pair_of_ranks();
    tuttiStream_t stream = nullptr;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    for (int i = 0; i < 3; ++i) REQUIRE(all_reduce(comms[0], stream) == tuttiSuccess);  // rank 1 does not come
    REQUIRE(all_reduce(other[0], stream) == tuttiSuccess);
    tuttiResult_t waited = tuttiInternalError;
    std::thread waits([&] { waited = destroys ? tuttiCommDestroy(comms[0]) : tuttiCommFinalize(comms[0]); });
    sleep_ms(30);
    CHECK(tuttiCommRevoke(comms[0], TUTTI_REVOKE_DEFAULT) == tuttiSuccess);
    waits.join();
    CHECK(waited == (destroys ? tuttiSuccess : tuttiAborted));
    // The other communicator is not affected.
    CHECK(all_reduce(other[1]) == tuttiSuccess);
    CHECK(tuttiStreamDestroy(stream) == tuttiAborted);
    if (!destroys) CHECK(tuttiCommDestroy(comms[0]) == tuttiSuccess);
    CHECK(all_reduce(comms[1]) == tuttiAborted);
    CHECK(tuttiCommDestroy(comms[1]) == tuttiSuccess);
    for (const tuttiComm_t comm : other) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  }
}

TEST_CASE("a revoke ends one end of a long chain of waits while another operation is slow", "[threads]") {
  constexpr int kWaits = 100'000;
  const bool aborts = GENERATE(true, false);
  auto revoked = make_pair_of_ranks();
  const auto slow = make_pair_of_ranks();
  std::array<tuttiStream_t, 2> streams{};
  std::array<tuttiEvent_t, 2> events{};
  for (tuttiStream_t& stream : streams) REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  for (tuttiEvent_t& event : events) REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
  const std::int64_t begin_ns = now_ns();
  REQUIRE(all_reduce(slow[0], streams[0]) == tuttiSuccess);  // rank 1 comes late
  int refused = 0;
  for (std::size_t i = 0; i < kWaits; ++i) {
    const std::size_t other = 1 - i % 2;
    refused += tuttiEventRecord(events[i % 2], streams[i % 2]) != tuttiSuccess;
    refused += tuttiStreamWaitEvent(streams[other], events[i % 2]) != tuttiSuccess;
    if (i % 100 == 0) refused += all_reduce(revoked[0], streams[other]) != tuttiSuccess;
  }
  CHECK(refused == 0);
  if (aborts) {
    CHECK(tuttiCommAbort(revoked[0]) == tuttiSuccess);
    revoked[0] = nullptr;
  } else {
    CHECK(tuttiCommRevoke(revoked[1], TUTTI_REVOKE_DEFAULT) == tuttiSuccess);
    CHECK(tuttiCommFinalize(revoked[0]) == tuttiAborted);  // waits for the queued operation
  }
  for (const tuttiStream_t stream : streams) CHECK(tuttiStreamQuery(stream) == tuttiInProgress);
  CHECK(tuttiEventDestroy(events[0]) == tuttiSuccess);
  CHECK(all_reduce(slow[1]) == tuttiSuccess);
  CHECK(tuttiEventSynchronize(events[1]) == tuttiAborted);
  CHECK(tuttiStreamSynchronize(streams[0]) == tuttiAborted);
  CHECK(tuttiStreamSynchronize(streams[0]) == tuttiSuccess);
  CHECK(now_ns() - begin_ns < (kThreadSanitizer ? 60 : 20) * std::int64_t{1'000'000'000});
  CHECK(tuttiStreamDestroy(streams[0]) == tuttiSuccess);
  CHECK(tuttiStreamDestroy(streams[1]) == tuttiAborted);
  CHECK(tuttiEventDestroy(events[1]) == tuttiSuccess);
  for (const tuttiComm_t comm : {revoked[0], revoked[1], slow[0], slow[1]}) {
    if (comm != nullptr) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  }
}

TEST_CASE("other ranks hear of a revoke or an abort although the communicator is being destroyed", "[threads]") {
  const bool joins = GENERATE(true, false);
  const bool aborts = GENERATE(true, false);
  const int rounds = (joins ? 100 : 2000) / (kThreadSanitizer ? 10 : 1);
  // A round spends nearly all of its time waiting: several run at once.
  constexpr int kAtOnce = 16;
  std::array<std::string, kAtOnce> wrong;
  std::vector<std::thread> threads;
  for (int first = 0; first < kAtOnce; ++first) {
    threads.emplace_back([&, first] {
      std::string& found = wrong[static_cast<std::size_t>(first)];
      for (int round = first; round < rounds && found.empty(); round += kAtOnce) {
        found = wrong_of_destroyed(joins, aborts, round);
        if (!found.empty()) found = "round " + std::to_string(round) + ": " + found;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& found : wrong) CHECK(found == "");
}

TEST_CASE("many threads revoke beside operations, queries, destroy and abort", "[threads]") {
  std::mt19937 random(11);
  for (int round = 0; round < (kThreadSanitizer ? 40 : 200); ++round) {
    const auto comms = make_pair_of_ranks();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    const auto expect = [&](tuttiResult_t result, std::initializer_list<tuttiResult_t> allowed) {
      if (std::find(allowed.begin(), allowed.end(), result) == allowed.end()) ++wrong;
    };
    for (const tuttiComm_t comm : comms) {
      threads.emplace_back([&, comm] {
        tuttiResult_t last = tuttiSuccess;
        while (last == tuttiSuccess) last = all_reduce(comm);
        expect(last, {tuttiAborted, tuttiInvalidArgument});
      });
    }
    const auto delay = std::chrono::microseconds(random() % 1000);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i, delay] {
        std::this_thread::sleep_for(delay);
        const tuttiComm_t comm = comms[static_cast<std::size_t>(i % 2)];
        for (int times = 0; times < 3; ++times) {
          expect(tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT), {tuttiSuccess, tuttiInvalidArgument});
          tuttiResult_t error = tuttiSuccess;
          expect(tuttiCommGetAsyncError(comm, &error), {tuttiSuccess, tuttiInvalidArgument});
        }
      });
    }
    // Meanwhile one of the two is destroyed, the other aborted.
    threads.emplace_back([&, delay] {
      std::this_thread::sleep_for(delay);
      if (tuttiCommRevoke(comms[0], TUTTI_REVOKE_DEFAULT) != tuttiSuccess) ++wrong;
      expect(tuttiCommDestroy(comms[0]), {tuttiSuccess});
      expect(tuttiCommAbort(comms[1]), {tuttiSuccess});
    });
    for (std::thread& t : threads) t.join();
    REQUIRE(wrong == 0);
    for (const tuttiComm_t comm : comms) CHECK(tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT) == tuttiInvalidArgument);
  }
}

}  // namespace tutti::internal::test
