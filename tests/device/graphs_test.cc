// Operations on device memory in graphs.
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "catch_compat.h"
#include "device_rig.h"

using namespace tutti::internal::test;

TEST_CASE("graphs are captured and replayed") {
  need_device();
  const TestDriver& driver = TestDriver::get();
  const bool global = GENERATE(false, true);
  auto job = std::make_unique<DeviceJob>(2);
  std::array<Driver::Graph, 2> kept{};
  std::vector<DeviceBytes> buffers;
  for (int r = 0; r < 2; ++r) buffers.emplace_back(job->device(r), 1000);
  std::atomic<int> come{0};
  job->each([&](int r) {
    const int device = job->device(r);
    const TestStream stream(device);
    const DeviceBytes& buffer = buffers[static_cast<std::size_t>(r)];
    const UseDevice use(device);
    Driver::Graph graph = nullptr;
    Driver::Graph made = nullptr;
    // Called before the capture, because one-time work may not be captured.
    buffer.set(Bytes(1000, std::byte(1)));
    sum(*job, r, buffer, 1000, stream.get());
    stream.wait();
    // While one thread captures, others may not make every call.
    auto all_come = [&, steps = 0]() mutable {
      steps += 2;
      ++come;
      while (come < steps) std::this_thread::yield();
    };
    all_come();
    TestDriver::must(driver.begin_capture(stream.handle(), global ? 0 : 1), "capture");
    all_come();
    sum(*job, r, buffer, 1000, stream.get());
    sum(*job, r, buffer, 500, stream.get());
    TestDriver::must(driver.end_capture(stream.handle(), &graph), "capture");
    all_come();
    TestDriver::must(driver.instantiate(&made, graph, 0), "instantiate");
    TestDriver::must(driver.destroy_graph(graph), "destroy");
    for (int i = 0; i < 5; ++i) {
      buffer.set(Bytes(1000, std::byte(r + i)));
      TestDriver::must(driver.launch(made, stream.handle()), "launch");
      // Beside the graph, not part of it.
      TestDriver::must(driver.launch(made, stream.handle()), "launch");
      stream.wait();
      const Bytes got = buffer.get();
      const auto once = static_cast<unsigned>(2 * i + 1);
      if (got.front() != std::byte(once * 8) || got.back() != std::byte(once * 2))
        throw std::runtime_error("another sum");
    }
    kept[static_cast<std::size_t>(r)] = made;
  });
  job.reset();
  // After a communicator is gone, no graph waits for it.
  for (int r = 0; r < 2; ++r) {
    const int device = r % driver.devices;
    const TestStream stream(device);
    const UseDevice use(device);
    TestDriver::must(driver.launch(kept[static_cast<std::size_t>(r)], stream.handle()), "launch");
    stream.wait();
    TestDriver::must(driver.destroy_exec(kept[static_cast<std::size_t>(r)]), "destroy");
  }
}

TEST_CASE("a graph captured from several streams runs in the order of the calls, and eager calls after it") {
  need_device();
  const TestDriver& driver = TestDriver::get();
  constexpr std::size_t kLong = 20'000'000;
  DeviceJob job(2);
  std::atomic<int> come{0};
  std::vector<DeviceBytes> longs;
  std::vector<DeviceBytes> shorts;
  for (int r = 0; r < 2; ++r) {
    longs.emplace_back(job.device(r), kLong);
    shorts.emplace_back(job.device(r), 100);
  }
  job.each([&](int r) {
    const int device = job.device(r);
    const TestStream one(device);
    const TestStream two(device);
    const DeviceBytes& a = longs[static_cast<std::size_t>(r)];
    const DeviceBytes& b = shorts[static_cast<std::size_t>(r)];
    const UseDevice use(device);
    auto all_come = [&, steps = 0]() mutable {
      steps += 2;
      ++come;
      while (come < steps) std::this_thread::yield();
    };
    Driver::Event event = nullptr;
    TestDriver::must(driver.event_create(&event, Driver::kEventDisableTiming), "event");
    const auto behind = [&](const TestStream& stream, const TestStream& other) {
      TestDriver::must(driver.event_record(event, other.handle()), "record");
      TestDriver::must(driver.stream_wait_event(stream.handle(), event, 0), "wait");
    };
    all_come();
    TestDriver::must(driver.begin_capture(one.handle(), 1), "capture");
    behind(two, one);
    sum(job, r, a, kLong, one.get());
    sum(job, r, b, 100, two.get());
    sum(job, r, a, 1000, one.get());
    behind(one, two);
    Driver::Graph graph = nullptr;
    Driver::Graph made = nullptr;
    TestDriver::must(driver.end_capture(one.handle(), &graph), "capture");
    all_come();
    TestDriver::must(driver.instantiate(&made, graph, 0), "instantiate");
    TestDriver::must(driver.destroy_graph(graph), "destroy");
    for (int i = 0; i < 3; ++i) {
      a.set(Bytes(kLong, std::byte(i + r)));
      b.set(Bytes(100, std::byte(r)));
      TestDriver::must(driver.launch(made, one.handle()), "launch");
      sum(job, r, a, 10, one.get());
      sum(job, r, b, 100, one.get());
      TestDriver::must(driver.launch(made, one.handle()), "launch");
      one.wait();
      const Bytes got = a.get();
      const auto once = static_cast<unsigned>(2 * i + 1);
      const bool right = got[0] == std::byte(once * 16) && got[500] == std::byte(once * 8) &&
                         got[kLong - 1] == std::byte(once * 2) && b.get() == Bytes(100, std::byte(4));
      if (!right) throw std::runtime_error("another sum");
    }
    TestDriver::must(driver.destroy_exec(made), "destroy");
    TestDriver::must(driver.event_destroy(event), "event");
  });
}

TEST_CASE("a graph that another rank does not replay times out, and one that differs is noticed") {
  need_device();
  const TestDriver& driver = TestDriver::get();
  const bool differs = GENERATE(false, true);
  std::array<tuttiComm_t, 2> comms{};
  const std::array<int, 2> devices = {0, 0};
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.timeout_ms = differs ? 20'000 : 300;
  REQUIRE(tuttiCommInitAllConfig(comms.data(), 2, devices.data(), &config) == tuttiSuccess);
  const TestStream one(0);
  const TestStream two(0);
  const std::array<const TestStream*, 2> streams = {&one, &two};
  const DeviceBytes buffer(0, Bytes(200, std::byte(1)));
  std::array<Driver::Graph, 2> graphs{};
  const UseDevice use(0);
  for (std::size_t r = 0; r < 2; ++r) {
    Driver::Graph graph = nullptr;
    TestDriver::must(driver.begin_capture(streams[r]->handle(), 1), "capture");
    const std::size_t count = differs && r == 1 ? 90 : 100;
    REQUIRE(tuttiAllReduce(buffer.data(), buffer.data(), count, tuttiUint8, tuttiSum, comms[r], streams[r]->get()) ==
            tuttiSuccess);
    TestDriver::must(driver.end_capture(streams[r]->handle(), &graph), "capture");
    TestDriver::must(driver.instantiate(&graphs[r], graph, 0), "instantiate");
    TestDriver::must(driver.destroy_graph(graph), "destroy");
  }
  for (std::size_t r = 0; r < (differs ? 2U : 1U); ++r) {
    TestDriver::must(driver.launch(graphs[r], streams[r]->handle()), "launch");
  }
  for (std::size_t r = 0; r < (differs ? 2U : 1U); ++r) {
    streams[r]->wait();
    tuttiResult_t failed = tuttiSuccess;
    REQUIRE(tuttiCommGetAsyncError(comms[r], &failed) == tuttiSuccess);
    INFO(tuttiGetLastError(comms[r]));
    CHECK(failed == (differs ? tuttiMismatch : tuttiTimeout));
    CHECK(std::string(tuttiGetLastError(comms[r])).find("rank") != std::string::npos);
  }
  for (tuttiComm_t comm : comms) (void)tuttiCommAbort(comm);
  for (const Driver::Graph graph : graphs) TestDriver::must(driver.destroy_exec(graph), "destroy");
  DeviceBytes::free_all();
}

TEST_CASE("an abort ends a graph that waits on the device") {
  need_device();
  const TestDriver& driver = TestDriver::get();
  std::array<tuttiComm_t, 2> comms{};
  const std::array<int, 2> devices = {0, 0};
  REQUIRE(tuttiCommInitAll(comms.data(), 2, devices.data()) == tuttiSuccess);
  const TestStream stream(0);
  const DeviceBytes buffer(0, Bytes(200, std::byte(1)));
  const UseDevice use(0);
  Driver::Graph graph = nullptr;
  Driver::Graph made = nullptr;
  TestDriver::must(driver.begin_capture(stream.handle(), 1), "capture");
  REQUIRE(tuttiAllReduce(buffer.data(), buffer.data(), 100, tuttiUint8, tuttiSum, comms[0], stream.get()) ==
          tuttiSuccess);
  TestDriver::must(driver.end_capture(stream.handle(), &graph), "capture");
  TestDriver::must(driver.instantiate(&made, graph, 0), "instantiate");
  TestDriver::must(driver.launch(made, stream.handle()), "launch");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(stream.quiet());
  // Aborted by the other rank.
  CHECK(tuttiCommAbort(comms[1]) == tuttiSuccess);
  stream.wait();
  CHECK(tuttiCommAbort(comms[0]) == tuttiSuccess);
  TestDriver::must(driver.launch(made, stream.handle()), "launch");
  stream.wait();
  TestDriver::must(driver.destroy_graph(graph), "destroy");
  TestDriver::must(driver.destroy_exec(made), "destroy");
  DeviceBytes::free_all();
}

namespace {

// One graph with an all-reduce of `bytes` bytes in place.
Driver::Graph capture(tuttiComm_t comm, const TestStream& stream, const DeviceBytes& buffer, std::size_t bytes) {
  const TestDriver& driver = TestDriver::get();
  Driver::Graph graph = nullptr;
  Driver::Graph made = nullptr;
  TestDriver::must(driver.begin_capture(stream.handle(), 1), "capture");
  check_success(tuttiAllReduce(buffer.data(), buffer.data(), bytes, tuttiUint8, tuttiSum, comm, stream.get()), comm);
  TestDriver::must(driver.end_capture(stream.handle(), &graph), "capture");
  TestDriver::must(driver.instantiate(&made, graph, 0), "instantiate");
  TestDriver::must(driver.destroy_graph(graph), "destroy");
  return made;
}

// Two ranks on one device, in one thread.
struct Pair {
  explicit Pair(int timeout_ms = 20'000) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeout_ms = timeout_ms;
    const std::array<int, 2> devices = {0, 0};
    check_success(tuttiCommInitAllConfig(comms.data(), 2, devices.data(), &config), nullptr);
  }
  ~Pair() {
    for (tuttiComm_t& comm : comms) {
      if (comm != nullptr) (void)tuttiCommAbort(std::exchange(comm, nullptr));
    }
    for (const Driver::Graph graph : graphs) (void)TestDriver::get().destroy_exec(graph);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  void launch(std::size_t rank) {
    TestDriver::must(TestDriver::get().launch(graphs.at(rank), streams.at(rank)->handle()), "launch");
  }
  const UseDevice use{0};
  const TestStream one{0};
  const TestStream two{0};
  const std::array<const TestStream*, 2> streams = {&one, &two};
  const DeviceBytes a{0, Bytes(100'000, std::byte(1))};
  const DeviceBytes b{0, Bytes(100'000, std::byte(2))};
  std::array<tuttiComm_t, 2> comms{};
  std::vector<Driver::Graph> graphs;
};

}  // namespace

TEST_CASE("a late rank does not touch the buffers of a rank that has given up") {
  need_device();
  const bool aborts = GENERATE(true, false);
  Pair pair(aborts ? 20'000 : 100);
  pair.graphs = {capture(pair.comms[0], pair.one, pair.a, 100'000), capture(pair.comms[1], pair.two, pair.b, 100'000)};
  pair.launch(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  if (aborts) CHECK(tuttiCommAbort(std::exchange(pair.comms[0], nullptr)) == tuttiSuccess);
  pair.one.wait();
  pair.a.set(Bytes(100'000, std::byte(77)));
  pair.launch(1);
  pair.two.wait();
  const bool untouched = pair.a.get() == Bytes(100'000, std::byte(77));
  CHECK(untouched);
}

TEST_CASE("a rank may capture a graph that it does not launch") {
  need_device();
  Pair pair;
  const TestDriver& driver = TestDriver::get();
  TestDriver::must(driver.destroy_exec(capture(pair.comms[0], pair.one, pair.a, 100'000)), "destroy");
  pair.graphs = {capture(pair.comms[0], pair.one, pair.a, 100'000), capture(pair.comms[1], pair.two, pair.b, 100'000)};
  pair.launch(0);
  pair.launch(1);
  pair.one.wait();
  pair.two.wait();
  const bool right = pair.a.get() == Bytes(100'000, std::byte(3)) && pair.b.get() == Bytes(100'000, std::byte(3));
  CHECK(right);
}

TEST_CASE("a graph that runs when another rank has left is an error") {
  need_device();
  Pair pair;
  pair.graphs = {capture(pair.comms[0], pair.one, pair.a, 100'000), capture(pair.comms[1], pair.two, pair.b, 100'000)};
  // A rank that serves only itself waits a moment for the others before it leaves.
  CHECK(tuttiCommDestroy(std::exchange(pair.comms[0], nullptr)) == tuttiSuccess);
  pair.launch(1);
  pair.two.wait();
  tuttiResult_t failed = tuttiSuccess;
  REQUIRE(tuttiCommGetAsyncError(pair.comms[1], &failed) == tuttiSuccess);
  INFO(tuttiGetLastError(pair.comms[1]));
  CHECK(failed == tuttiMismatch);
}
