// Queued operations: streams, events, and blocking calls in between.
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "suites.h"

namespace tutti::internal::test {
namespace {

std::string name(tuttiResult_t result) {
  return result == tuttiSuccess ? "" : std::string(tuttiGetErrorString(result)) + ": " + tuttiGetLastError(nullptr);
}

// Calls queued together, each with its own memory.
class Batch {
 public:
  Batch(const std::vector<Spec>& specs, int rank, int ranks) : memory_(specs.size()) {
    for (std::size_t i = 0; i < specs.size(); ++i) {
      trials_.emplace_back(specs[i], rank, ranks);
      trials_.back().prepare(&memory_[i][0], &memory_[i][1]);
    }
  }
  [[nodiscard]] std::size_t size() const { return trials_.size(); }
  tuttiResult_t issue(std::size_t i, tuttiComm_t comm, tuttiStream_t stream) { return trials_[i].issue(comm, stream); }
  [[nodiscard]] std::string check(std::size_t end) const {
    for (std::size_t i = 0; i < end; ++i) {
      if (std::string wrong = trials_[i].check(); !wrong.empty()) return wrong;
    }
    return {};
  }

 private:
  std::vector<std::array<Memory, 2>> memory_;
  std::vector<Trial> trials_;
};

std::vector<Spec> mixed(int ranks) {
  std::vector<Spec> specs;
  for (const CollectiveInfo& info : kCollectiveTable) {
    for (const Spec& s : some_of(info.collective, ranks)) specs.push_back(s);
  }
  return specs;
}

std::string queue_and_wait(tuttiComm_t comm, int rank, int ranks) {
  tuttiStream_t stream = nullptr;
  tuttiEvent_t middle = nullptr;
  Batch batch(mixed(ranks), rank, ranks);
  if (auto e = name(tuttiStreamCreate(&stream)); !e.empty()) return e;
  if (auto e = name(tuttiEventCreate(&middle)); !e.empty()) return e;
  const std::size_t half = batch.size() / 2;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (i == half) {
      if (auto e = name(tuttiEventRecord(middle, stream)); !e.empty()) return e;
    }
    if (auto e = name(batch.issue(i, comm, stream)); !e.empty()) return e;
  }
  const tuttiResult_t query = tuttiEventQuery(middle);
  if (query != tuttiSuccess && query != tuttiInProgress) return "event query: " + name(query);
  if (auto e = name(tuttiEventSynchronize(middle)); !e.empty()) return e;
  if (tuttiEventQuery(middle) != tuttiSuccess) return "an event that was waited for is not complete";
  if (auto e = batch.check(half); !e.empty()) return "after the event: " + e;
  if (auto e = name(tuttiStreamSynchronize(stream)); !e.empty()) return e;
  if (tuttiStreamQuery(stream) != tuttiSuccess) return "a stream that was synchronized is not complete";
  if (auto e = batch.check(batch.size()); !e.empty()) return e;
  if (auto e = name(tuttiEventDestroy(middle)); !e.empty()) return e;
  return name(tuttiStreamDestroy(stream));
}

// Blocking calls run after queued operations.
std::string mix_blocking(tuttiComm_t comm, int rank, int ranks) {
  tuttiStream_t stream = nullptr;
  const std::vector<Spec> specs = mixed(ranks);
  Batch batch(specs, rank, ranks);
  Runner runner(comm, rank, ranks);
  if (auto e = name(tuttiStreamCreate(&stream)); !e.empty()) return e;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (auto e = name(batch.issue(i, comm, stream)); !e.empty()) return e;
    if (i % 3 != 2) continue;
    if (auto e = runner.run(specs[i]); !e.empty()) return "blocking: " + e;
    if (auto e = batch.check(i + 1); !e.empty()) return "after a blocking call: " + e;
  }
  return name(tuttiStreamDestroy(stream));
}

// The next operation of a stream, on another communicator, uses the result of the one before.
std::string chain(std::array<tuttiComm_t, 2> comms, int ranks) {
  tuttiStream_t stream = nullptr;
  if (auto e = name(tuttiStreamCreate(&stream)); !e.empty()) return e;
  constexpr std::size_t kCount = 5000;
  constexpr int kLinks = 12;
  std::vector<std::uint64_t> v(kCount, 1);
  std::uint64_t want = 1;
  for (int i = 0; i < kLinks; ++i) {
    const tuttiComm_t comm = comms[static_cast<std::size_t>(i / 2 % 2)];
    if (auto e = name(tuttiAllReduce(v.data(), v.data(), kCount, tuttiUint64, tuttiSum, comm, stream)); !e.empty())
      return e;
    want *= static_cast<std::uint64_t>(ranks);
  }
  if (auto e = name(tuttiStreamDestroy(stream)); !e.empty()) return e;
  for (const std::uint64_t x : v) {
    if (x != want) return "the chain gave " + std::to_string(x) + " instead of " + std::to_string(want);
  }
  return {};
}

}  // namespace

TEST_CASE("queued operations run in order and events tell when") {
  for (const char* transports : {"shm", "tcp", "sim:9"}) {
    for (const int ranks : {1, 2, 4}) {
      INFO(transports << " " << ranks);
      const auto outcomes = run_threads(
          ranks, transports, [](tuttiComm_t comm, int rank, int n) { return Outcome{queue_and_wait(comm, rank, n)}; });
      REQUIRE(wrong_of(outcomes) == "");
    }
  }
}

TEST_CASE("blocking calls run after queued operations") {
  for (const int ranks : {1, 3}) {
    const auto outcomes = run_threads(
        ranks, "shm", [](tuttiComm_t comm, int rank, int n) { return Outcome{mix_blocking(comm, rank, n)}; });
    REQUIRE(wrong_of(outcomes) == "");
  }
}

TEST_CASE("one stream carries two communicators") {
  for (const int ranks : {1, 2, 3}) {
    std::vector<tuttiComm_t> second(static_cast<std::size_t>(ranks), nullptr);
    REQUIRE(tuttiCommInitAll(second.data(), ranks, nullptr) == tuttiSuccess);
    const auto outcomes = run_threads(ranks, "shm", [&](tuttiComm_t comm, int rank, int n) {
      return Outcome{chain({comm, second[static_cast<std::size_t>(rank)]}, n)};
    });
    for (const tuttiComm_t comm : second) REQUIRE(tuttiCommDestroy(comm) == tuttiSuccess);
    REQUIRE(wrong_of(outcomes) == "");
  }
}

TEST_CASE("an empty stream is complete") {
  tuttiStream_t stream = nullptr;
  tuttiEvent_t event = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  REQUIRE(tuttiStreamQuery(stream) == tuttiSuccess);
  REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
  for (int times = 0; times < 2; ++times) {
    REQUIRE(tuttiEventQuery(event) == tuttiSuccess);
    REQUIRE(tuttiEventSynchronize(event) == tuttiSuccess);
    REQUIRE(tuttiEventRecord(event, stream) == tuttiSuccess);
  }
  REQUIRE(tuttiEventDestroy(event) == tuttiSuccess);
  REQUIRE(tuttiStreamSynchronize(stream) == tuttiSuccess);
  REQUIRE(tuttiStreamDestroy(stream) == tuttiSuccess);
}

TEST_CASE("an event is recorded again and again, and keeps an error until then") {
  std::array<tuttiComm_t, 2> comms{};
  REQUIRE(tuttiCommInitAll(comms.data(), 2, nullptr) == tuttiSuccess);
  tuttiStream_t busy = nullptr;
  tuttiStream_t idle = nullptr;
  tuttiEvent_t event = nullptr;
  std::array<std::int32_t, 2> v{20, 21};
  REQUIRE(tuttiStreamCreate(&busy) == tuttiSuccess);
  REQUIRE(tuttiStreamCreate(&idle) == tuttiSuccess);
  REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
  const auto all_reduce = [&](std::size_t rank, void* stream) {
    return tuttiAllReduce(&v[rank], &v[rank], 1, tuttiInt32, tuttiSum, comms[rank], stream);
  };
  // No operation that rank 0 has queued ends before rank 1 calls it.
  REQUIRE(all_reduce(0, busy) == tuttiSuccess);
  REQUIRE(tuttiEventRecord(event, busy) == tuttiSuccess);
  CHECK(tuttiEventQuery(event) == tuttiInProgress);
  REQUIRE(tuttiEventRecord(event, idle) == tuttiSuccess);
  CHECK(tuttiEventQuery(event) == tuttiSuccess);
  REQUIRE(tuttiEventRecord(event, busy) == tuttiSuccess);
  CHECK(tuttiEventQuery(event) == tuttiInProgress);
  std::atomic<bool> waiting{false};
  tuttiResult_t waited = tuttiInternalError;
  std::thread waits([&] {
    waiting = true;
    waited = tuttiEventSynchronize(event);
  });
  while (!waiting) std::this_thread::yield();
  REQUIRE(all_reduce(1, nullptr) == tuttiSuccess);
  waits.join();
  CHECK(waited == tuttiSuccess);
  CHECK(v[0] + v[1] == 82);
  REQUIRE(all_reduce(0, busy) == tuttiSuccess);
  CHECK(tuttiEventQuery(event) == tuttiSuccess);
  REQUIRE(tuttiEventRecord(event, busy) == tuttiSuccess);
  CHECK(tuttiEventQuery(event) == tuttiInProgress);
  CHECK(tuttiCommAbort(comms[1]) == tuttiSuccess);
  for (int times = 0; times < 2; ++times) CHECK(tuttiEventSynchronize(event) == tuttiAborted);
  CHECK(tuttiEventQuery(event) == tuttiAborted);
  REQUIRE(tuttiEventRecord(event, idle) == tuttiSuccess);
  CHECK(tuttiEventQuery(event) == tuttiSuccess);
  CHECK(tuttiStreamSynchronize(busy) == tuttiAborted);
  CHECK(tuttiCommDestroy(comms[0]) == tuttiSuccess);
  for (const tuttiStream_t stream : {busy, idle}) CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
  CHECK(tuttiEventDestroy(event) == tuttiSuccess);
}

TEST_CASE("a stream waits for an event of another") {
  const int ends_well = GENERATE(1, 0);
  std::array<std::array<tuttiComm_t, 2>, 2> comms{};
  for (auto& pair : comms) REQUIRE(tuttiCommInitAll(pair.data(), 2, nullptr) == tuttiSuccess);
  std::array<tuttiStream_t, 3> streams{};
  for (tuttiStream_t& stream : streams) REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  tuttiEvent_t event = nullptr;
  REQUIRE(tuttiEventCreate(&event) == tuttiSuccess);
  std::int32_t shared = 20;
  std::array<std::int32_t, 2> others{21, 1};
  const auto all_reduce = [&](std::int32_t* v, tuttiComm_t comm, void* stream) {
    return tuttiAllReduce(v, v, 1, tuttiInt32, tuttiSum, comm, stream);
  };
  // Rank 0 of the second communicator sends the result of the first one, which has to wait for its rank 1.
  REQUIRE(all_reduce(&shared, comms[0][0], streams[0]) == tuttiSuccess);
  REQUIRE(tuttiEventRecord(event, streams[0]) == tuttiSuccess);
  for (int times = 0; times < 1000; ++times) REQUIRE(tuttiStreamWaitEvent(streams[1], event) == tuttiSuccess);
  CHECK(tuttiStreamQuery(streams[1]) == tuttiInProgress);
  REQUIRE(all_reduce(&others[1], comms[1][1], streams[2]) == tuttiSuccess);
  REQUIRE(tuttiStreamWaitEvent(streams[2], event) == tuttiSuccess);  // after the operations queued there
  REQUIRE(all_reduce(&shared, comms[1][0], streams[1]) == tuttiSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // enough time for operations that do not wait
  CHECK(tuttiStreamQuery(streams[1]) == tuttiInProgress);
  CHECK(tuttiStreamQuery(streams[2]) == tuttiInProgress);
  if (ends_well != 0) {
    REQUIRE(all_reduce(&others[0], comms[0][1], nullptr) == tuttiSuccess);
    for (const tuttiStream_t stream : streams) CHECK(tuttiStreamSynchronize(stream) == tuttiSuccess);
    CHECK(shared == 42);
    CHECK(others[1] == 42);
  } else {
    CHECK(tuttiCommAbort(comms[0][1]) == tuttiSuccess);
    comms[0][1] = nullptr;
    // The streams have the error too, but not the communicator whose operation has waited.
    for (const tuttiStream_t stream : streams) CHECK(tuttiStreamSynchronize(stream) == tuttiAborted);
    for (const tuttiStream_t stream : streams) CHECK(tuttiStreamSynchronize(stream) == tuttiSuccess);
    for (const tuttiComm_t comm : comms[1]) {
      tuttiResult_t error = tuttiInternalError;
      CHECK(tuttiCommGetAsyncError(comm, &error) == tuttiSuccess);
      CHECK(error == tuttiSuccess);
    }
    CHECK(shared == others[1]);
  }
  for (auto& pair : comms) {
    for (const tuttiComm_t comm : pair) CHECK(tuttiCommDestroy(comm) == tuttiSuccess);
  }
  for (const tuttiStream_t stream : streams) CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
  CHECK(tuttiEventDestroy(event) == tuttiSuccess);
}

TEST_CASE("destroying a communicator waits for queued operations") {
  std::vector<std::uint32_t> v(1000, 1);
  const auto outcomes = run_threads(1, "shm", [&](tuttiComm_t comm, int, int) {
    tuttiStream_t stream = nullptr;
    if (auto e = name(tuttiStreamCreate(&stream)); !e.empty()) return Outcome{e};
    for (int i = 0; i < 20; ++i) {
      const tuttiResult_t result = tuttiAllReduce(v.data(), v.data(), v.size(), tuttiUint32, tuttiSum, comm, stream);
      if (result != tuttiSuccess) return Outcome{name(result)};
    }
    if (auto e = name(tuttiCommFinalize(comm)); !e.empty()) return Outcome{e};
    if (tuttiStreamQuery(stream) != tuttiSuccess) return Outcome{"finalized with operations still running"};
    return Outcome{name(tuttiStreamDestroy(stream))};
  });
  REQUIRE(wrong_of(outcomes) == "");
}

}  // namespace tutti::internal::test
