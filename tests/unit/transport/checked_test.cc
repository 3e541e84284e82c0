// Links with checksums: transports like any other, which notice each changed bit; and the checksum itself.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "conformance.h"
#include "os/clock.h"
#include "sanitizers.h"
#include "shm_pairs.h"
#include "sim/faulty.h"
#include "sim/network.h"
#include "tcp_pairs.h"
#include "transport/checked/crc32c.h"
#include "transport/checked/frame.h"
#include "transport/checked/link.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;
using checked::crc32c;
using sim::Faults;

namespace {

conformance::Pair sim_pair(std::uint64_t seed) {
  auto network = std::make_shared<sim::Network>(seed, 2, sim::Options{});
  return {network, network->link(0, 1), network->link(1, 0), -1};
}

// Ranks that read each other's memory.
conformance::Pair reading_pair() {
  conformance::Pair pair = conformance::processes_pair();
  for (int i = 0; i < 2; ++i) {
    pair.a->begin_operation({.reading = Reading::kAlways, .only_moves = true});
    pair.b->begin_operation({.reading = Reading::kAlways, .only_moves = true});
  }
  return pair;
}

conformance::Pair with_checksums(conformance::Pair pair, const Faults& received = {}) {
  pair.a = checked::make_checked(std::move(pair.a), 1);
  pair.b = checked::make_checked(sim::make_faulty(std::move(pair.b), 0, {}, received), 0);
  return pair;
}

struct Sample {
  std::string name;
  conformance::Pair (*make)(std::uint64_t seed);
};
const std::array<Sample, 5> kTransports{{
    {"sim", sim_pair},
    {"shm/threads", [](std::uint64_t) { return conformance::threads_pair(); }},
    {"shm/processes", [](std::uint64_t) { return conformance::processes_pair(); }},
    {"shm/reading", [](std::uint64_t) { return reading_pair(); }},
    {"tcp", [](std::uint64_t) { return conformance::tcp_pair(); }},
}};

std::vector<std::byte> random_bytes(std::uint64_t seed, std::size_t n) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Sends the bytes from a to b as one message. The error that stops b, or success with all bytes.
Status transfer(const conformance::Pair& pair, const std::vector<std::byte>& bytes, bool pulls,
                std::vector<std::byte>* received) {
  const Fingerprint fingerprint{1, 2, 3, 4, 5};
  received->assign(bytes.size(), {});
  const Source source{bytes.data(), bytes.size(), 0, 0};
  std::size_t sent = 0;
  std::size_t got = 0;
  RecvLane& in = pair.b->recv();
  for (const Deadline deadline = Deadline::after_ms(60'000); got < bytes.size();) {
    REQUIRE_FALSE(deadline.passed());
    if (sent < bytes.size()) sent += pair.a->send().push(fingerprint, source, sent, bytes.size() - sent);
    pair.a->send().progress();
    Fingerprint theirs = fingerprint;
    if (pulls) got += in.pull(received->data() + got, bytes.size() - got, &theirs);
    const RecvLane::View view = in.peek(bytes.size() - got);
    if (view.size != 0) {
      std::memcpy(received->data() + got, view.data, view.size);
      if (in.consume(view.size)) got += view.size;
    }
    if (Status s = in.status(); !s.is_ok()) return s;
  }
  return {};
}

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

}  // namespace

// RFC 3720, section B.4, and the check value of CRC-32C.
TEST_CASE("the checksum is that of the standard") {
  const auto sum = [](const std::vector<std::byte>& bytes) { return crc32c(bytes.data(), bytes.size()); };
  CHECK(sum({}) == 0);
  CHECK(sum(bytes_of("123456789")) == 0xe3069283);
  CHECK(sum(std::vector<std::byte>(32, std::byte{0})) == 0x8a9136aa);
  CHECK(sum(std::vector<std::byte>(32, std::byte{0xff})) == 0x62a8ab43);
  std::vector<std::byte> rising(32);
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<std::byte>(i);
  CHECK(sum(rising) == 0x46dd794e);
  std::reverse(rising.begin(), rising.end());
  CHECK(sum(rising) == 0x113fdb5c);
}

TEST_CASE("all ways to compute the checksum agree, in one piece and in several") {
  const std::vector<std::byte> bytes = random_bytes(1, 5000);
  std::mt19937_64 random(2);
  const auto ways = checked::runnable_crc32c();
  REQUIRE(ways.back().name == "table");
  for (int i = 0; i < 3000; ++i) {
    const std::size_t begin = random() % 70;
    const std::size_t n = random() % (i % 2 == 0 ? 1200 : bytes.size() - 70);
    const std::byte* const data = bytes.data() + begin;
    const std::uint32_t right = ~ways.back().extend(~0U, data, n);
    for (const checked::Crc32c& way : ways) {
      INFO(way.name << ", " << n << " bytes");
      REQUIRE(~way.extend(~0U, data, n) == right);
      const std::size_t cut = n == 0 ? 0 : random() % n;
      REQUIRE(~way.extend(way.extend(~0U, data, cut), data + cut, n - cut) == right);
    }
    REQUIRE(crc32c(data, n) == right);
  }
}

TEST_CASE("a header is read only as it was sent") {
  const Fingerprint fingerprint{1, 2, 3, 4, 5};
  const checked::HeaderBytes bytes = checked::encode({100, 0x12345678, 7}, fingerprint);
  const auto header = checked::decode(bytes.data(), fingerprint);
  REQUIRE(header);
  CHECK((header->length == 100 && header->checksum == 0x12345678 && header->number == 7));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    checked::HeaderBytes damaged = bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    CHECK_FALSE(checked::decode(damaged.data(), fingerprint));
  }
  CHECK_FALSE(checked::decode(bytes.data(), Fingerprint{1, 2, 3, 4, 6}));
  CHECK_FALSE(checked::decode(checked::encode({0, 0, 7}, fingerprint).data(), fingerprint));
}

TEST_CASE("a link with checksums is a transport") {
  for (const Sample& sample : kTransports) {
    SECTION(sample.name) {
      const bool reports_close = sample.name != "shm/threads";
      conformance::check({"checked/" + sample.name,
                          [&](std::uint64_t seed) { return with_checksums(sample.make(seed)); }, reports_close,
                          kLeastViewBytes - checked::kHeaderBytes});
    }
  }
}

TEST_CASE("each damaged byte is noticed") {
  std::mt19937_64 random(3);
  const int rounds = test::kAnySanitizer ? 20 : 100;
  for (const Sample& sample : kTransports) {
    for (const bool pulls : {false, true}) {
      for (int round = 0; round < rounds; ++round) {
        const std::size_t n = 1 + random() % (round % 2 == 0 ? 600'000 : 2000);
        const std::vector<std::byte> bytes = random_bytes(random(), n);
        std::vector<std::byte> received;
        // At first of the header. A put may move fewer bytes through the lane than the message has.
        const std::uint64_t at = round < 16 ? static_cast<std::uint64_t>(round) : random() % n;
        INFO(sample.name << (pulls ? ", pulled" : "") << ", " << n << " bytes, damage at " << at);
        const Status status = transfer(with_checksums(sample.make(1), {.damage_at_byte = at}), bytes, pulls, &received);
        REQUIRE(status.code() == Code::kRemoteError);
        REQUIRE(status.message().find("damaged data from rank 0") != std::string::npos);
        REQUIRE(transfer(with_checksums(sample.make(1)), bytes, pulls, &received).is_ok());
        REQUIRE(std::equal(bytes.begin(), bytes.end(), received.begin()));
      }
    }
  }
}

TEST_CASE("a message that is missing, comes twice or carries another fingerprint is noticed") {
  conformance::Pair pair = sim_pair(1);
  const std::vector<std::byte> payload = random_bytes(4, 100);
  const Fingerprint fingerprint{1, 2, 3, 4, 5};
  const auto send = [&](std::uint32_t number, const Fingerprint& with) {
    const checked::HeaderBytes header = checked::encode({100, crc32c(payload.data(), 100), number}, fingerprint);
    std::vector<std::byte> bytes(header.begin(), header.end());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    for (std::size_t done = 0; done < bytes.size();) {
      done += pair.a->send().push(with, {bytes.data(), bytes.size(), 0, 0}, done, bytes.size() - done);
      pair.a->send().progress();
      (void)pair.b->recv().peek(1);
    }
  };
  // All that arrives, or the error.
  const auto receive = [&](std::size_t n) {
    RecvLane& in = pair.b->recv();
    for (std::size_t got = 0; got < n && in.status().is_ok();) {
      const RecvLane::View view = in.peek(n - got);
      if (in.consume(view.size)) got += view.size;
    }
    return in.status().message();
  };
  auto plain = std::exchange(pair.b, nullptr);
  pair.b = checked::make_checked(std::move(plain), 0);
  send(0, fingerprint);
  CHECK(receive(100).empty());
  SECTION("missing") {
    send(2, fingerprint);
    CHECK(receive(100).find("message 2 in place of message 1") != std::string::npos);
  }
  SECTION("twice") {
    send(0, fingerprint);
    CHECK(receive(100).find("message 0 in place of message 1") != std::string::npos);
  }
  SECTION("another fingerprint") {
    send(1, Fingerprint{1, 2, 3, 4, 9});
    CHECK(receive(100).find("damaged header") != std::string::npos);
  }
}
