// Shared memory, between threads and like between processes: conformance, and the revocation of memory that was sent by
// zero copy or advertised.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "conformance.h"
#include "memory/region.h"
#include "os/clock.h"
#include "shm_pairs.h"
#include "sim/faulty.h"
#include "transport/shm/distance.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;
using conformance::processes_pair;
using conformance::threads_pair;
using memory::RegionRegistry;

namespace {

constexpr std::size_t kBytes = 128 * 1024;

// Memory that threads and processes can send by zero copy, and advertise.
class RegionMemory {
 public:
  RegionMemory() : address_(static_cast<std::byte*>(RegionRegistry::instance().allocate(kBytes).value())) {}
  RegionMemory(const RegionMemory&) = delete;
  RegionMemory& operator=(const RegionMemory&) = delete;
  ~RegionMemory() { free(); }
  void free() {
    if (address_ != nullptr) REQUIRE(RegionRegistry::instance().free(address_).is_ok());
    address_ = nullptr;
  }
  [[nodiscard]] Source source() const {
    const auto location = RegionRegistry::instance().find(address_, kBytes);
    return {address_, kBytes, location.region, location.offset};
  }

 private:
  std::byte* address_;
};

// How often tuttiMemAlloc memory is mapped into this process.
int mapped_regions() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tutti-memory") != std::string::npos) ++found;
  }
  return found;
}

const Fingerprint kFingerprint{1, 2, 3};

void send_zcopy(conformance::Pair& pair, const RegionMemory& memory) {
  REQUIRE(pair.a->send().push(kFingerprint, memory.source(), 0, kBytes) == kBytes);
}

void check_revoking(conformance::Pair pair) {
  const RegionMemory memory;
  send_zcopy(pair, memory);
  // The peer does not touch memory before it looks at it.
  pair.a->revoke();
  CHECK(pair.a->revoked());
  CHECK(pair.b->recv().peek(kBytes).size == 0);
  CHECK(pair.a->revoked());
  CHECK(pair.b->recv().status().is_ok());
}

void check_revoking_while_read(conformance::Pair pair) {
  const RegionMemory memory;
  send_zcopy(pair, memory);
  const std::size_t size = pair.b->recv().peek(kBytes).size;
  REQUIRE(size > 0);
  SECTION("what has been read in time is good") {
    REQUIRE(pair.b->recv().consume(size));
    pair.a->revoke();
    CHECK(pair.a->revoked());
    return;
  }
  SECTION("within a message") {
    REQUIRE(pair.b->recv().consume(100));
    pair.a->revoke();
    CHECK(pair.a->revoked());
    CHECK(pair.b->recv().peek(kBytes).size == 0);
    return;
  }
  pair.a->revoke();
  CHECK_FALSE(pair.a->revoked());
  SECTION("what has been read is void") {
    CHECK_FALSE(pair.b->recv().consume(size));
    CHECK(pair.a->revoked());
    CHECK(pair.b->recv().consumed() == 0);
    CHECK(pair.b->recv().peek(kBytes).size == 0);
  }
  SECTION("the reader looks again") {
    CHECK(pair.b->recv().peek(kBytes).size == 0);
    CHECK(pair.a->revoked());
  }
  SECTION("the reader goes to sleep") {
    (void)pair.b->arm();
    CHECK(pair.a->revoked());
    pair.b->disarm();
    CHECK(pair.b->recv().peek(kBytes).size == 0);
  }
  SECTION("the reader fails as well") {
    pair.b->revoke();
    CHECK(pair.a->revoked());
    CHECK(pair.b->revoked());
  }
  SECTION("the reader's link ends") {
    pair.b.reset();
    CHECK(pair.a->revoked());
  }
  SECTION("what was in a slot can still be had from the one that did not revoke") {
    const std::vector<std::byte> plain(100);
    REQUIRE(pair.b->send().push(kFingerprint, {plain.data(), plain.size(), 0, 0}, 0, plain.size()) == plain.size());
    CHECK(pair.a->recv().peek(100).size == plain.size());
  }
}

void check_revoking_an_advertisement(conformance::Pair pair) {
  const RegionMemory memory;
  pair.a->recv().advertise(0, memory.source(), 0, kBytes);
  REQUIRE_FALSE(pair.b->send().reserve_remote(kBytes).empty());
  pair.a->revoke();
  CHECK_FALSE(pair.a->revoked());
  SECTION("the writer has written") {
    pair.b->send().commit(kFingerprint, kBytes);
  }
  SECTION("the writer looks again") {
    CHECK(pair.b->send().reserve_remote(kBytes).empty());
  }
  SECTION("the writer goes to sleep") {
    (void)pair.b->arm();
  }
  CHECK(pair.a->revoked());
  CHECK(pair.b->send().reserve_remote(kBytes).empty());
}

// Reads a's zero-copy data and writes to a's advertised buffer, at the same time.
void check_both_at_once(conformance::Pair pair) {
  const RegionMemory read;
  const RegionMemory advertised;
  send_zcopy(pair, read);
  pair.a->recv().advertise(0, advertised.source(), 0, kBytes);
  const std::size_t size = pair.b->recv().peek(kBytes).size;
  REQUIRE(size > 0);
  REQUIRE_FALSE(pair.b->send().reserve_remote(kBytes).empty());
  SECTION("one of the two being over is not enough") {
    REQUIRE(pair.b->recv().consume(size));
    pair.a->revoke();
    CHECK_FALSE(pair.a->revoked());
    pair.b->send().commit(kFingerprint, kBytes);
    CHECK(pair.a->revoked());
  }
  SECTION("nor is the other") {
    pair.b->send().commit(kFingerprint, kBytes);
    pair.a->revoke();
    CHECK_FALSE(pair.a->revoked());
    CHECK_FALSE(pair.b->recv().consume(size));
    CHECK(pair.a->revoked());
  }
}

// Like a step that combines the data it reads into the peer's memory: it reserves that memory while it has a view.
void check_revoking_between_peek_and_reserve(conformance::Pair pair) {
  const RegionMemory read;
  const RegionMemory advertised;
  send_zcopy(pair, read);
  pair.a->recv().advertise(0, advertised.source(), 0, kBytes);
  const std::size_t size = pair.b->recv().peek(kBytes).size;
  REQUIRE(size > 0);
  pair.a->revoke();
  CHECK(pair.b->send().reserve_remote(kBytes).empty());
  CHECK_FALSE(pair.a->revoked());
  SECTION("the view is used up") {
    CHECK_FALSE(pair.b->recv().consume(size));
  }
  SECTION("the reader looks again") {
    CHECK(pair.b->recv().peek(kBytes).size == 0);
  }
  CHECK(pair.a->revoked());
}

// In the reverse order.
void check_revoking_between_reserve_and_peek(conformance::Pair pair) {
  const RegionMemory read;
  const RegionMemory advertised;
  send_zcopy(pair, read);
  pair.a->recv().advertise(0, advertised.source(), 0, kBytes);
  REQUIRE_FALSE(pair.b->send().reserve_remote(kBytes).empty());
  pair.a->revoke();
  CHECK(pair.b->recv().peek(kBytes).size == 0);
  CHECK_FALSE(pair.a->revoked());
  pair.b->send().commit(kFingerprint, kBytes);
  CHECK(pair.a->revoked());
}

// Whether a rank that fails while its peer reads its memory waits until the peer has done so.
void check_revoke_timeout(conformance::Pair pair, bool waits_on) {
  const RegionMemory memory;
  send_zcopy(pair, memory);
  REQUIRE(pair.b->recv().peek(kBytes).size > 0);
  pair.a->revoke();
  const Deadline deadline = Deadline::after_ms(waits_on ? 3000 : 60'000);
  while (!pair.a->revoked() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(pair.a->revoked() == !waits_on);
  CHECK_FALSE(pair.b->recv().consume(kBytes));
  CHECK(pair.a->revoked());
}

}  // namespace

TEST_CASE("shared memory is a transport: threads") {
  conformance::check({"shm/threads", [](std::uint64_t) { return threads_pair(); }, false});
}
TEST_CASE("shared memory is a transport: processes") {
  conformance::check({"shm/processes", [](std::uint64_t) { return processes_pair(); }, true});
}
TEST_CASE("shared memory is a transport: oversubscribed threads") {
  conformance::check({"shm/threads/turns", [](std::uint64_t) { return threads_pair(false); }, false});
}
TEST_CASE("shared memory is a transport: oversubscribed processes") {
  conformance::check({"shm/processes/turns", [](std::uint64_t) { return processes_pair(false); }, true});
}

TEST_CASE("shared memory is a transport: processors that are far") {
  conformance::check({"shm/threads/far", [](std::uint64_t) { return threads_pair(true, true); }, false});
  conformance::check({"shm/processes/far", [](std::uint64_t) { return processes_pair(true, true); }, true});
}
TEST_CASE("the load time of a processor's lines determines whether it is far") {
  shm::Distance distance(false);
  const auto note = [&](int times, std::int64_t ns) {
    for (int i = 0; i < times; ++i) distance.note(ns);
    return distance.far();
  };
  CHECK_FALSE(note(7, 140));
  CHECK_FALSE(note(20, 100'000));  // a time slice of another thread is not evidence
  CHECK_FALSE(note(20, 97));       // nor is a value between the two
  CHECK(note(1, 140));
  CHECK(note(15, 45));  // ranks that have moved together need as many measurements
  CHECK_FALSE(note(1, 45));
  CHECK_FALSE(note(50, 45));
  CHECK(note(16, 140));
  for (int i = 0; i < 1000; ++i) {
    CHECK(note(3, 45));  // mixed measurements do not reverse a decision
    CHECK(note(3, 140));
  }
  CHECK(shm::Distance(true).far());
}
TEST_CASE("the load time of a line counts if the peer has written it since") {
  shm::Distance distance(true);
  std::atomic<std::uint32_t> word{7};
  for (int i = 0; i < 100; ++i) CHECK(distance.load(word, 7) == 7);  // from this processor's own cache
  CHECK(distance.far());
  for (int i = 0; i < 100; ++i) CHECK(distance.load(word, 6) == 7);
  CHECK_FALSE(distance.far());
}

TEST_CASE("a zero-copy send is revoked") {
  check_revoking(threads_pair());
  check_revoking(processes_pair());
}
TEST_CASE("a zero-copy send that is being read is revoked between threads") {
  check_revoking_while_read(threads_pair());
}
TEST_CASE("a zero-copy send that is being read is revoked between processes") {
  check_revoking_while_read(processes_pair());
}
TEST_CASE("an advertisement is revoked between threads") {
  check_revoking_an_advertisement(threads_pair());
}
TEST_CASE("an advertisement is revoked between processes") {
  check_revoking_an_advertisement(processes_pair());
}
TEST_CASE("a decorator forwards zero copy, advertisements and revocation") {
  const auto decorated = [] {
    conformance::Pair pair = GENERATE(true, false) ? threads_pair() : processes_pair();
    pair.a = sim::make_faulty(std::move(pair.a), 1, {}, {});
    pair.b = sim::make_faulty(std::move(pair.b), 0, {}, {});
    return pair;
  };
  SECTION("zero copy") {
    check_revoking_while_read(decorated());
  }
  SECTION("advertisements") {
    check_revoking_an_advertisement(decorated());
  }
  SECTION("both") {
    check_both_at_once(decorated());
  }
  SECTION("put") {
    const conformance::Pair pair = decorated();
    const RegionMemory memory;
    pair.a->recv().advertise(0, memory.source(), 0, kBytes);
    const std::span<std::byte> reserved = pair.b->send().reserve_remote(kBytes);
    REQUIRE(reserved.size() == kBytes);
    pair.b->send().commit(kFingerprint, kBytes);
    const RecvLane::View view = pair.a->recv().peek(kBytes);
    CHECK(view.data == memory.source().base);
    REQUIRE(pair.a->recv().consume(view.size));
    CHECK(pair.a->recv().consumed() == kBytes);
    CHECK(pair.b->send().taken() == kBytes);
    CHECK(pair.b->flushed());
  }
}
TEST_CASE("a zero-copy send and an advertisement are revoked together") {
  check_both_at_once(threads_pair());
}
TEST_CASE("a zero-copy send and an advertisement are revoked together between processes") {
  check_both_at_once(processes_pair());
}
TEST_CASE("a view outlasts a reservation that is refused") {
  check_revoking_between_peek_and_reserve(threads_pair());
}
TEST_CASE("a view outlasts a reservation that is refused between processes") {
  check_revoking_between_peek_and_reserve(processes_pair());
}
TEST_CASE("a reservation outlasts a view that is refused") {
  check_revoking_between_reserve_and_peek(threads_pair());
}
TEST_CASE("revoke: a rank waits for a thread that reads its memory without limit, and for a process one second") {
  check_revoke_timeout(threads_pair(), true);
  check_revoke_timeout(processes_pair(), false);
}

TEST_CASE("an ended side no longer touches memory of the peer") {
  conformance::Pair pair = processes_pair();
  const RegionMemory memory;
  send_zcopy(pair, memory);
  REQUIRE(pair.b->recv().peek(kBytes).size > 0);
  pair.a->revoke();
  REQUIRE_FALSE(pair.a->revoked());
  pair.b.reset();
  CHECK(pair.a->revoked());
}

TEST_CASE("a reader whose peer has revoked its memory notices in the end") {
  conformance::Pair pair = threads_pair();
  const RegionMemory memory;
  send_zcopy(pair, memory);
  pair.a->revoke();
  REQUIRE(pair.b->recv().peek(kBytes).size == 0);
  CHECK(pair.b->recv().status().is_ok());
  const Deadline deadline = Deadline::after_ms(60'000);
  while (pair.b->recv().status().is_ok() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  CHECK(pair.b->recv().status().code() == Code::kRemoteError);
}

#ifdef TUTTI_DEBUG_CHECKS
TEST_CASE("using a view that is over ends a debug build") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    conformance::Pair pair = threads_pair();
    const RegionMemory memory;
    const std::size_t size = pair.a->send().push(kFingerprint, memory.source(), 0, kBytes);
    if (pair.b->recv().peek(kBytes).size != size) std::_Exit(1);
    (void)pair.b->arm();
    std::_Exit(pair.b->recv().consume(size) ? 2 : 3);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
}
#endif

TEST_CASE("memory that was advertised and never used is unmapped") {
  conformance::Pair pair = processes_pair();
  const int before = mapped_regions();
  RegionMemory memory;
  pair.a->recv().advertise(0, memory.source(), 0, kBytes);
  // The advertisement is not resolved; the next operation still processes the news about the region.
  pair.b->begin_operation({});
  CHECK(mapped_regions() == before + 2);
  memory.free();
  pair.a->begin_operation({});
  pair.b->begin_operation({});
  CHECK(mapped_regions() == before);
}

TEST_CASE("an operation that overwrites sent input sends copies, between ranks with their own processors") {
  const bool own_processor = GENERATE(true, false);
  const bool processes = GENERATE(true, false);
  CAPTURE(own_processor, processes);
  conformance::Pair pair = processes ? processes_pair(own_processor) : threads_pair(own_processor);
  RegionMemory memory;
  SendLane& lane = pair.a->send();
  RecvLane& peer = pair.b->recv();
  // Sends all of the memory; whether the peer may read any of it.
  const auto leaves_any = [&](MemoryUse use) {
    pair.a->begin_operation(use);
    bool left = false;
    for (std::size_t done = 0; done < kBytes;) {
      const std::size_t n = lane.push(kFingerprint, memory.source(), done, kBytes - done);
      REQUIRE(n > 0);
      left |= lane.completed() != lane.taken();
      for (std::size_t consumed = 0; consumed < n;) {
        const std::size_t size = peer.peek(n).size;
        REQUIRE(peer.consume(size));
        consumed += size;
      }
      done += n;
    }
    CHECK(lane.traits().least_zcopy_bytes <= std::min(lane.traits().zcopy_bytes, lane.traits().zcopy_any_bytes));
    return left;
  };
  CHECK(leaves_any({}));
  CHECK(leaves_any({.rewrites_input = true}) == !own_processor);
  CHECK(leaves_any({}));
}
