// The simulated network: conformance under many seeds and settings, and its own guarantees.
#include <vector>

#include "catch_compat.h"
#include "conformance.h"
#include "sim/network.h"
#include "stream_check.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;
using sim::Network;
using sim::Slots;

namespace {

conformance::Pair make_pair(std::uint64_t seed, const sim::Options& options) {
  auto network = std::make_shared<Network>(seed, 2, options);
  conformance::Pair pair;
  pair.a = network->link(0, 1);
  pair.b = network->link(1, 0);
  pair.owner = network;
  return pair;
}

void check_with(const std::string& name, const sim::Options& options) {
  conformance::check({name, [=](std::uint64_t seed) { return make_pair(seed, options); }, true});
}

// The sizes in which the lane takes its first bytes, 0 for a refusal, when all of it is pushed.
std::vector<std::size_t> cuts(std::uint64_t seed, int from, int to) {
  sim::Options options;
  options.capacity_bytes = 1 << 30;
  Network network(seed, 4, options);
  const auto link = network.link(from, to);
  const std::vector<std::byte> bytes(1 << 20);
  std::vector<std::size_t> sizes;
  for (std::size_t done = 0; done < bytes.size();) {
    const Source source{bytes.data(), bytes.size(), 0, 0};
    sizes.push_back(link->send().push({}, source, done, bytes.size() - done));
    done += sizes.back();
  }
  return sizes;
}

}  // namespace

TEST_CASE("sim is a transport: slots by lane") {
  check_with("sim/by lane", {});
}
TEST_CASE("sim is a transport: slots") {
  check_with("sim/slots", {.slots = Slots::kAlways});
}
TEST_CASE("sim is a transport: zero copy") {
  check_with("sim/zero copy", {.slots = Slots::kNever, .maps_source = true});
  check_with("sim/zero copy and slots", {.slots = Slots::kAlways, .maps_source = true});
}
TEST_CASE("sim is a transport: benign, small capacity") {
  // The smallest: a lane holds what a view must show.
  check_with("sim/benign", {.capacity_bytes = kLeastViewBytes, .slots = Slots::kNever, .benign = true});
}

TEST_CASE("the adversary follows from seed and lane") {
  CHECK(cuts(1, 0, 1) == cuts(1, 0, 1));
  CHECK(cuts(1, 0, 1) != cuts(2, 0, 1));
  CHECK(cuts(1, 0, 1) != cuts(1, 1, 0));
  CHECK(cuts(1, 0, 1) != cuts(1, 0, 2));
}

TEST_CASE("a benign network takes all at once") {
  const auto pair = make_pair(1, {.slots = Slots::kNever, .benign = true});
  const std::vector<std::byte> bytes(5000);
  CHECK(pair.a->send().push({}, {bytes.data(), bytes.size(), 0, 0}, 0, bytes.size()) == bytes.size());
  CHECK(pair.b->recv().peek(bytes.size()).size == bytes.size());
}

TEST_CASE("zero-copy memory is released when the peer has consumed it") {
  const auto pair = make_pair(1, {.slots = Slots::kNever, .maps_source = true, .benign = true});
  const std::vector<std::byte> bytes(100);
  REQUIRE(pair.a->send().push({}, {bytes.data(), bytes.size(), 0, 0}, 0, bytes.size()) == bytes.size());
  CHECK(pair.b->recv().peek(100).data == bytes.data());
  CHECK(pair.a->send().completed() == 0);
  REQUIRE(pair.b->recv().consume(40));
  CHECK(pair.a->send().completed() == 40);
  REQUIRE(pair.b->recv().consume(60));
  CHECK(pair.a->send().completed() == 100);
}

TEST_CASE("links between the same ranks pair up in order") {
  Network network(1, 2, {.slots = Slots::kNever, .benign = true});
  const auto a1 = network.link(0, 1);
  const auto a2 = network.link(0, 1);
  const auto b1 = network.link(1, 0);
  const auto b2 = network.link(1, 0);
  const std::vector<std::byte> bytes(8);
  a2->send().push({}, {bytes.data(), 8, 0, 0}, 0, 8);
  CHECK(b1->recv().peek(8).size == 0);
  CHECK(b2->recv().peek(8).size == 8);
}

TEST_CASE("a killed rank is named on each of its links") {
  Network network(1, 3, {.slots = Slots::kNever, .benign = true});
  const auto zero_one = network.link(0, 1);
  const auto one_zero = network.link(1, 0);
  const auto zero_two = network.link(0, 2);
  const auto two_zero = network.link(2, 0);
  const std::vector<std::byte> bytes(8);
  const Source source{bytes.data(), 8, 0, 0};
  zero_one->send().push({}, source, 0, 8);
  network.kill(1);
  for (Link* link : {zero_one.get(), one_zero.get()}) {
    for (const Status& status : {link->send().status(), link->recv().status()}) {
      CHECK(status.code() == Code::kRemoteError);
      CHECK(status.message().find("rank 1") != std::string::npos);
    }
    CHECK(link->send().push({}, source, 0, 8) == 0);
    CHECK(link->recv().peek(8).size == 0);
    CHECK_FALSE(link->arm());
  }
  CHECK(zero_two->send().status().is_ok());
  CHECK(zero_two->send().push({}, source, 0, 8) == 8);
  CHECK(two_zero->recv().peek(8).size == 8);
}

TEST_CASE("a stalled rank is silent until it resumes") {
  Network network(1, 2, {.slots = Slots::kNever, .benign = true});
  const auto a = network.link(0, 1);
  const auto b = network.link(1, 0);
  const std::vector<std::byte> bytes(8);
  const Source source{bytes.data(), 8, 0, 0};
  CHECK(a->send().push({}, source, 0, 8) == 8);
  network.stall(1);
  CHECK(a->send().push({}, source, 0, 8) == 0);
  CHECK(b->recv().peek(8).size == 0);
  CHECK(a->send().status().is_ok());
  CHECK(b->recv().status().is_ok());
  network.resume(1);
  CHECK(b->recv().peek(8).size == 8);
  CHECK(a->send().push({}, source, 0, 8) == 8);
}
