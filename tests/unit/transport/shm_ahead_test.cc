// Shared memory between oversubscribed ranks: how far a sender may be ahead of a receiver that does not run, and that
// all messages stay in order, for all contents and any number of earlier messages.
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "shm_pairs.h"
#include "transport/shm/link.h"
#include "transport/shm/link_state.h"
#include "transport/shm/private_memory.h"
#include "transport/shm/recv.h"
#include "transport/shm/send.h"

using namespace tutti::internal;
using namespace tutti::internal::transport;
using namespace tutti::internal::transport::shm;

namespace {

constexpr Fingerprint kFingerprint{1, 2, 3};

// Message `number`, recognisable by each byte.
std::vector<std::byte> message(std::uint32_t number, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(number * 37 + i * 11);
  return bytes;
}

bool push(SendLane& lane, const std::vector<std::byte>& bytes) {
  const std::size_t n = lane.push(kFingerprint, {bytes.data(), bytes.size(), 0, 0}, 0, bytes.size());
  REQUIRE((n == 0 || n == bytes.size()));
  return n != 0;
}

bool write_in_place(SendLane& lane, const std::vector<std::byte>& bytes) {
  const std::span<std::byte> reserved = lane.reserve(bytes.size());
  if (reserved.empty()) return false;
  REQUIRE(reserved.size() == bytes.size());
  std::memcpy(reserved.data(), bytes.data(), bytes.size());
  lane.commit(kFingerprint, bytes.size());
  return true;
}

void check_next(RecvLane& lane, const std::vector<std::byte>& bytes) {
  const RecvLane::View view = lane.peek(bytes.size());
  REQUIRE(view.size == bytes.size());
  REQUIRE(std::memcmp(view.data, bytes.data(), bytes.size()) == 0);
  REQUIRE(view.fingerprint == kFingerprint);
  REQUIRE(lane.consume(view.size));
}

conformance::Pair some_pair(bool own_processor) {
  return GENERATE(true, false) ? conformance::threads_pair(own_processor) : conformance::processes_pair(own_processor);
}

// Both ends of a link between threads, which have exchanged `before` messages in each direction.
struct Lanes {
  Lanes(Turns turns, std::uint32_t before)
      : memory{segment_of(turns)->link_memory(0), segment->link_memory(1)}, ends{state(0, before), state(1, before)} {
    for (const auto& side : memory) side->own().consumed.value = before;
  }
  std::shared_ptr<PrivateSegment> segment_of(Turns turns) {
    segment = PrivateSegment::create(turns).value();
    return segment;
  }
  LinkState state(std::size_t side, std::uint32_t before) const {
    LinkState s;
    s.memory = memory[side].get();
    s.own = &s.memory->own();
    s.theirs = &s.memory->theirs();
    s.peer = static_cast<int>(1 - side);
    s.lines = eager_lines(*memory[side], wakeup_fd.fd(), before);
    s.same_process = true;
    return s;
  }
  WakeupFd wakeup_fd = std::move(WakeupFd::create().value());
  std::shared_ptr<PrivateSegment> segment;
  std::array<std::unique_ptr<LinkMemory>, 2> memory;
  std::array<LinkState, 2> ends;
  ShmSendLane send{&ends[0]};
  ShmRecvLane recv{&ends[1]};
};

// Makes its sender use its extension from now on, and lets the receiver know.
void extend(SendLane& send, RecvLane& recv) {
  REQUIRE(push(send, message(0, kLineBytes + 1)));
  check_next(recv, message(0, kLineBytes + 1));
}

}  // namespace

TEST_CASE("between oversubscribed ranks, a sender is 64 short messages ahead of a receiver that does not run") {
  const bool own_processor = GENERATE(false, true);
  const std::size_t size = GENERATE(1U, 8U, 32U, 33U, std::size_t{kShortMessageBytes});
  const bool in_place = GENERATE(false, true);
  const conformance::Pair pair = some_pair(own_processor);
  extend(pair.a->send(), pair.b->recv());
  const std::uint64_t before = pair.a->send().taken();
  const auto send = [&](std::uint32_t number) {
    const std::vector<std::byte> bytes = message(number, size);
    return in_place ? write_in_place(pair.a->send(), bytes) : push(pair.a->send(), bytes);
  };
  std::uint32_t sent = 0;
  while (sent < 1000 && send(sent)) ++sent;
  REQUIRE(sent == (own_processor ? kSlots : kShortSlots));
  CHECK(pair.a->send().taken() - before == sent * size);
  // One more for each message consumed, many times.
  std::uint32_t received = 0;
  for (; received < 200; ++received) {
    check_next(pair.b->recv(), message(received, size));
    REQUIRE(send(sent++));
    REQUIRE_FALSE(send(sent));
  }
  for (; received < sent; ++received) check_next(pair.b->recv(), message(received, size));
  CHECK(pair.b->recv().peek(1).size == 0);
  CHECK(pair.b->recv().consumed() - before == sent * size);
  CHECK(pair.a->send().completed() - before == sent * size);
}

TEST_CASE("a message that is longer than a slot's payload waits until its long buffer is free") {
  const conformance::Pair pair = some_pair(false);
  extend(pair.a->send(), pair.b->recv());
  const auto long_message = [](std::uint32_t number) { return message(number, 5000); };
  std::uint32_t sent = 0;
  for (; sent < 4; ++sent) REQUIRE(push(pair.a->send(), long_message(sent)));
  for (; sent < 64; ++sent) REQUIRE(push(pair.a->send(), message(sent, 8)));
  REQUIRE_FALSE(push(pair.a->send(), message(sent, 8)));
  std::uint32_t received = 0;
  for (; received < 64; ++received) {
    const bool is_free = sent - received < kLongBuffers;
    REQUIRE(push(pair.a->send(), long_message(sent)) == is_free);
    if (is_free) ++sent;
    // The buffers of the long messages are not overwritten.
    check_next(pair.b->recv(), received < 4 ? long_message(received) : message(received, 8));
  }
  REQUIRE(sent == 64 + kLongBuffers - 1);
  for (; received < sent; ++received) check_next(pair.b->recv(), long_message(received));
  CHECK(pair.b->recv().peek(1).size == 0);
}

TEST_CASE("a commit of any part of a reservation arrives") {
  const conformance::Pair pair = some_pair(GENERATE(true, false));
  extend(pair.a->send(), pair.b->recv());
  std::uint32_t number = 0;
  for (const std::size_t reserved : {std::size_t{32}, std::size_t{1000}, kShortMessageBytes + 1, kSlotBytes}) {
    for (const std::size_t committed : {std::size_t{1}, std::size_t{33}, kShortMessageBytes, kShortMessageBytes + 1}) {
      if (committed > reserved) continue;
      INFO(committed << " of " << reserved);
      const std::vector<std::byte> bytes = message(++number, committed);
      const std::span<std::byte> target = pair.a->send().reserve(reserved);
      REQUIRE(target.size() == reserved);
      std::memcpy(target.data(), bytes.data(), committed);
      pair.a->send().commit(kFingerprint, committed);
      check_next(pair.b->recv(), bytes);
    }
  }
  CHECK(pair.b->recv().status().is_ok());
}

TEST_CASE("messages of all lengths stay in order between oversubscribed ranks") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    const conformance::Pair pair =
        seed % 2 == 0 ? conformance::threads_pair(false) : conformance::processes_pair(false);
    std::mt19937_64 random(seed);
    std::vector<std::vector<std::byte>> script;
    for (std::uint32_t i = 0; i < 3000; ++i) {
      const std::size_t longest = std::array<std::size_t, 4>{32, 32, kShortMessageBytes, 15'000}[random() % 4];
      script.push_back(message(i, 1 + random() % longest));
    }
    std::size_t sent = 0;
    std::size_t received = 0;
    while (received < script.size()) {
      for (std::uint64_t burst = random() % 100; burst > 0 && sent < script.size(); --burst) {
        const bool taken =
            random() % 2 == 0 ? push(pair.a->send(), script[sent]) : write_in_place(pair.a->send(), script[sent]);
        if (!taken) break;
        ++sent;
      }
      for (std::uint64_t burst = random() % 100; burst > 0 && received < sent; --burst, ++received) {
        check_next(pair.b->recv(), script[received]);
      }
    }
    CHECK(pair.b->recv().peek(1).size == 0);
  }
}

TEST_CASE("a zero-copy send is done when its message has been consumed, however many short ones follow") {
  const conformance::Pair pair = conformance::threads_pair(false);
  extend(pair.a->send(), pair.b->recv());
  const std::vector<std::byte> big = message(0, kZcopyBytes);
  std::uint64_t begin = 0;
  for (int round = 0; round < 20; ++round) {
    INFO("round " << round);
    for (int i = 0; i < round % 7; ++i) REQUIRE(push(pair.a->send(), message(1, 8)));
    begin = pair.a->send().taken();
    REQUIRE(push(pair.a->send(), big));
    int behind = 0;
    while (push(pair.a->send(), message(2, 8))) ++behind;
    REQUIRE(behind == 63 - round % 7);
    REQUIRE(pair.a->send().completed() == begin);
    for (int i = 0; i < round % 7; ++i) check_next(pair.b->recv(), message(1, 8));
    const RecvLane::View view = pair.b->recv().peek(big.size());
    REQUIRE(view.data == big.data());
    REQUIRE(pair.a->send().completed() == begin);
    check_next(pair.b->recv(), big);
    REQUIRE(pair.a->send().completed() == pair.a->send().taken());
    for (int i = 0; i < behind; ++i) check_next(pair.b->recv(), message(2, 8));
  }
}

TEST_CASE("no old line is mistaken for new when message numbers pass 2^32") {
  const Turns turns = GENERATE(Turns::kNone, Turns::kTaken);
  const std::size_t size = GENERATE(8U, 500U, 5000U);
  const std::uint32_t ahead = GENERATE(1U, 7U, kLongBuffers);
  Lanes lanes(turns, UINT32_MAX - 299);
  extend(lanes.send, lanes.recv);
  for (std::uint32_t sent = 0; sent < 600; sent += ahead) {
    // Short ones now and then, so that each length appears in each slot.
    const auto of = [&](std::uint32_t number) { return message(number, number % 5 == 0 ? 16 : size); };
    REQUIRE(lanes.recv.peek(1).size == 0);
    REQUIRE_FALSE(lanes.recv.activity());
    for (std::uint32_t i = 0; i < ahead; ++i) REQUIRE(push(lanes.send, of(sent + i)));
    REQUIRE(lanes.recv.activity());
    for (std::uint32_t i = 0; i < ahead; ++i) check_next(lanes.recv, of(sent + i));
  }
  CHECK(lanes.recv.status().is_ok());
  CHECK(lanes.send.status().is_ok());
}

// Its memory is fresh then, with sequence 0 in every line, which is also the number of one message.
TEST_CASE("no line of an extension is taken for new that is made just before the numbers of messages pass 2^32") {
  const Turns turns = GENERATE(Turns::kNone, Turns::kTaken);
  for (std::uint32_t back = 70; back >= 2; --back) {
    INFO("after 2^32 - " << back << " messages");
    Lanes lanes(turns, 0U - back);
    for (std::uint32_t sent = 0; sent < 80; ++sent) {
      INFO("message " << sent);
      REQUIRE(lanes.recv.peek(1).size == 0);
      REQUIRE(lanes.recv.status().is_ok());
      REQUIRE_FALSE(lanes.recv.activity());
      // The first one extends the lane.
      const std::vector<std::byte> bytes = message(sent, sent == 0 ? kLineBytes + 1 : 8);
      REQUIRE(push(lanes.send, bytes));
      REQUIRE(lanes.recv.activity());
      check_next(lanes.recv, bytes);
    }
  }
}

TEST_CASE("a message of any number keeps its receiver awake, if it is the first that is asked about") {
  for (std::uint32_t back = 5; back >= 2; --back) {
    INFO("after 2^32 - " << back << " messages");
    Lanes lanes(Turns::kNone, 0U - back);
    extend(lanes.send, lanes.recv);
    for (std::uint32_t sent = 3; sent < back; ++sent) {
      REQUIRE(push(lanes.send, message(sent, 8)));
      check_next(lanes.recv, message(sent, 8));
    }
    REQUIRE(push(lanes.send, message(0, 8)));
    CHECK(lanes.recv.activity());
    CHECK_FALSE(lanes.recv.activity());
  }
}

TEST_CASE("a sender is as far ahead where the numbers of messages pass 2^32") {
  Lanes lanes(Turns::kTaken, UINT32_MAX - 20);
  std::uint32_t sent = 0;
  const std::size_t size = GENERATE(8U, 500U);
  extend(lanes.send, lanes.recv);
  while (push(lanes.send, message(sent, size))) ++sent;
  CHECK(sent == 64);
  for (std::uint32_t i = 0; i < sent; ++i) check_next(lanes.recv, message(i, size));
  CHECK(lanes.recv.peek(1).size == 0);
}

TEST_CASE("messages pass from the eager slots to the extension wherever the numbers stand") {
  const Turns turns = GENERATE(Turns::kNone, Turns::kTaken);
  for (std::uint32_t before = 0; before < 40; ++before) {
    for (const std::uint32_t first : {0U, UINT32_MAX - 20}) {
      for (const bool in_place : {false, true}) {
        Lanes lanes(turns, first + before);
        // As many as the sender can be ahead, although none has been consumed: one line is reserved for the extension
        // message.
        std::uint32_t sent = 0;
        const auto send = [&](std::uint32_t number) {
          return in_place ? write_in_place(lanes.send, message(number, 8)) : push(lanes.send, message(number, 8));
        };
        while (send(sent)) ++sent;
        REQUIRE(sent == lanes.segment->extension(0).slots().slots() - 1);
        std::uint32_t received = 0;
        for (; received < sent; ++received) check_next(lanes.recv, message(received, 8));
        REQUIRE(lanes.recv.status().is_ok());
      }
    }
  }
}

TEST_CASE("two sides with different Turns refuse each other") {
  const Turns turns = GENERATE(Turns::kNone, Turns::kTaken);
  const conformance::SharedEnds ends;
  const auto a = std::move(ends.a->open(7, turns).value());
  const auto b = std::move(ends.b->open(7, turns == Turns::kNone ? Turns::kTaken : Turns::kNone).value());
  for (const Status& s : {a->connect().status(), b->connect().status()}) {
    INFO(s.message());
    CHECK(s.code() == Code::kRemoteError);
    CHECK(s.message().find("do not agree on how ranks share processors") != std::string::npos);
  }
}
