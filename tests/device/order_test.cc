// Operations on device memory keep the order of their streams, and always end.
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "catch_compat.h"
#include "device_rig.h"
#include "sanitizers.h"

using namespace tutti::internal::test;

namespace {

void wait_while(const std::atomic<bool>& flag) {
  while (flag) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Holds a stream until it is opened.
struct Gate {
  std::atomic<bool> closed{true};
  std::atomic<bool> on_the_way{true};  // the stream has not reached it
  static void hold(void* gate) {
    static_cast<Gate*>(gate)->on_the_way = false;
    wait_while(static_cast<Gate*>(gate)->closed);
  }
};

}  // namespace

TEST_CASE("an operation begins when its stream has reached it, and later work waits for its end") {
  need_device();
  const int held = GENERATE(0, 1);
  DeviceJob job(2);
  Gate gate;
  std::atomic<int> called{0};
  std::atomic<bool> early{false};
  job.each([&](int r) {
    const TestStream stream(job.device(r));
    const DeviceBytes buffer(job.device(r), Bytes(1000, std::byte(r + 1)));
    if (r == held) stream.call(&Gate::hold, &gate);
    sum(job, r, buffer, 1000, stream.get());
    sum(job, r, buffer, 1000, stream.get());
    // No thread has waited.
    if (++called == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      early = stream.quiet();
      gate.closed = false;
    }
    stream.wait();
    if (buffer.get() != Bytes(1000, std::byte(6))) throw std::runtime_error("not the sum of sums");
  });
  CHECK_FALSE(early);
}

TEST_CASE("memory can be freed while an operation is in flight") {
  need_device();
  DeviceJob job(2);
  Gate gate;
  std::vector<DeviceBytes> buffers;
  const TestStream one(job.device(0));
  const TestStream two(job.device(1));
  for (int r = 0; r < 2; ++r) buffers.emplace_back(job.device(r), Bytes(9'000'000, std::byte(r + 1)));
  Driver::Address spare = 0;
  const UseDevice use(job.device(0));
  TestDriver::must(TestDriver::get().allocate(&spare, 1000), "allocate");
  one.call(&Gate::hold, &gate);
  sum(job, 0, buffers[0], 9'000'000, one.get());
  sum(job, 1, buffers[1], 9'000'000, two.get());
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    gate.closed = false;
  });
  TestDriver::must(TestDriver::get().free(spare), "free");
  opens.join();
  one.wait();
  two.wait();
  CHECK(equal(buffers[0].get(), Bytes(9'000'000, std::byte(3))));
}

TEST_CASE("streams of one communicator, in the order of the calls") {
  need_device();
  DeviceJob job(2);
  job.each([&](int r) {
    const TestStream one(job.device(r));
    const TestStream two(job.device(r));
    const DeviceBytes a(job.device(r), 70'000);
    const DeviceBytes b(job.device(r), 64);
    for (int i = 0; i < 50; ++i) {
      a.set(Bytes(70'000, std::byte(i + r)));
      b.set(Bytes(64, std::byte(100 - i)));
      // Each runs after the previous one, in any of the streams.
      sum(job, r, a, 70'000, i % 3 == 0 ? two.get() : one.get());
      sum(job, r, b, 64, i % 2 == 0 ? one.get() : two.get());
      sum(job, r, a, 30'000, i % 2 == 0 ? one.get() : two.get());
      one.wait();
      two.wait();
      const Bytes got = a.get();
      const auto once = static_cast<unsigned>(2 * i + 1);
      if (got.front() != std::byte(2 * once) || got.back() != std::byte(once)) throw std::runtime_error("another sum");
      if (b.get() != Bytes(64, std::byte(200 - 2 * i))) throw std::runtime_error("another sum");
    }
  });
}

TEST_CASE("one thread calls for several ranks, in a group or not") {
  need_device();
  DeviceJob job(3);
  std::vector<std::unique_ptr<TestStream>> streams;
  std::vector<DeviceBytes> buffers;
  for (int r = 0; r < job.ranks(); ++r) {
    streams.push_back(std::make_unique<TestStream>(job.device(r)));
    buffers.emplace_back(job.device(r), Bytes(5000, std::byte(r + 1)));
  }
  const auto at = [](int r) { return static_cast<std::size_t>(r); };
  for (const bool grouped : {true, false}) {
    for (int i = 0; i < 2; ++i) {
      if (grouped) check_success(tuttiGroupStart(), nullptr);
      for (int r = 0; r < job.ranks(); ++r) sum(job, r, buffers[at(r)], 5000, streams[at(r)]->get());
      if (grouped) check_success(tuttiGroupEnd(), nullptr);
    }
  }
  for (int r = 0; r < job.ranks(); ++r) {
    streams[at(r)]->wait();
    CHECK((buffers[at(r)].get() == Bytes(5000, std::byte(6 * 27))));
  }
}

TEST_CASE("a refused call does not match the other ranks' calls") {
  need_device();
  DeviceJob job(2);
  job.each([&](int r) {
    const TestStream stream(job.device(r));
    const DeviceBytes buffer(job.device(r), 64);
    Bytes host(64);
    constexpr std::array<size_t, 2> kCounts = {32, 32};
    const auto call_with_host_memory = [&](bool varying) {
      if (!varying) return tuttiBroadcast(host.data(), host.data(), 64, tuttiUint8, 1, job.comm(r), stream.get());
      return tuttiAllGatherV(buffer.data(), 32, host.data(), kCounts.data(), nullptr, tuttiUint8, job.comm(r),
                             stream.get());
    };
    for (int i = 0; i < 4; ++i) {
      if (r == 0 && call_with_host_memory(i % 2 == 1) != tuttiInvalidArgument) {
        throw std::runtime_error("memory of the host is not refused");
      }
      if (r == 1) buffer.set(Bytes(64, std::byte(i + 1)));
      check_success(tuttiBroadcast(buffer.data(), buffer.data(), 64, tuttiUint8, 1, job.comm(r), stream.get()),
                    job.comm(r));
      stream.wait();
      if (buffer.get() != Bytes(64, std::byte(i + 1))) throw std::runtime_error("another call's bytes");
    }
  });
}

TEST_CASE("a group with a call that is refused starts nothing, of no communicator") {
  need_device();
  DeviceJob one(2);
  DeviceJob other(2);
  one.each([&](int r) {
    const TestStream stream(one.device(r));
    const DeviceBytes first(one.device(r), 64);
    const DeviceBytes second(one.device(r), 64);
    first.set(Bytes(64, std::byte(1)));
    second.set(Bytes(64, std::byte(2)));
    const auto group = [&](void* buffer) {
      check_success(tuttiGroupStart(), nullptr);
      const auto add = [&](void* data, tuttiComm_t comm) {
        check_success(tuttiAllReduce(data, data, 64, tuttiUint8, tuttiSum, comm, stream.get()), comm);
      };
      add(first.data(), one.comm(r));
      add(buffer, other.comm(r));
      return tuttiGroupEnd();
    };
    Bytes host(64);
    if (r == 0 && group(host.data()) != tuttiInvalidArgument) throw std::runtime_error("not refused");
    stream.wait();
    if (first.get() != Bytes(64, std::byte(1))) throw std::runtime_error("something was started");
    check_success(group(second.data()), other.comm(r));
    stream.wait();
    if (first.get() != Bytes(64, std::byte(2)) || second.get() != Bytes(64, std::byte(4))) {
      throw std::runtime_error("another call's bytes");
    }
  });
}

TEST_CASE("a communicator that is aborted while a group waits with it stays until the group has ended") {
  need_device();
  for (int i = 0; i < 10; ++i) {
    DeviceJob job(3);
    const TestStream one(job.device(0));
    const TestStream two(job.device(1));
    const DeviceBytes a(job.device(0), Bytes(1000, std::byte(1)));
    const DeviceBytes b(job.device(1), Bytes(1000, std::byte(1)));
    std::atomic<bool> calls{false};
    std::thread group([&] {
      check_success(tuttiGroupStart(), nullptr);
      sum(job, 0, a, 1000, one.get());
      sum(job, 1, b, 1000, two.get());
      calls = true;
      (void)tuttiGroupEnd();
    });
    while (!calls) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    (void)tuttiCommAbort(std::exchange(job.comm(i % 3), nullptr));
    group.join();
    one.wait();
    two.wait();
    for (int r = 0; r < 3; ++r) {
      if (job.comm(r) != nullptr) (void)tuttiCommAbort(std::exchange(job.comm(r), nullptr));
    }
  }
  DeviceBytes::free_all();
}

TEST_CASE("an abort lets streams continue") {
  need_device();
  DeviceJob job(2);
  const TestStream stream(job.device(0));
  const DeviceBytes buffer(job.device(0), Bytes(5'000'000, std::byte(1)));
  sum(job, 0, buffer, 5'000'000, stream.get());
  sum(job, 0, buffer, 5'000'000, stream.get());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(stream.quiet());
  CHECK(tuttiCommAbort(std::exchange(job.comm(0), nullptr)) == tuttiSuccess);
  stream.wait();
  // The other rank's operations fail, and its streams continue as well.
  const TestStream other(job.device(1));
  tuttiResult_t failed = tuttiSuccess;
  for (int i = 0; i < 20'000 && failed == tuttiSuccess; ++i) {
    REQUIRE(tuttiCommGetAsyncError(job.comm(1), &failed) == tuttiSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(failed == tuttiAborted);
  CHECK(tuttiAllReduce(buffer.data(), buffer.data(), 1, tuttiUint8, tuttiSum, job.comm(1), other.get()) ==
        tuttiAborted);
  other.wait();
}

TEST_CASE("an operation that a rank does not call times out, and the stream continues") {
  need_device();
  const std::array<int, 2> devices = {0, TestDriver::get().devices - 1};
  std::array<tuttiComm_t, 2> comms{};
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.timeout_ms = 300;
  REQUIRE(tuttiCommInitAllConfig(comms.data(), 2, devices.data(), &config) == tuttiSuccess);
  const TestStream stream(0);
  const DeviceBytes buffer(0, Bytes(100, std::byte(1)));
  REQUIRE(tuttiAllReduce(buffer.data(), buffer.data(), 100, tuttiUint8, tuttiSum, comms[0], stream.get()) ==
          tuttiSuccess);
  stream.wait();
  tuttiResult_t failed = tuttiSuccess;
  REQUIRE(tuttiCommGetAsyncError(comms[0], &failed) == tuttiSuccess);
  INFO(tuttiGetLastError(comms[0]));
  CHECK(failed == tuttiTimeout);
  for (tuttiComm_t comm : comms) (void)tuttiCommAbort(comm);
}

TEST_CASE("a late stream is not a timeout") {
  need_device();
  const std::array<int, 2> devices = {0, TestDriver::get().devices - 1};
  std::array<tuttiComm_t, 2> comms{};
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.timeout_ms = 2000;
  REQUIRE(tuttiCommInitAllConfig(comms.data(), 2, devices.data(), &config) == tuttiSuccess);
  Gate gate;
  const TestStream one(devices[0]);
  const TestStream two(devices[1]);
  const DeviceBytes a(devices[0], Bytes(100, std::byte(1)));
  const DeviceBytes b(devices[1], Bytes(100, std::byte(2)));
  // Both streams: a rank that waits for the other does count.
  one.call(&Gate::hold, &gate);
  two.call(&Gate::hold, &gate);
  CHECK(tuttiAllReduce(a.data(), a.data(), 100, tuttiUint8, tuttiSum, comms[0], one.get()) == tuttiSuccess);
  CHECK(tuttiAllReduce(b.data(), b.data(), 100, tuttiUint8, tuttiSum, comms[1], two.get()) == tuttiSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(3000));
  gate.closed = false;
  one.wait();
  two.wait();
  const bool right = a.get() == Bytes(100, std::byte(3)) && b.get() == Bytes(100, std::byte(3));
  CHECK(right);
  for (tuttiComm_t comm : comms) (void)tuttiCommAbort(comm);
  DeviceBytes::free_all();
}

TEST_CASE("whichever call of the driver fails, operations end") {
  need_device();
  if (!has_stand_in(reinterpret_cast<const void*>(TestDriver::get().fail))) return;
  // A sanitizer checks how errors unwind, which is the same for neighbouring calls.
  constexpr int kStep = kAnySanitizer ? 3 : 1;
  bool all_passed = false;
  for (int n = 0; !all_passed && n < 2000; n += kStep) {
    std::array<tuttiComm_t, 2> comms{};
    const std::array<int, 2> devices = {0, TestDriver::get().devices - 1};
    REQUIRE(tuttiCommInitAll(comms.data(), 2, devices.data()) == tuttiSuccess);
    const TestStream stream(0);
    const DeviceBytes buffer(0, Bytes(14'000'000, std::byte(1)));
    // The other rank calls nothing: the abort ends the operation.
    (void)TestDriver::get().fail(n);
    const tuttiResult_t called =
        tuttiAllReduce(buffer.data(), buffer.data(), 14'000'000, tuttiUint8, tuttiSum, comms[0], stream.get());
    all_passed = TestDriver::get().fail(-1) >= 0;
    INFO("call " << n << ": " << tuttiGetLastError(comms[0]));
    // Some calls have another path.
    if (all_passed) CHECK(called == tuttiSuccess);
    if (called != tuttiSuccess) CHECK((called == tuttiUnhandledCudaError || called == tuttiInvalidArgument));
    for (tuttiComm_t comm : comms) CHECK(tuttiCommAbort(comm) == tuttiSuccess);
    stream.wait();
  }
  CHECK(all_passed);
  DeviceBytes::free_all();
}

TEST_CASE("a communicator whose device has failed can be destroyed") {
  need_device();
  if (!has_stand_in(reinterpret_cast<const void*>(TestDriver::get().make_broken))) return;
  DeviceJob job(2);
  Gate gate;
  const TestStream stream(job.device(0));
  const DeviceBytes buffer(job.device(0), Bytes(100, std::byte(1)));
  stream.call(&Gate::hold, &gate);
  sum(job, 0, buffer, 100, stream.get());
  // If a stream reaches a function while the device is broken, the function is not called, and its argument is not
  // freed.
  wait_while(gate.on_the_way);
  (void)TestDriver::get().make_broken(1);
  CHECK(tuttiCommFinalize(job.comm(0)) == tuttiUnhandledCudaError);
  const std::string text = tuttiGetLastError(job.comm(0));
  INFO(text);
  CHECK(text.find("unspecified launch failure") != std::string::npos);
  (void)TestDriver::get().make_broken(0);
  gate.closed = false;
}

TEST_CASE("communicators that are split keep the device") {
  need_device();
  DeviceJob job(4);
  job.each([&](int r) {
    tuttiComm_t part = nullptr;
    check_success(tuttiCommSplit(job.comm(r), r % 2, -r, &part, nullptr), job.comm(r));
    int device = -2;
    check_success(tuttiCommCuDevice(part, &device), part);
    if (device != job.device(r)) throw std::runtime_error("another device");
    const TestStream stream(device);
    const DeviceBytes buffer(device, Bytes(3000, std::byte(r + 1)));
    check_success(tuttiAllReduce(buffer.data(), buffer.data(), 3000, tuttiUint8, tuttiSum, part, stream.get()), part);
    stream.wait();
    if (buffer.get() != Bytes(3000, std::byte(r % 2 == 0 ? 4 : 6))) throw std::runtime_error("another sum");
    check_success(tuttiCommDestroy(part), nullptr);
  });
}

TEST_CASE("a split takes the device of the new communicator's buffers from its configuration") {
  need_device();
  DeviceJob job(2);
  job.each([&](int r) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.device = "host";
    tuttiComm_t host = nullptr;
    check_success(tuttiCommSplit(job.comm(r), 0, r, &host, &config), job.comm(r));
    int device = 0;
    int value = r + 1;
    check_success(tuttiCommCuDevice(host, &device), host);
    check_success(tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, host, nullptr), host);
    if (device != -1 || value != 3) throw std::runtime_error("not on the host");
    config.device = "cuda";
    const UseDevice use(job.device(r));
    tuttiComm_t again = nullptr;
    check_success(tuttiCommSplit(host, 0, r, &again, &config), host);
    check_success(tuttiCommCuDevice(again, &device), again);
    if (device != job.device(r)) throw std::runtime_error("not on the current device");
    check_success(tuttiCommDestroy(again), nullptr);
    if (r == 1) config.device = "host";
    tuttiComm_t mixed = nullptr;
    if (tuttiCommSplit(host, 0, r, &mixed, &config) == tuttiSuccess) throw std::runtime_error("not refused");
    check_success(tuttiCommDestroy(host), nullptr);
  });
}

TEST_CASE("impossible device arguments are refused") {
  std::array<tuttiComm_t, 2> comms{};
  const std::array<int, 2> mixed = {0, -1};
  CHECK(tuttiCommInitAll(comms.data(), 2, mixed.data()) == tuttiInvalidArgument);
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.device = "cuda:-1";
  CHECK(tuttiCommInitAllConfig(comms.data(), 2, nullptr, &config) == tuttiInvalidArgument);
  CHECK(std::string(tuttiGetLastError(nullptr)).find("config.device") != std::string::npos);
  const std::array<int, 2> none = {-2, -2};
  CHECK(tuttiCommInitAll(comms.data(), 2, none.data()) == tuttiInvalidArgument);
  const std::array<int, 2> beyond = {0, 4000};
  CHECK(tuttiCommInitAll(comms.data(), 2, beyond.data()) == tuttiUnhandledCudaError);
  const std::string text = tuttiGetLastError(nullptr);
  INFO(text);
  CHECK(text.find(TestDriver::get().devices > 0 ? "cuda:4000" : "CUDA driver") != std::string::npos);
  // Ranks that join one by one.
  if (TestDriver::get().devices == 0) return;
  tuttiUniqueId id;
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  std::array<tuttiResult_t, 2> results{};
  std::array<std::string, 2> texts;
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      tuttiConfig_t own = TUTTI_CONFIG_INITIALIZER;
      own.device = r == 0 ? "cuda:0" : "host";
      tuttiComm_t comm = nullptr;
      results[static_cast<std::size_t>(r)] = tuttiCommInitRankConfig(&comm, 2, id, r, &own);
      texts[static_cast<std::size_t>(r)] = tuttiGetLastError(nullptr);
    });
  }
  for (std::thread& t : threads) t.join();
  for (std::size_t r = 0; r < 2; ++r) {
    INFO(texts[r]);
    CHECK(results[r] == tuttiInvalidUsage);
    CHECK(texts[r].find("rank 1") != std::string::npos);
  }
}

TEST_CASE("a call with host buffers, or with a forced algorithm that does not support it, is refused") {
  need_device();
  std::array<tuttiComm_t, 2> comms{};
  const std::array<int, 2> devices = {0, 0};
  tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
  config.algorithm = "all_reduce:ring";
  REQUIRE(tuttiCommInitAllConfig(comms.data(), 2, devices.data(), &config) == tuttiSuccess);
  const TestStream stream(0);
  const DeviceBytes buffer(0, 100);
  Bytes host(100);
  CHECK(tuttiAllReduce(host.data(), buffer.data(), 100, tuttiUint8, tuttiSum, comms[0], stream.get()) ==
        tuttiInvalidArgument);
  CHECK(std::string(tuttiGetLastError(comms[0])).find("send buffer") != std::string::npos);
  CHECK(tuttiAllReduce(buffer.data(), host.data(), 100, tuttiUint8, tuttiSum, comms[0], stream.get()) ==
        tuttiInvalidArgument);
  // A ring does not keep the order of ranks.
  tuttiRedOp_t ordered{};
  const auto keep = [](const void* in, void* inout, size_t count, tuttiDataType_t, void*) {
    std::memcpy(inout, in, count);
  };
  REQUIRE(tuttiRedOpCreate(&ordered, keep, nullptr, 0, comms[0]) == tuttiSuccess);
  CHECK(tuttiAllReduce(buffer.data(), buffer.data(), 100, tuttiUint8, ordered, comms[0], stream.get()) ==
        tuttiInvalidUsage);
  stream.wait();
  tuttiResult_t failed = tuttiSuccess;
  REQUIRE(tuttiCommGetAsyncError(comms[0], &failed) == tuttiSuccess);
  CHECK(failed == tuttiSuccess);
  for (tuttiComm_t comm : comms) (void)tuttiCommAbort(comm);
  DeviceBytes::free_all();
}

TEST_CASE("destroyed communicators leave nothing behind") {
  need_device();
  if (!has_stand_in(reinterpret_cast<const void*>(TestDriver::get().live))) return;
  const auto use = [] {
    DeviceJob job(3);
    job.each([&](int r) {
      const TestStream stream(job.device(r));
      const DeviceBytes buffer(job.device(r), Bytes(100'000, std::byte(1)));
      sum(job, r, buffer, 100'000, stream.get());
      stream.wait();
    });
  };
  use();
  const int before = TestDriver::get().live();
  for (int i = 0; i < 5; ++i) use();
  CHECK(TestDriver::get().live() == before);
}
