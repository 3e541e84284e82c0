#include "conformance.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "catch_compat.h"
#include "os/clock.h"
#include "sanitizers.h"
#include "stream_check.h"
#include "transport/event_set.h"

namespace tutti::internal::transport::conformance {
namespace {

constexpr std::int64_t kPatienceMs = 60'000;
// Both directions of these run in one thread: nothing for ThreadSanitizer to see. AddressSanitizer sees every way of
// reading once.
constexpr std::uint64_t kShortSeeds = test::kThreadSanitizer ? 1 : 8;
constexpr std::uint64_t kLongSeeds = test::kThreadSanitizer ? 1 : test::kAddressSanitizer ? 3 : 9;
// Of elements: all sizes, each in place and not.
constexpr std::uint64_t kElementSeeds = test::kAnySanitizer ? 10 : 20;

// Calls f until it returns true.
template <class F>
bool eventually(F&& f) {
  const Deadline deadline = Deadline::after_ms(kPatienceMs);
  for (unsigned calls = 1; !f(); ++calls) {
    // Not each time: reading the clock takes as long as most calls. The peer may need this processor.
    if (calls % 32 != 0) continue;
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

// The sleep of link a's rank. Nothing drains a wakeup fd: each ring wakes once.
class SleepOfA {
 public:
  explicit SleepOfA(const Pair& pair) : set_(std::move(EventSet::create().value())) {
    REQUIRE(set_.watch(*pair.a));
    if (!pair.a->wait_fds().empty()) return;
    REQUIRE(set_.add_wakeup(pair.wake_a).is_ok());
    (void)wakes(0);  // earlier rings
  }
  // Whether something wakes it within this time.
  [[nodiscard]] bool wakes(int longest_ms) const { return set_.take(longest_ms); }

 private:
  EventSet set_;
};

// Sleeps like a rank: looks, arms, looks again, polls. True once `look` is.
template <class F>
bool sleep_until(const Pair& pair, F&& look) {
  const Deadline deadline = Deadline::after_ms(kPatienceMs);
  const SleepOfA sleep(pair);
  while (!look()) {
    if (deadline.passed()) return false;
    // One long sleep: a lost wake-up is a failure, not a slow test.
    if (pair.a->arm() && !sleep.wakes(deadline.left_ms(kPatienceMs))) return false;
    pair.a->disarm();
  }
  return true;
}

bool push_all(SendLane& lane, const Fingerprint& fingerprint, const std::vector<std::byte>& bytes) {
  const Source source{bytes.data(), bytes.size(), 0, 0};
  std::size_t done = 0;
  return eventually([&] {
    done += lane.push(fingerprint, source, done, bytes.size() - done);
    lane.progress();
    return done == bytes.size();
  });
}

bool receive_all(RecvLane& lane, std::vector<std::byte>& bytes) {
  std::size_t done = 0;
  return eventually([&] {
    const RecvLane::View view = lane.peek(bytes.size() - done);
    if (view.size > 0) std::memcpy(bytes.data() + done, view.data, view.size);
    if (lane.consume(view.size)) done += view.size;
    return done == bytes.size();
  });
}

// They repeat, so that most are copied: byte by byte, under a sanitizer, that took longer than the code under test.
std::vector<std::byte> some_bytes(std::size_t n) {
  constexpr std::size_t kPeriod = 65'521;  // a prime: no two pieces of a transport's size begin alike
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < std::min(n, kPeriod); ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 256 + 7);
  for (std::size_t done = kPeriod; done < n; done += kPeriod) {
    std::memcpy(&bytes[done], bytes.data(), std::min(kPeriod, n - done));
  }
  return bytes;
}

bool equal(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

void check_streams(const Factory& factory, std::uint64_t seed, Reading reading, int messages, std::size_t longest) {
  INFO("seed " << seed);
  const Pair pair = factory.make(seed);
  const Script forth = make_script(seed * 2, messages, longest);
  const Script back = make_script(seed * 2 + 1, messages, longest);
  Feeder feed_a(pair.a->send(), forth, seed + 1);
  Feeder feed_b(pair.b->send(), back, seed + 2);
  Checker check_b(pair.b->recv(), forth, reading, seed + 3);
  Checker check_a(pair.a->recv(), back, reading, seed + 4);
  std::mt19937_64 random(seed);
  const bool done = eventually([&] {
    // Bursts, so that lanes become full and empty.
    const std::uint64_t who = random() % 4;
    for (std::uint64_t burst = random() % 20; burst > 0; --burst) {
      if (who == 0) feed_a.step();
      if (who == 1) feed_b.step();
      if (who == 2) check_a.step();
      if (who == 3) check_b.step();
    }
    // The last bytes may arrive before the push that reports them as taken.
    return check_a.finished() && check_b.finished() && feed_a.finished() && feed_b.finished();
  });
  REQUIRE(done);
  CHECK(eventually([&] { return feed_a.released() && feed_b.released(); }));
  if (pair.a->send().has_lines() && messages >= 100) {
    for (const int in_lines : {feed_a.in_lines(), feed_b.in_lines(), check_a.in_lines(), check_b.in_lines()}) {
      CHECK(in_lines > 0);
    }
  }
  for (Link* link : {pair.a.get(), pair.b.get()}) {
    CHECK(link->send().status().is_ok());
    CHECK(link->recv().status().is_ok());
    CHECK(link->recv().peek(100).size == 0);
  }
}

// Sends n bytes, in place or from user memory; the peer receives something when the lane is full. completed() must
// never decrease: the bytes that it passed may be overwritten.
class SlotTurns {
 public:
  SlotTurns(Link& from, Link& to, std::uint64_t seed) : lane_(from.send()), to_(to.recv()), random_(seed) {}

  bool send(const std::vector<std::byte>& bytes) {
    const Source source{bytes.data(), bytes.size(), 0, 0};
    const bool in_place = random_() % 3 == 0;
    std::size_t done = 0;
    return eventually([&] {
      const std::size_t left = bytes.size() - done;
      const std::size_t n =
          in_place ? write(bytes.data() + done, left) : lane_.push(fingerprint_of(1), source, done, left);
      done += n;
      // Not each time: meanwhile messages complete and their slots are reused.
      if (random_() % 8 == 0) look();
      if (n == 0) take(bytes.size());
      return done == bytes.size();
    });
  }

 private:
  std::size_t write(const std::byte* bytes, std::size_t n) {
    const std::span<std::byte> room = lane_.reserve(n);
    if (room.empty()) return 0;
    std::memcpy(room.data(), bytes, room.size());
    lane_.commit(fingerprint_of(1), room.size());
    return room.size();
  }
  void look() {
    const std::uint64_t completed = lane_.completed();
    if (completed < completed_ || completed > lane_.taken())
      FAIL("completed() went from " << completed_ << " to " << completed << ", taken " << lane_.taken());
    completed_ = completed;
  }
  void take(std::size_t message) {
    for (std::uint64_t looks = random_() % 24; looks > 0; --looks) {
      const RecvLane::View view = to_.peek(message - received_ % message);
      if (to_.consume(view.size)) received_ += view.size;
    }
  }

  SendLane& lane_;
  RecvLane& to_;
  std::mt19937_64 random_;
  std::uint64_t completed_ = 0;
  std::uint64_t received_ = 0;
};

void check_completed_of_full_lane(const Factory& factory) {
  for (std::uint64_t seed = 1; seed <= kLongSeeds; ++seed) {
    INFO("seed " << seed);
    const Pair pair = factory.make(seed);
    if (!pair.a->send().traits().slots) return;
    const std::vector<std::byte> bytes = some_bytes(20'000);
    SlotTurns turns(*pair.a, *pair.b, seed);
    for (int message = 0; message < 300; ++message) REQUIRE(turns.send(bytes));
  }
}

void check_traits(const Factory& factory) {
  const Pair pair = factory.make(1);
  for (Link* link : {pair.a.get(), pair.b.get()}) {
    const LaneTraits& traits = link->send().traits();
    CHECK(std::strlen(traits.transport) > 0);
    CHECK(traits.piece_bytes > 0);
    CHECK(link->send().taken() == 0);
    CHECK(link->send().completed() == 0);
    if (!traits.slots) CHECK(link->send().reserve(8).empty());
  }
}

// An element that a piece has cut in two must become whole without consume().
void check_elements(const Factory& factory, std::uint64_t seed, std::size_t element_bytes, bool in_place) {
  const Pair pair = factory.make(seed);
  SendLane& out = pair.a->send();
  if (in_place && !out.traits().slots) return;
  const std::size_t most = kWholeMessageBytes / element_bytes * element_bytes;
  const std::vector<std::byte> bytes = some_bytes((4 * kWholeMessageBytes / element_bytes + 1) * element_bytes);
  const Source source{bytes.data(), bytes.size(), 0, 0};
  std::atomic<bool> pushed = true;
  std::thread sender([&] {
    std::size_t done = 0;
    pushed = eventually([&] {
      // To the end of a message.
      const std::size_t n = std::min(bytes.size(), (done / most + 1) * most) - done;
      if (!in_place) {
        done += out.push(fingerprint_of(1), source, done, n);
        return done == bytes.size();
      }
      const std::size_t whole = out.reserve(n).size() / element_bytes * element_bytes;
      if (whole == 0) return false;
      std::memcpy(out.reserve(n).data(), bytes.data() + done, whole);
      out.commit(fingerprint_of(1), whole);
      done += whole;
      return done == bytes.size();
    });
  });
  std::size_t done = 0;
  bool right = true;
  const bool all = eventually([&] {
    const RecvLane::View view = pair.b->recv().peek(bytes.size() - done);
    const std::size_t whole = std::min(view.size, bytes.size() - done) / element_bytes * element_bytes;
    right = whole == 0 || std::memcmp(view.data, bytes.data() + done, whole) == 0;
    if (right && pair.b->recv().consume(whole)) done += whole;
    return done == bytes.size() || !right;
  });
  sender.join();
  REQUIRE(pushed);
  REQUIRE(right);
  REQUIRE(all);
}

void check_short_views_grow(const Factory& factory) {
  for (std::uint64_t seed = 1; seed <= kElementSeeds; ++seed) {
    const std::size_t element_bytes =
        std::array<std::size_t, 6>{8, 12, 100, 4095, kMostElementBytes, kLeastViewBytes}[seed / 2 % 6];
    const bool in_place = seed % 2 == 0 && element_bytes <= factory.room_bytes;
    INFO("seed " << seed << ", elements of " << element_bytes << (in_place ? ", in place" : ""));
    check_elements(factory, seed, element_bytes, in_place);
  }
}

// The bytes that every lane takes although the peer consumes nothing: the test sends no more, and all are received
// afterwards.
void check_least_room(const Factory& factory) {
  for (std::uint64_t seed = 1; seed <= kElementSeeds; ++seed) {
    INFO("seed " << seed);
    const Pair pair = factory.make(seed);
    const std::vector<std::byte> bytes = some_bytes(kLeastRoomBytes);
    for (Link* link : {pair.a.get(), pair.b.get()}) REQUIRE(push_all(link->send(), fingerprint_of(1), bytes));
    for (Link* link : {pair.a.get(), pair.b.get()}) {
      std::vector<std::byte> copy(bytes.size());
      REQUIRE(receive_all(link->recv(), copy));
      REQUIRE(equal(copy, bytes));
    }
  }
}

// Both lanes are full before either side receives: they continue, and nothing is lost.
void check_full_lanes(const Factory& factory) {
  const Pair pair = factory.make(2);
  const std::vector<std::byte> bytes = some_bytes(std::size_t{16} << 20);
  const Source source{bytes.data(), bytes.size(), 0, 0};
  struct End {
    Link* link;
    std::size_t sent = 0;
    std::size_t received = 0;
    bool right = true;
  };
  std::array<End, 2> ends{{{pair.a.get()}, {pair.b.get()}}};
  const auto push = [&](End& end) {
    const std::size_t n = end.link->send().push(fingerprint_of(1), source, end.sent, bytes.size() - end.sent);
    end.sent += n;
    return n > 0;
  };
  for (int refused = 0; refused < 1000; ++refused) {
    for (End& end : ends) {
      if (push(end)) refused = 0;
    }
  }
  REQUIRE(eventually([&] {
    for (End& end : ends) {
      push(end);
      const RecvLane::View view = end.link->recv().peek(bytes.size() - end.received);
      end.right &= view.size == 0 || std::memcmp(view.data, bytes.data() + end.received, view.size) == 0;
      (void)end.link->recv().consume(view.size);
      end.received += view.size;
    }
    return ends[0].received == bytes.size() && ends[1].received == bytes.size();
  }));
  for (const End& end : ends) CHECK(end.right);
}

void check_idle(const Factory& factory) {
  const Pair pair = factory.make(3);
  const SleepOfA sleep(pair);
  CHECK(pair.a->recv().peek(64).size == 0);
  std::array<std::byte, 64> target;
  Fingerprint fingerprint;
  CHECK(pair.a->recv().pull(target.data(), target.size(), &fingerprint) == 0);
  CHECK(pair.a->recv().status().is_ok());
  CHECK(pair.a->send().status().is_ok());
  int tries = 0;
  while (!pair.a->arm() && tries < 100) ++tries;
  CHECK(tries < 100);
  (void)sleep.wakes(0);  // the event from adding the link
  CHECK_FALSE(sleep.wakes(20));
  pair.a->disarm();
}

void check_wakes_receiver(const Factory& factory) {
  const Pair pair = factory.make(4);
  const std::vector<std::byte> bytes = some_bytes(24);
  for (std::uint32_t round = 1; round <= 5; ++round) {
    std::thread sender([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      push_all(pair.b->send(), fingerprint_of(round), bytes);
    });
    std::size_t got = 0;
    const bool woken = sleep_until(pair, [&] {
      const RecvLane::View view = pair.a->recv().peek(bytes.size() - got);
      if (pair.a->recv().consume(view.size)) got += view.size;
      return got == bytes.size();
    });
    sender.join();
    REQUIRE(woken);
  }
}

bool consume_short(RecvLane& lane, std::size_t n) {
  if (!lane.line_arrived() || lane.peek_short(fingerprint_of(1), n) == nullptr) return false;
  lane.consume_short(n);
  return true;
}

// As check_wakes_receiver() and check_wakes_sender(), without verbs.
void check_lines_wake(const Factory& factory) {
  const Pair pair = factory.make(7);
  SendLane& out = pair.a->send();
  if (!out.has_lines()) return;
  const std::vector<std::byte> bytes = some_bytes(24);
  for (int round = 1; round <= 5; ++round) {
    const auto later = [](auto&& f) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return f();
    };
    bool sent = false;
    std::thread sender([&] {
      sent = later([&] { return pair.b->send().push_short(fingerprint_of(1), bytes.data(), bytes.size()); });
    });
    const bool woken = sleep_until(pair, [&] { return consume_short(pair.a->recv(), bytes.size()); });
    sender.join();
    REQUIRE(sent);
    REQUIRE(woken);
    // Now the lane is full.
    const auto push = [&] {
      return out.push(fingerprint_of(1), {bytes.data(), bytes.size(), 0, 0}, 0, bytes.size()) > 0;
    };
    while (push()) {
    }
    bool received = false;
    std::thread receiver([&] { received = later([&] { return consume_short(pair.b->recv(), bytes.size()); }); });
    const bool room = sleep_until(pair, push);
    receiver.join();
    REQUIRE(received);
    REQUIRE(room);
    while (pair.b->recv().peek(bytes.size()).size > 0) REQUIRE(pair.b->recv().consume(bytes.size()));
  }
}

void check_wakes_sender(const Factory& factory) {
  const Pair pair = factory.make(5);
  const std::vector<std::byte> bytes = some_bytes(32 * 1024 * 1024);
  const Source source{bytes.data(), bytes.size(), 0, 0};
  std::vector<std::byte> copy(bytes.size());
  std::atomic<bool> received = false;
  std::thread receiver([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    received = receive_all(pair.b->recv(), copy);
  });
  std::size_t done = 0;
  const bool woken = sleep_until(pair, [&] {
    for (std::size_t n = 1; n > 0 && done < bytes.size();) {
      done += n = pair.a->send().push(fingerprint_of(1), source, done, bytes.size() - done);
    }
    return done == bytes.size();
  });
  receiver.join();
  REQUIRE(woken);
  REQUIRE(received);
  CHECK(equal(copy, bytes));
}

// The peer sends last messages before it ends its side.
void check_end(const Factory& factory, const std::function<void(Pair&)>& end) {
  Pair pair = factory.make(6);
  const std::vector<std::byte> bytes = some_bytes(300);
  REQUIRE(push_all(pair.b->send(), fingerprint_of(1), bytes));
  end(pair);
  std::vector<std::byte> copy(bytes.size());
  REQUIRE(receive_all(pair.a->recv(), copy));
  CHECK(equal(copy, bytes));
  // Only time makes an error of it, so a sleeping thread looks now and then.
  REQUIRE(eventually([&] {
    CHECK(pair.a->recv().peek(8).size == 0);
    if (!pair.a->recv().status().is_ok()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return false;
  }));
  CHECK(pair.a->recv().status().code() == Code::kRemoteError);
  CHECK(pair.a->recv().status().message().find("rank") != std::string::npos);
  const Source source{bytes.data(), bytes.size(), 0, 0};
  REQUIRE(eventually([&] {
    pair.a->send().push(fingerprint_of(2), source, 0, bytes.size());
    return !pair.a->send().status().is_ok();
  }));
  CHECK(pair.a->send().status().code() == Code::kRemoteError);
  // What fits may still be taken, and no more.
  REQUIRE(eventually([&] { return pair.a->send().push(fingerprint_of(2), source, 0, bytes.size()) == 0; }));
}

}  // namespace

void check(const Factory& factory) {
  INFO("transport " << factory.name);
  SECTION(factory.name + ": traits and a fresh link") {
    check_traits(factory);
  }
  SECTION(factory.name + ": short messages both ways") {
    for (std::uint64_t seed = 1; seed <= kShortSeeds; ++seed) check_streams(factory, seed, Reading::kBoth, 400, 300);
  }
  SECTION(factory.name + ": long messages both ways") {
    const std::array<Reading, 3> readings{Reading::kPeek, Reading::kPull, Reading::kBoth};
    for (std::uint64_t seed = 1; seed <= kLongSeeds; ++seed) {
      check_streams(factory, seed, readings[seed % 3], 30, 900'000);
    }
  }
  SECTION(factory.name + ": short views grow") {
    check_short_views_grow(factory);
  }
  SECTION(factory.name + ": the least room") {
    check_least_room(factory);
  }
  SECTION(factory.name + ": full lanes both ways move on") {
    check_full_lanes(factory);
  }
  SECTION(factory.name + ": what a full lane has completed") {
    check_completed_of_full_lane(factory);
  }
  SECTION(factory.name + ": an idle link sleeps") {
    check_idle(factory);
  }
  SECTION(factory.name + ": data wakes a sleeper") {
    check_wakes_receiver(factory);
  }
  SECTION(factory.name + ": room wakes a sleeper") {
    check_wakes_sender(factory);
  }
  SECTION(factory.name + ": lines wake a sleeper") {
    check_lines_wake(factory);
  }
  SECTION(factory.name + ": that the peer has given up is an error") {
    check_end(factory, [](Pair& pair) { pair.b->revoke(); });
  }
  if (factory.reports_close) {
    SECTION(factory.name + ": the peer's end is an error") {
      check_end(factory, [](Pair& pair) { pair.b.reset(); });
    }
  }
}

}  // namespace tutti::internal::transport::conformance
