// Handles used by any thread at any moment: while other threads abort, destroy and create the objects, every call is
// either served or refused, and no destroyed object is accessed. Run with MALLOC_PERTURB_ and under the sanitizers.
#include "handles.h"

#include <array>
#include <atomic>
#include <ctime>
#include <random>
#include <set>

namespace tutti::internal::test {
namespace {

// Waits until another thread has exclusive use of the communicator. That thread calls again if this one is in its way.
bool wait_until_taken(tuttiComm_t comm) {
  const Deadline deadline = Deadline::after_ms(60'000);
  while (!deadline.passed()) {
    (void)tuttiAllReduce(nullptr, nullptr, 1, tuttiInt32, tuttiSum, comm, nullptr);
    if (contains(tuttiGetLastError(nullptr), "another thread")) return true;
    sleep_ms(1);
  }
  return false;
}

template <class Call>
tuttiResult_t until_served(Call call) {
  tuttiResult_t result = tuttiInvalidUsage;
  while (result == tuttiInvalidUsage) result = call();
  return result;
}

// Loops until refused, like a program that does not know of its watchdog.
struct Worker {
  explicit Worker(tuttiComm_t comm)
      : thread([this, comm] {
          while (last == tuttiSuccess) last = all_reduce(comm);
          for (int i = 0; i < 1000 && then != tuttiInvalidArgument; ++i, sleep_ms(1)) then = all_reduce(comm);
        }) {}
  tuttiResult_t last = tuttiSuccess;
  tuttiResult_t then = tuttiSuccess;
  std::thread thread;
};

}  // namespace

TEST_CASE("a watchdog aborts while other threads loop over operations") {
  std::mt19937 random(7);
  for (int round = 0; round < kRounds; ++round) {
    const auto comms = make_pair_of_ranks();
    Worker first(comms[0]);
    Worker second(comms[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
    std::atomic<int> aborts{0};
    std::vector<std::thread> watchdogs;
    for (const std::size_t rank : {0U, 0U, 1U, 1U}) {
      watchdogs.emplace_back([&, rank] {
        const tuttiResult_t result = tuttiCommAbort(comms[rank]);
        if (result == tuttiSuccess) ++aborts;
        if (result != tuttiSuccess && result != tuttiInvalidArgument) aborts += 100;
      });
    }
    for (std::thread& t : watchdogs) t.join();
    for (Worker* w : {&first, &second}) {
      w->thread.join();
      INFO(tuttiGetErrorString(w->last));
      CHECK((w->last == tuttiAborted || w->last == tuttiInvalidArgument));
      CHECK(w->then == tuttiInvalidArgument);
    }
    CHECK(aborts == 2);
    for (const tuttiComm_t comm : comms) require_stale(comm);
  }
}

TEST_CASE("abort ends a destroy and a finalize that wait for queued operations") {
  for (const bool destroys : {true, false}) {
    const auto comms = make_pair_of_ranks();
    tuttiStream_t stream = nullptr;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    REQUIRE(all_reduce(comms[0], stream) == tuttiSuccess);  // rank 1 does not come
    tuttiResult_t waited = tuttiInternalError;
    std::thread waits([&] {
      waited = until_served([&] { return destroys ? tuttiCommDestroy(comms[0]) : tuttiCommFinalize(comms[0]); });
    });
    REQUIRE(wait_until_taken(comms[0]));
    tuttiResult_t error = tuttiInternalError;
    CHECK(tuttiCommGetAsyncError(comms[0], &error) == tuttiSuccess);
    CHECK(error == tuttiSuccess);
    // The other thread has exclusive use of the communicator.
    CHECK(all_reduce(comms[0]) == (destroys ? tuttiInvalidArgument : tuttiInvalidUsage));
    const std::int64_t begin = now_ns();
    CHECK(tuttiCommAbort(comms[0]) == tuttiSuccess);
    waits.join();
    CHECK((now_ns() - begin) / 1'000'000 < kNoticeMs);
    CHECK(waited == (destroys ? tuttiSuccess : tuttiAborted));
    CHECK(tuttiStreamSynchronize(stream) == tuttiAborted);
    CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
    require_stale(comms[0]);
    CHECK(tuttiCommDestroy(comms[1]) == tuttiSuccess);
  }
}

TEST_CASE("destroy waits for the thread that is in an operation") {
  const auto comms = make_pair_of_ranks();
  tuttiResult_t result = tuttiInternalError;
  std::thread operates([&] { result = until_served([&] { return all_reduce(comms[0]); }); });
  REQUIRE(wait_until_taken(comms[0]));
  tuttiResult_t of_peer = tuttiInternalError;
  std::thread peer([&] {
    sleep_ms(100);
    of_peer = all_reduce(comms[1]);
  });
  CHECK(tuttiCommDestroy(comms[0]) == tuttiSuccess);
  require_stale(comms[0]);
  operates.join();
  peer.join();
  CHECK(of_peer == tuttiSuccess);
  CHECK(result == tuttiSuccess);
  CHECK(tuttiCommDestroy(comms[1]) == tuttiSuccess);
}

TEST_CASE("a second thread at once is refused, one after another are served") {
  const auto comms = make_pair_of_ranks();
  for (int round = 0; round < 3; ++round) {
    tuttiResult_t first = tuttiInternalError;
    std::thread operates([&] { first = until_served([&] { return all_reduce(comms[0]); }); });
    REQUIRE(wait_until_taken(comms[0]));
    CHECK(all_reduce(comms[0]) == tuttiInvalidUsage);
    CHECK(contains(tuttiGetLastError(nullptr), "another thread is inside"));
    CHECK(contains(tuttiGetLastError(comms[0]), "another thread is inside"));
    CHECK(tuttiCommFinalize(comms[0]) == tuttiInvalidUsage);
    CHECK(all_reduce(comms[1]) == tuttiSuccess);
    operates.join();
    CHECK(first == tuttiSuccess);
  }
  // Passed from thread to thread so often that the library stops keeping it for one.
  for (int i = 0; i < 30; ++i) {
    tuttiResult_t first = tuttiInternalError;
    std::thread operates([&] {
      first = all_reduce(comms[0]);
      if (first == tuttiSuccess) first = all_reduce(comms[0]);
    });
    CHECK(all_reduce(comms[1]) == tuttiSuccess);
    CHECK(all_reduce(comms[1]) == tuttiSuccess);
    operates.join();
    CHECK(first == tuttiSuccess);
    std::thread second([&] { first = all_reduce(comms[1]); });
    CHECK(all_reduce(comms[0]) == tuttiSuccess);
    second.join();
    CHECK(first == tuttiSuccess);
  }
  tuttiResult_t first = tuttiInternalError;
  std::thread operates([&] { first = until_served([&] { return all_reduce(comms[0]); }); });
  REQUIRE(wait_until_taken(comms[0]));
  CHECK(all_reduce(comms[0]) == tuttiInvalidUsage);
  CHECK(tuttiCommAbort(comms[0]) == tuttiSuccess);
  operates.join();
  CHECK(first == tuttiAborted);
  CHECK(tuttiCommDestroy(comms[1]) == tuttiSuccess);
}

TEST_CASE("finalize uses no processor time while queued operations wait for their peers") {
  const auto comms = make_pair_of_ranks();
  tuttiStream_t stream = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  REQUIRE(all_reduce(comms[0], stream) == tuttiSuccess);
  sleep_ms(50);  // the queue is empty, and its operation is running
  std::thread peer([&] {
    sleep_ms(1000);
    (void)all_reduce(comms[1]);
    (void)tuttiCommDestroy(comms[1]);
  });
  const auto used_ms = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1'000'000;
  };
  const auto before = used_ms();
  const std::int64_t begin_ns = now_ns();
  CHECK(tuttiCommFinalize(comms[0]) == tuttiSuccess);
  // A loop would use all of that time, or its share of a busy machine's processor.
  CHECK((used_ms() - before) * 20 < (now_ns() - begin_ns) / 1'000'000);
  peer.join();
  CHECK(tuttiCommDestroy(comms[0]) == tuttiSuccess);
  CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
}

TEST_CASE("a failed communicator leaves another that shares its stream alone") {
  const auto first = make_pair_of_ranks();
  const auto second = make_pair_of_ranks();
  tuttiStream_t stream = nullptr;
  tuttiEvent_t event = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
  std::array<std::int32_t, 2> values{20, 22};
  const auto add = [&](std::size_t rank, void* where) {
    return tuttiAllReduce(&values[rank], &values[rank], 1, tuttiInt32, tuttiSum, second[rank], where);
  };
  REQUIRE(all_reduce(first[0], stream) == tuttiSuccess);
  REQUIRE(add(0, stream) == tuttiSuccess);
  REQUIRE(tuttiEventRecord(event, stream) == tuttiSuccess);
  tuttiResult_t peer = tuttiInternalError;
  std::thread calls([&] { peer = add(1, nullptr); });
  sleep_ms(50);
  CHECK(tuttiStreamQuery(stream) == tuttiInProgress);
  REQUIRE(tuttiCommAbort(first[1]) == tuttiSuccess);
  calls.join();
  CHECK(peer == tuttiSuccess);
  CHECK(values[1] == 42);
  // The stream reports the error once, although its last operation has succeeded, and the event reports it each time.
  CHECK(tuttiStreamSynchronize(stream) == tuttiAborted);
  const std::string text = tuttiGetLastError(nullptr);
  INFO(text);
  CHECK((contains(text, "rank 1") && contains(text, "aborted the communicator")));
  CHECK(values[0] == 42);
  CHECK(tuttiStreamSynchronize(stream) == tuttiSuccess);
  for (int times = 0; times < 2; ++times) CHECK(tuttiEventSynchronize(event) == tuttiAborted);
  CHECK(tuttiEventQuery(event) == tuttiAborted);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    tuttiResult_t error = tuttiInternalError;
    CHECK(tuttiCommGetAsyncError(second[rank], &error) == tuttiSuccess);
    CHECK(error == tuttiSuccess);
    CHECK(std::string(tuttiGetLastError(second[rank])).empty());
  }
  CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
  CHECK(tuttiEventDestroy(event) == tuttiSuccess);
  CHECK(tuttiCommDestroy(first[0]) == tuttiSuccess);
  for (const tuttiComm_t comm : second) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("streams and events are destroyed while others use them") {
  for (int round = 0; round < kRounds / 8; ++round) {
    const auto comms = make_pair_of_ranks();
    tuttiStream_t stream = nullptr;
    tuttiEvent_t event = nullptr;
    REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
    std::atomic<int> queued{0};
    REQUIRE(all_reduce(comms[0], stream) == tuttiSuccess);
    REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
    REQUIRE(tuttiEventRecord(event, stream) == tuttiSuccess);
    tuttiResult_t last = tuttiSuccess;
    std::thread queues([&] {
      for (++queued; queued < 200 && (last = all_reduce(comms[0], stream)) == tuttiSuccess;) ++queued;
      while (last == tuttiSuccess || last == tuttiInProgress) last = tuttiStreamQuery(stream);
    });
    tuttiResult_t waited = tuttiInternalError;
    std::thread waits([&] { waited = tuttiEventSynchronize(event); });
    sleep_ms(2);
    CHECK(tuttiEventDestroy(event) == tuttiSuccess);
    CHECK(tuttiEventQuery(event) == tuttiInvalidArgument);
    tuttiResult_t destroyed = tuttiInternalError;
    std::thread destroys([&] { destroyed = tuttiStreamDestroy(stream); });
    queues.join();
    CHECK(last == tuttiInvalidArgument);
    for (int i = 0; i < queued; ++i) CHECK(all_reduce(comms[1]) == tuttiSuccess);
    waits.join();
    destroys.join();
    CHECK((waited == tuttiSuccess || waited == tuttiInvalidArgument));
    CHECK(destroyed == tuttiSuccess);
    for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  }
}

TEST_CASE("tables grow while others look up") {
  const auto comms = make_pair_of_ranks();
  std::atomic<bool> done{false};
  std::vector<std::thread> lookers;
  std::array<tuttiResult_t, 2> last{};
  for (std::size_t r = 0; r < 2; ++r) {
    lookers.emplace_back([&, r] {
      // Rank 1 ends when rank 0 sends it.
      std::int32_t on = 1;
      while (on != 0 && last[r] == tuttiSuccess) {
        on = r == 0 && !done ? 1 : 0;
        last[r] = tuttiAllReduce(&on, &on, 1, tuttiInt32, tuttiSum, comms[r], nullptr);
      }
    });
  }
  std::vector<tuttiComm_t> many(kThreadSanitizer ? 70 : 140, nullptr);
  for (tuttiComm_t& comm : many) REQUIRE(tuttiCommInitAll(&comm, 1, nullptr) == tuttiSuccess);
  std::vector<tuttiStream_t> streams(1000, nullptr);
  for (tuttiStream_t& stream : streams) REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  CHECK(std::set<tuttiComm_t>(many.begin(), many.end()).size() == many.size());
  CHECK(std::set<tuttiStream_t>(streams.begin(), streams.end()).size() == streams.size());
  for (const tuttiComm_t comm : many) CHECK(all_reduce(comm) == tuttiSuccess);
  for (const tuttiComm_t comm : many) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  for (const tuttiStream_t stream : streams) CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
  done = true;
  for (std::thread& t : lookers) t.join();
  CHECK(last[0] == tuttiSuccess);
  CHECK(last[1] == tuttiSuccess);
  for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("a thread's errors end with it, even if its destructors call the library") {
  struct Late {
    ~Late() {
      CHECK(tuttiCommAbort(nullptr) == tuttiInvalidArgument);
      CHECK(contains(tuttiGetLastError(nullptr), "communicator"));
    }
    int touched = 0;
  };
  for (int i = 0; i < 20; ++i) {
    std::thread([] {
      static thread_local Late late;
      late.touched = 1;
      CHECK(std::string(tuttiGetLastError(nullptr)).empty());
      CHECK(tuttiStreamQuery(nullptr) == tuttiInvalidArgument);
    }).join();
  }
}

}  // namespace tutti::internal::test
