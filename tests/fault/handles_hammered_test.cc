// Every call beside every other, at random: no destroyed object is accessed, and each call is served or refused.
#include <array>
#include <atomic>
#include <chrono>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "handles.h"

namespace tutti::internal::test {
namespace {

constexpr int kSteps = kThreadSanitizer ? 2000 : 20000;

// Each id has a thread that waits for ranks until the process ends: so only few of them.
tuttiResult_t get_unique_id(tuttiComm_t comm) {
  static std::atomic<int> made{0};
  tuttiUniqueId id;
  return made < 50 && made++ < 50 ? tuttiCommGetUniqueId(comm, &id) : tuttiSuccess;
}

// Splits the communicator repeatedly, until that fails.
tuttiResult_t split_often(tuttiComm_t comm, int rank) {
  for (;;) {
    tuttiComm_t part = nullptr;
    tuttiResult_t result = tuttiCommSplit(comm, 0, -rank, &part, nullptr);
    // A failure of `comm` does not affect its part, which the other rank may have been refused.
    if (result == tuttiSuccess && rank == 0) result = tuttiCommRevoke(part, TUTTI_REVOKE_DEFAULT);
    if (part != nullptr && all_reduce(part) == tuttiInvalidArgument) return tuttiInternalError;
    if (part != nullptr && tuttiCommDestroy(part) != tuttiSuccess) return tuttiInternalError;
    if (result != tuttiSuccess) return result;
  }
}

enum class End { kRevoke, kAbort, kDestroy };

tuttiResult_t end(tuttiComm_t comm, End how) {
  if (how == End::kRevoke) return tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT);
  return how == End::kAbort ? tuttiCommAbort(comm) : tuttiCommDestroy(comm);
}

}  // namespace

TEST_CASE("a communicator is revoked, aborted and destroyed while it is split and queried") {
  std::mt19937 random(5);
  for (int round = 0; round < kRounds; ++round) {
    const auto comms = make_pair_of_ranks();
    std::array<tuttiResult_t, 2> last{};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] { last[rank] = split_often(comms[rank], static_cast<int>(rank)); });
      threads.emplace_back([&, rank] {
        tuttiResult_t result = tuttiSuccess;
        tuttiResult_t error = tuttiSuccess;
        while (result == tuttiSuccess && error == tuttiSuccess) {
          result = get_unique_id(comms[rank]);
          if (result == tuttiSuccess) result = tuttiCommGetAsyncError(comms[rank], &error);
        }
        if (result != tuttiSuccess && result != tuttiInvalidArgument) ++wrong;
      });
    }
    const auto delay = std::chrono::microseconds(random() % 2000);
    // Rank 1 is always aborted, so that no rank is left to split.
    for (const auto& [rank, how] : {std::pair<std::size_t, End>{0, static_cast<End>(round % 3)}, {1, End::kAbort}}) {
      threads.emplace_back([&, rank = rank, how = how, delay] {
        std::this_thread::sleep_for(delay);
        if (const tuttiResult_t result = end(comms[rank], how); result != tuttiSuccess) ++wrong;
      });
    }
    for (std::thread& t : threads) t.join();
    for (const tuttiResult_t result : last) {
      INFO(tuttiGetErrorString(result));
      CHECK((result == tuttiAborted || result == tuttiInvalidArgument));
    }
    CHECK(wrong == 0);
    if (round % 3 == 0) CHECK(tuttiCommDestroy(comms[0]) == tuttiSuccess);
    for (const tuttiComm_t comm : comms) require_stale(comm);
  }
}

namespace {

// Handles that all threads of the test share. A thread that takes one from its slot may still be overtaken by others
// that have read it before: that is under test.
struct Shared {
  std::array<std::atomic<tuttiComm_t>, 3> comms{};
  std::array<std::atomic<tuttiStream_t>, 3> streams{};
  std::array<std::atomic<tuttiEvent_t>, 3> events{};
};

tuttiResult_t use_comm(std::atomic<tuttiComm_t>& place, tuttiStream_t stream, unsigned action) {
  const tuttiComm_t comm = place;
  tuttiComm_t part = nullptr;
  tuttiResult_t result = tuttiSuccess;
  int number = 0;
  char text[64];
  tuttiResult_t error = tuttiSuccess;
  switch (action) {
    case 0: return tuttiCommDestroy(comm);
    case 1: return tuttiCommAbort(comm);
    case 2: return tuttiCommFinalize(comm);
    case 3: return tuttiCommCount(comm, &number);
    case 4: return tuttiCommUserRank(comm, &number);
    case 5: return tuttiCommExplain(comm, tuttiCollectiveBroadcast, 64, text, sizeof text);
    case 6: return tuttiCommGetAsyncError(comm, &error);
    case 7: return tuttiGetLastError(comm) != nullptr ? tuttiSuccess : tuttiInternalError;
    case 8: return tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT);
    case 9: return get_unique_id(comm);
    case 10:
      result = tuttiCommSplit(comm, 0, 0, &part, nullptr);
      if (result == tuttiSuccess) (void)tuttiCommDestroy(place.exchange(part));
      return result;
    case 11:
    case 12: return all_reduce(comm, stream);
    default: return all_reduce(comm);
  }
}

tuttiResult_t use_stream(std::atomic<tuttiStream_t>& place, std::atomic<tuttiEvent_t>& event, unsigned action) {
  const tuttiStream_t stream = place;
  tuttiEvent_t made = nullptr;
  tuttiResult_t result = tuttiSuccess;
  switch (action) {
    case 0: return tuttiStreamDestroy(stream);
    case 1: return tuttiStreamSynchronize(stream);
    case 2: return tuttiStreamQuery(stream);
    case 3: return tuttiEventQuery(event);
    case 4: return event.load() == nullptr ? tuttiSuccess : tuttiEventSynchronize(event);
    case 5: return tuttiEventDestroy(event);
    case 6: return event.load() == nullptr ? tuttiSuccess : tuttiEventRecord(event, stream);
    case 7: return event.load() == nullptr ? tuttiSuccess : tuttiStreamWaitEvent(stream, event);
    default:
      result = tuttiEventCreate(&made);
      if (result == tuttiSuccess) (void)tuttiEventDestroy(event.exchange(made));
      return result;
  }
}

// The results that any of these calls may return, whatever the others do.
void collect(Shared* shared, unsigned seed, std::set<int>* results) {
  std::mt19937 generator(seed);
  const auto random = [&] { return static_cast<unsigned>(generator()); };
  for (int i = 0; i < kSteps; ++i) {
    const std::size_t place = random() % 3;
    const unsigned what = random() % 100;
    if (what < 4) {
      tuttiComm_t made = nullptr;
      results->insert(tuttiCommInitAll(&made, 1, nullptr));
      results->insert(tuttiCommDestroy(shared->comms[place].exchange(made)));
    } else if (what < 8) {
      tuttiStream_t made = nullptr;
      results->insert(tuttiStreamCreate(&made));
      results->insert(tuttiStreamDestroy(shared->streams[place].exchange(made)));
    } else if (what < 70) {
      results->insert(use_comm(shared->comms[place], shared->streams[random() % 3], random() % 20));
    } else {
      results->insert(use_stream(shared->streams[place], shared->events[random() % 3], random() % 10));
    }
  }
}

}  // namespace

TEST_CASE("every call on every kind of handle beside all others") {
  Shared shared;
  std::array<std::set<int>, 6> results;
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] { collect(&shared, static_cast<unsigned>(t) + 1, &results[t]); });
  }
  for (std::thread& t : threads) t.join();
  std::set<int> all;
  for (const auto& some : results) all.insert(some.begin(), some.end());
  for (const int result : all) {
    INFO(tuttiGetErrorString(static_cast<tuttiResult_t>(result)));
    CHECK((result == tuttiSuccess || result == tuttiInvalidArgument || result == tuttiInvalidUsage ||
           result == tuttiAborted || result == tuttiInProgress));
  }
  CHECK(all.contains(tuttiInvalidArgument));
  for (auto& event : shared.events) (void)tuttiEventDestroy(event);
  for (auto& stream : shared.streams) (void)tuttiStreamDestroy(stream);
  for (auto& comm : shared.comms) (void)tuttiCommDestroy(comm);
}

}  // namespace tutti::internal::test
