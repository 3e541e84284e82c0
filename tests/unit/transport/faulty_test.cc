// The decorator that injects faults: no effect without faults, exact effects with them.
#include "sim/faulty.h"

#include <vector>

#include "catch_compat.h"
#include "conformance.h"
#include "shm_pairs.h"
#include "sim/network.h"
#include "stream_check.h"
#include "tcp_pairs.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;
using sim::Faults;
using sim::Slots;

namespace {

// Faults on a's lanes only.
conformance::Pair make_pair(std::uint64_t seed, const sim::Options& options, const Faults& send, const Faults& recv) {
  auto network = std::make_shared<sim::Network>(seed, 2, options);
  conformance::Pair pair;
  pair.a = sim::make_faulty(network->link(0, 1), 1, send, recv);
  pair.b = network->link(1, 0);
  pair.owner = network;
  return pair;
}

const sim::Options kPlain{.slots = Slots::kNever, .benign = true};
const std::vector<std::byte> kBytes(1000, std::byte{3});
const Source kSource{kBytes.data(), kBytes.size(), 0, 0};
const Fingerprint kFingerprint{5, 6, 7};

}  // namespace

TEST_CASE("without faults the decorator is a transport") {
  conformance::check({"faulty", [](std::uint64_t seed) { return make_pair(seed, {}, {}, {}); }, true});
}

TEST_CASE("without faults the decorator is a transport over shared memory and sockets") {
  const auto decorate = [](conformance::Pair pair) {
    pair.a = sim::make_faulty(std::move(pair.a), 1, {}, {});
    pair.b = sim::make_faulty(std::move(pair.b), 0, {}, {});
    return pair;
  };
  SECTION("threads") {
    conformance::check(
        {"faulty/shm/threads", [=](std::uint64_t) { return decorate(conformance::threads_pair()); }, false});
  }
  SECTION("processes") {
    conformance::check(
        {"faulty/shm/processes", [=](std::uint64_t) { return decorate(conformance::processes_pair()); }, true});
  }
  SECTION("tcp") {
    conformance::check({"faulty/tcp", [=](std::uint64_t) { return decorate(conformance::tcp_pair()); }, true});
  }
}

// Otherwise its user would bypass the verbs.
TEST_CASE("the decorator shows no lines of memory") {
  const conformance::Pair plain = conformance::threads_pair();
  conformance::Pair pair = conformance::threads_pair();
  pair.a = sim::make_faulty(std::move(pair.a), 1, {}, {});
  CHECK((plain.a->send().has_lines() && plain.a->recv().has_lines()));
  CHECK_FALSE((pair.a->send().has_lines() || pair.a->recv().has_lines()));
}

TEST_CASE("short pieces only slow a transport down") {
  const Faults shorter{.longest_piece_bytes = 64};
  conformance::check({"shorter",
                      [=](std::uint64_t seed) { return make_pair(seed, {.slots = Slots::kAlways}, shorter, shorter); },
                      true, shorter.longest_piece_bytes});
}

TEST_CASE("a cut comes after the byte it was set to") {
  SECTION("sending") {
    const auto pair = make_pair(1, kPlain, {.cut_after_bytes = 100}, {});
    CHECK(pair.a->send().push(kFingerprint, kSource, 0, 60) == 60);
    CHECK(pair.a->send().status().is_ok());
    CHECK(pair.a->send().push(kFingerprint, kSource, 60, 900) == 40);
    CHECK(pair.a->send().taken() == 100);
    CHECK(pair.a->send().push(kFingerprint, kSource, 100, 900) == 0);
    CHECK(pair.a->send().status().code() == Code::kRemoteError);
    CHECK(pair.a->send().status().message().find("rank 1") != std::string::npos);
    CHECK(pair.a->recv().status().is_ok());
  }
  SECTION("receiving") {
    const auto pair = make_pair(1, kPlain, {}, {.cut_after_bytes = 100});
    REQUIRE(pair.b->send().push(kFingerprint, kSource, 0, 1000) == 1000);
    CHECK(pair.a->recv().peek(1000).size == 100);
    CHECK(pair.a->recv().status().is_ok());
    REQUIRE(pair.a->recv().consume(100));
    CHECK(pair.a->recv().peek(1000).size == 0);
    CHECK(pair.a->recv().status().code() == Code::kRemoteError);
  }
}

TEST_CASE("a stall moves nothing and says nothing") {
  const auto pair = make_pair(1, kPlain, {.stall_after_bytes = 10}, {.stall_after_bytes = 0});
  REQUIRE(pair.b->send().push(kFingerprint, kSource, 0, 8) == 8);
  CHECK(pair.a->recv().peek(8).size == 0);
  std::vector<std::byte> target(8);
  Fingerprint fingerprint;
  CHECK(pair.a->recv().pull(target.data(), 8, &fingerprint) == 0);
  CHECK(pair.a->send().push(kFingerprint, kSource, 0, 1000) == 10);
  CHECK(pair.a->send().push(kFingerprint, kSource, 10, 990) == 0);
  CHECK(pair.a->send().status().is_ok());
  CHECK(pair.a->recv().status().is_ok());
}

TEST_CASE("a corrupted fingerprint differs from its byte on") {
  SECTION("sending") {
    const auto pair = make_pair(1, kPlain, {.corrupt_after_bytes = 16}, {});
    CHECK(pair.a->send().push(kFingerprint, kSource, 0, 1000) == 16);
    CHECK(pair.a->send().push(kFingerprint, kSource, 16, 984) == 984);
    CHECK(pair.b->recv().peek(16).fingerprint == kFingerprint);
    REQUIRE(pair.b->recv().consume(16));
    CHECK(pair.b->recv().peek(16).fingerprint != kFingerprint);
  }
  SECTION("receiving") {
    const auto pair = make_pair(1, kPlain, {}, {.corrupt_after_bytes = 16});
    REQUIRE(pair.b->send().push(kFingerprint, kSource, 0, 1000) == 1000);
    std::vector<std::byte> target(1000);
    Fingerprint fingerprint;
    CHECK(pair.a->recv().pull(target.data(), 1000, &fingerprint) == 16);
    CHECK(fingerprint == kFingerprint);
    CHECK(pair.a->recv().pull(target.data(), 1000, &fingerprint) == 984);
    CHECK(fingerprint != kFingerprint);
  }
}
