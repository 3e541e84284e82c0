// Shared memory, between threads and as between processes: conformance, and how memory that was lent or
// offered is taken back.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "catch_compat.h"
#include "conformance.h"
#include "memory/region.h"
#include "shm_pairs.h"
#include "sim/faulty.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;
using conformance::processes_pair;
using conformance::threads_pair;
using memory::RegionRegistry;

namespace {

constexpr std::size_t kBytes = 128 * 1024;

// Memory that can be lent either way, and offered.
class Lendable {
 public:
  Lendable() : address_(static_cast<std::byte*>(RegionRegistry::instance().allocate(kBytes).value())) {}
  Lendable(const Lendable&) = delete;
  Lendable& operator=(const Lendable&) = delete;
  ~Lendable() { free(); }
  void free() {
    if (address_ != nullptr) REQUIRE(RegionRegistry::instance().free(address_).is_ok());
    address_ = nullptr;
  }
  [[nodiscard]] Source source() const {
    const auto place = RegionRegistry::instance().find(address_, kBytes);
    return {address_, kBytes, place.region, place.offset};
  }

 private:
  std::byte* address_;
};

// How often memory of tuttiMemAlloc is mapped into this process.
int mapped_regions() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tutti-memory") != std::string::npos) ++found;
  }
  return found;
}

const Fingerprint kFingerprint{1, 2, 3};

void lend(conformance::Pair& pair, const Lendable& memory) {
  REQUIRE(pair.a->send().push(kFingerprint, memory.source(), 0, kBytes) == kBytes);
}

void check_taking_back(conformance::Pair pair) {
  const Lendable memory;
  lend(pair, memory);
  // The peer does not touch what it has not looked at.
  pair.a->revoke();
  CHECK(pair.a->revoked());
  CHECK(pair.b->recv().peek(kBytes).size == 0);
  CHECK(pair.a->revoked());
  CHECK(pair.b->recv().status().is_ok());
}

void check_taking_back_while_read(conformance::Pair pair) {
  const Lendable memory;
  lend(pair, memory);
  const std::size_t size = pair.b->recv().peek(kBytes).size;
  REQUIRE(size > 0);
  SECTION("what has been read in time is good") {
    REQUIRE(pair.b->recv().consume(size));
    pair.a->revoke();
    CHECK(pair.a->revoked());
    return;
  }
  SECTION("between two pieces") {
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

void check_taking_back_an_offer(conformance::Pair pair) {
  const Lendable memory;
  pair.a->recv().offer(0, memory.source(), 0, kBytes);
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

// Reads what a has lent and writes where a has offered, at the same time.
void check_both_at_once(conformance::Pair pair) {
  const Lendable lent;
  const Lendable offered;
  lend(pair, lent);
  pair.a->recv().offer(0, offered.source(), 0, kBytes);
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

// Whether a rank that fails while its peer reads what it has lent waits for that however long it takes.
void check_patience(conformance::Pair pair, bool for_ever) {
  const Lendable memory;
  lend(pair, memory);
  REQUIRE(pair.b->recv().peek(kBytes).size > 0);
  pair.a->revoke();
  const Deadline deadline = Deadline::after_ms(for_ever ? 3000 : 60'000);
  while (!pair.a->revoked() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(pair.a->revoked() == !for_ever);
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

TEST_CASE("a loan is taken back") {
  check_taking_back(threads_pair());
  check_taking_back(processes_pair());
}
TEST_CASE("a loan that is being read is taken back between threads") {
  check_taking_back_while_read(threads_pair());
}
TEST_CASE("a loan that is being read is taken back between processes") {
  check_taking_back_while_read(processes_pair());
}
TEST_CASE("an offer is taken back between threads") {
  check_taking_back_an_offer(threads_pair());
}
TEST_CASE("an offer is taken back between processes") {
  check_taking_back_an_offer(processes_pair());
}
TEST_CASE("a decorator forwards what lends, offers and takes back") {
  const auto decorated = [] {
    conformance::Pair pair = GENERATE(true, false) ? threads_pair() : processes_pair();
    pair.a = sim::make_faulty(std::move(pair.a), 1, {}, {});
    pair.b = sim::make_faulty(std::move(pair.b), 0, {}, {});
    return pair;
  };
  SECTION("loans") {
    check_taking_back_while_read(decorated());
  }
  SECTION("offers") {
    check_taking_back_an_offer(decorated());
  }
  SECTION("both") {
    check_both_at_once(decorated());
  }
  SECTION("bytes in their place") {
    const conformance::Pair pair = decorated();
    const Lendable memory;
    pair.a->recv().offer(0, memory.source(), 0, kBytes);
    const std::span<std::byte> room = pair.b->send().reserve_remote(kBytes);
    REQUIRE(room.size() == kBytes);
    pair.b->send().commit(kFingerprint, kBytes);
    const RecvLane::View view = pair.a->recv().peek(kBytes);
    CHECK(view.data == memory.source().base);
    REQUIRE(pair.a->recv().consume(view.size));
    CHECK(pair.a->recv().consumed() == kBytes);
    CHECK(pair.b->send().taken() == kBytes);
    CHECK(pair.b->flushed());
  }
}
TEST_CASE("a loan and an offer are taken back together") {
  check_both_at_once(threads_pair());
}
TEST_CASE("a loan and an offer are taken back together between processes") {
  check_both_at_once(processes_pair());
}
TEST_CASE("who fails waits for a thread as long as it takes, and for a process a second") {
  check_patience(threads_pair(), true);
  check_patience(processes_pair(), false);
}

TEST_CASE("whoever has ended no longer touches what was lent") {
  conformance::Pair pair = processes_pair();
  const Lendable memory;
  lend(pair, memory);
  REQUIRE(pair.b->recv().peek(kBytes).size > 0);
  pair.a->revoke();
  REQUIRE_FALSE(pair.a->revoked());
  pair.b.reset();
  CHECK(pair.a->revoked());
}

TEST_CASE("a reader whose peer has taken its memory back hears of it in the end") {
  conformance::Pair pair = threads_pair();
  const Lendable memory;
  lend(pair, memory);
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
    const Lendable memory;
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

TEST_CASE("memory that was offered and never used is let go of") {
  conformance::Pair pair = processes_pair();
  const int before = mapped_regions();
  Lendable memory;
  pair.a->recv().offer(0, memory.source(), 0, kBytes);
  // Nobody resolves the offer; the next operation hears of the region all the same.
  pair.b->begin_operation();
  CHECK(mapped_regions() == before + 2);
  memory.free();
  pair.a->begin_operation();
  pair.b->begin_operation();
  CHECK(mapped_regions() == before);
}
