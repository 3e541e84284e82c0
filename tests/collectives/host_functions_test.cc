// Functions of the program in streams: their order among operations and events, the calls that they may make, and their
// errors.
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "catch_compat.h"
#include "sanitizers.h"
#include "suites.h"

namespace tutti::internal::test {
namespace {

using std::chrono::milliseconds;

// A function waits at it until it is opened.
class Gate {
 public:
  void open() { open_ = true; }
  void pass() {
    reached_ = true;
    while (!open_) std::this_thread::sleep_for(milliseconds(1));
  }
  void await_reached() const {
    while (!reached_) std::this_thread::sleep_for(milliseconds(1));
  }

 private:
  std::atomic<bool> open_{false};
  std::atomic<bool> reached_{false};
};

std::array<tuttiComm_t, 2> make_pair() {
  std::array<tuttiComm_t, 2> comms{};
  REQUIRE(tuttiCommInitAll(comms.data(), 2, nullptr) == tuttiSuccess);
  return comms;
}

tuttiResult_t add(std::int32_t* value, tuttiComm_t comm, void* stream) {
  return tuttiAllReduce(value, value, 1, tuttiInt32, tuttiSum, comm, stream);
}

}  // namespace

TEST_CASE("a function runs behind operations, and operations of another communicator behind it") {
  const auto first = make_pair();
  const auto second = make_pair();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> ranks;
    std::array<tuttiResult_t, 2> results{tuttiInternalError, tuttiInternalError};
    std::array<std::array<std::int32_t, 2>, 2> values{};
    for (std::size_t rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        if (rank == static_cast<std::size_t>(round % 2)) std::this_thread::sleep_for(milliseconds(2));
        tutti::Stream stream;
        std::int32_t& own = values[rank][0];
        std::int32_t& next = values[rank][1];
        own = static_cast<std::int32_t>(rank) + 1;
        (void)add(&own, first[rank], stream.get());
        stream.launch([&] { next = own * 10; });
        (void)add(&next, second[rank], stream.get());
        stream.launch([&] { own = next + 1; });
        (void)add(&own, first[rank], stream.get());
        stream.launch([&] { own += 1; });
        results[rank] = tuttiStreamSynchronize(stream.get());
      });
    }
    for (std::thread& t : ranks) t.join();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      REQUIRE(results[rank] == tuttiSuccess);
      REQUIRE(values[rank][1] == 60);
      REQUIRE(values[rank][0] == 123);
    }
  }
  for (const auto& comms : {first, second}) {
    for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  }
}

TEST_CASE("functions of a stream run once each, in order") {
  constexpr int kThreads = 6;
  constexpr int kStreams = 20;
  constexpr int kFunctions = kThreadSanitizer ? 50 : 200;
  std::atomic<int> wrong{0};
  std::atomic<int> calls{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      std::vector<tutti::Stream> streams(kStreams);
      std::vector<int> next(kStreams, 0);
      for (int i = 0; i < kFunctions; ++i) {
        for (std::size_t s = 0; s < streams.size(); ++s) {
          streams[s].launch([&, s, i] {
            if (next[s]++ != i) ++wrong;
            ++calls;
          });
        }
      }
      for (std::size_t s = 0; s < streams.size(); ++s) {
        if (tuttiStreamSynchronize(streams[s].get()) != tuttiSuccess || next[s] != kFunctions) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(calls == kThreads * kStreams * kFunctions);
}

TEST_CASE("streams and events are complete when the functions have returned") {
  tutti::Stream stream;
  tutti::Stream behind;
  tutti::Event event;
  Gate gate;
  std::atomic<int> done{0};
  stream.launch([&] { gate.pass(), ++done; });
  event.record(stream);
  behind.wait(event);
  behind.launch([&] { done += done == 1 ? 10 : 1000; });
  gate.await_reached();
  CHECK_FALSE(stream.query());
  CHECK_FALSE(event.query());
  CHECK_FALSE(behind.query());
  gate.open();
  behind.synchronize();
  CHECK(done == 11);
  CHECK(event.query());
  CHECK(stream.query());
}

TEST_CASE("a function that waits in its stream delays no other stream") {
  const auto comms = make_pair();
  tutti::Stream waits;
  tutti::Stream behind;
  tutti::Stream other;
  tutti::Event event;
  std::int32_t value = 20;
  std::atomic<bool> ran{false};
  REQUIRE(add(&value, comms[0], waits.get()) == tuttiSuccess);  // rank 1 comes later
  waits.launch([&] { ran = true; });
  event.record(waits);
  behind.wait(event);
  behind.launch([&] { value += ran ? 100 : 0; });
  std::int32_t called = 0;
  other.launch([&] { called = 1; });
  other.synchronize();
  CHECK(called == 1);
  CHECK_FALSE(ran);
  std::int32_t peer = 22;
  REQUIRE(add(&peer, comms[1], nullptr) == tuttiSuccess);
  behind.synchronize();
  CHECK(value == 142);
  for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("functions run after errors, and their exceptions are errors") {
  const auto failing = make_pair();
  const auto good = make_pair();
  tutti::Stream stream;
  std::int32_t value = 0;
  std::array<std::int32_t, 2> sums{0, 40};
  tuttiResult_t seen = tuttiSuccess;
  REQUIRE(add(&value, failing[0], stream.get()) == tuttiSuccess);
  stream.launch([&] { (void)tuttiCommGetAsyncError(failing[0], &seen), sums[0] = 2; });
  stream.launch([] { throw std::runtime_error("of the program"); });
  REQUIRE(add(&sums[0], good[0], stream.get()) == tuttiSuccess);
  stream.launch([&] { sums[0] *= 10; });
  REQUIRE(tuttiCommAbort(failing[1]) == tuttiSuccess);
  REQUIRE(add(&sums[1], good[1], nullptr) == tuttiSuccess);
  CHECK(tuttiStreamSynchronize(stream.get()) == tuttiAborted);
  CHECK(seen == tuttiAborted);
  CHECK(sums[0] == 420);
  CHECK(tuttiStreamSynchronize(stream.get()) == tuttiSuccess);
  stream.launch([] { throw std::runtime_error("of the program"); });
  stream.launch([] {});
  CHECK(tuttiStreamSynchronize(stream.get()) == tuttiInternalError);
  const std::string text = tuttiGetLastError(nullptr);
  INFO(text);
  CHECK(text.find("host function: ") == 0);
  CHECK(text.find("of the program") != std::string::npos);
  CHECK(tuttiCommDestroy(failing[0]) == tuttiSuccess);
  for (const tuttiComm_t comm : good) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("in a function, calls that would wait are refused, and all others served") {
  const auto comms = make_pair();
  tutti::Stream own;
  tutti::Stream idle;
  tutti::Event event;
  std::int32_t value = 20;
  std::int32_t launched = 0;
  std::vector<tuttiResult_t> results;
  tuttiResult_t grouped = tuttiSuccess;
  Gate gate;
  own.launch([&] { gate.pass(); });
  own.launch([&] {
    event.record(own);
    results = {tuttiStreamSynchronize(own.get()), tuttiStreamDestroy(own.get()), tuttiEventSynchronize(event.get()),
               tuttiCommFinalize(comms[0]),       tuttiCommDestroy(comms[0]),    add(&value, comms[0], nullptr)};
    // Also besides calls for streams.
    (void)tuttiGroupStart();
    (void)add(&value, comms[0], nullptr);
    (void)add(&value, comms[1], idle.get());
    grouped = tuttiGroupEnd();
    results.push_back(grouped);
    results.push_back(tuttiStreamQuery(own.get()) == tuttiInProgress ? tuttiInvalidUsage : tuttiSuccess);
    idle.synchronize();  // there is nothing to wait for
    idle.launch([&] { launched = 1; });
  });
  REQUIRE(add(&value, comms[0], own.get()) == tuttiSuccess);
  gate.open();
  std::int32_t peer = 22;
  REQUIRE(add(&peer, comms[1], nullptr) == tuttiSuccess);
  own.synchronize();
  idle.synchronize();
  CHECK(results == std::vector<tuttiResult_t>(8, tuttiInvalidUsage));
  CHECK(launched == 1);
  CHECK(value == 42);
  CHECK(peer == 42);
  for (const tuttiComm_t comm : comms) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
}

TEST_CASE("a stream that is destroyed waits for its functions, and a communicator for those before its operations") {
  const auto comms = make_pair();
  std::int32_t value = 0;
  std::atomic<int> calls{0};
  {
    tutti::Stream stream;
    for (int i = 0; i < 100; ++i) {
      stream.launch([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        ++calls;
      });
    }
  }
  CHECK(calls == 100);
  tutti::Stream stream;
  stream.launch([&] {
    std::this_thread::sleep_for(milliseconds(30));
    value = 20;
  });
  REQUIRE(add(&value, comms[0], stream.get()) == tuttiSuccess);
  std::thread peer([&] {
    std::int32_t other = 22;
    (void)add(&other, comms[1], nullptr);
    (void)tuttiCommDestroy(comms[1]);
  });
  CHECK(tuttiCommDestroy(comms[0]) == tuttiSuccess);
  peer.join();
  CHECK(value == 42);
  CHECK(stream.query());
}

// Streams that wait for each other, operations and functions mixed, while communicators are aborted.
TEST_CASE("functions run once each while communicators are aborted around them") {
  for (int round = 0; round < (kThreadSanitizer ? 20 : 100); ++round) {
    const auto comms = make_pair();
    std::atomic<int> calls{0};
    std::array<std::int32_t, 2> values{};
    {
      std::array<tutti::Stream, 2> streams;
      std::array<tutti::Event, 2> events;
      std::thread aborts([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(50 * round));
        (void)tuttiCommAbort(comms[static_cast<std::size_t>(round % 2)]);
      });
      for (int i = 0; i < 20; ++i) {
        for (std::size_t rank = 0; rank < 2; ++rank) {
          (void)add(&values[rank], comms[rank], streams[rank].get());
          streams[rank].launch([&] { ++calls; });
          events[rank].record(streams[rank]);
          streams[1 - rank].wait(events[rank]);
        }
      }
      aborts.join();
    }
    CHECK(calls == 40);
    CHECK(tuttiCommDestroy(comms[static_cast<std::size_t>(1 - round % 2)]) == tuttiSuccess);
  }
}

}  // namespace tutti::internal::test
