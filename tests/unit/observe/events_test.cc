// Rings of events, as another process reads them.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "observe/event_ring.h"
#include "observe/origin.h"
#include "observe/reader.h"
#include "os/clock.h"
#include "os/ticks.h"
#include "variable.h"

namespace tutti::internal::observe::test {
namespace {

constexpr std::uint64_t kCommunicator = 77;

void call(EventRing& ring, std::uint32_t number, std::uint64_t count) {
  ring.at().sequence.store(number);
  Event& event = ring.event(number);
  event.state.store(0);
  event.count.store(count);
  event.waited.store(0);
  event.begun.store(ticks());
  event.state.store(Event::written(number));
}

// The rings of this process.
std::vector<SeenRank> seen() {
  auto process = read_process(::getpid());
  if (!process.is_ok()) return {};
  CHECK(process->pid == ::getpid());
  CHECK(process->state == 'R');
  CHECK_FALSE(process->host.empty());
  return process->ranks;
}

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 256; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("events: a reader sees the last calls, and what the rank waits for") {
  const auto ring = EventRing::open(kCommunicator, 2, 5);
  for (std::uint32_t number = 1; number <= kEvents + 10; ++number) call(*ring, number, 100 + number);
  ring->name_plan(9, "by ring");
  ring->event(kEvents + 10).plan.store(9);
  ring->set_inside(true);
  ring->note_wait(60, {1, 3});
  const std::vector<SeenRank> ranks = seen();
  REQUIRE(ranks.size() == 1);
  const SeenRank& rank = ranks.front();
  CHECK(rank.communicator == kCommunicator);
  CHECK(rank.rank == 2);
  CHECK(rank.ranks == 5);
  CHECK(rank.number == kEvents + 10);
  CHECK(rank.inside);
  CHECK_FALSE(rank.failure);
  REQUIRE(rank.wait);
  CHECK(rank.wait->ms == 60);
  CHECK(rank.wait->ranks == std::vector<int>{1, 3});
  CHECK_FALSE(rank.wait->others);
  REQUIRE(rank.calls.size() == kEvents);
  for (std::uint32_t i = 0; i < kEvents; ++i) {
    CHECK(rank.calls[i].number == 11 + i);
    CHECK(rank.calls[i].count == 111 + i);
  }
  CHECK(rank.calls.back().plan == "by ring");
  CHECK_FALSE(rank.calls.back().ended_ns);
  // A later, shorter wait of the same operation.
  ring->note_wait(20, {4});
  const SeenCall last = seen().at(0).calls.back();
  CHECK(last.waited_ms == 60);
  CHECK(last.waited_for == 1);
}

TEST_CASE("events: the end of an operation ends its wait") {
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  call(*ring, 1, 4);
  ring->set_inside(true);
  ring->note_wait(60, {1});
  ::usleep(20'000);
  ring->set_inside(false);
  SeenRank rank = seen().at(0);
  CHECK_FALSE(rank.inside);
  CHECK_FALSE(rank.wait);
  REQUIRE(rank.calls.size() == 1);
  REQUIRE(rank.calls[0].ended_ns);
  CHECK(*rank.calls[0].ended_ns - *rank.calls[0].begun_ns >= 10'000'000);
  // A refused call changes nothing.
  ring->set_inside(true);
  ::usleep(1000);
  ring->set_inside(false);
  CHECK(*seen().at(0).calls[0].ended_ns - *rank.calls[0].ended_ns < 1'000'000);
  // A transfer ends without a trace in the last collective.
  call(*ring, 2, 4);
  ring->set_inside(true);
  ring->set_transfer(true, 1, 400);
  rank = seen().at(0);
  REQUIRE(rank.transfer);
  CHECK(rank.transfer->sends);
  CHECK(rank.transfer->peer == 1);
  CHECK(rank.transfer->bytes == 400);
  ring->set_inside(false);
  rank = seen().at(0);
  CHECK_FALSE(rank.transfer);
  CHECK_FALSE(rank.calls.back().ended_ns);
}

TEST_CASE("events: the outermost agreement counts") {
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  {
    const EventRing::Agreeing outer(*ring, "tuttiCommShrink");
    { const EventRing::Agreeing inner(*ring, "tuttiCommCreateGroup"); }
    const SeenRank rank = seen().at(0);
    REQUIRE(rank.agreement);
    CHECK(rank.agreement->call == "tuttiCommShrink");
  }
  CHECK_FALSE(seen().at(0).agreement);
}

TEST_CASE("events: numbers wrap around") {
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  for (int i = -3; i <= 3; ++i) call(*ring, static_cast<std::uint32_t>(i), 4);
  const SeenRank rank = seen().at(0);
  REQUIRE(rank.calls.size() == 7);
  for (int i = -3; i <= 3; ++i)
    CHECK(rank.calls[static_cast<std::size_t>(i + 3)].number == static_cast<std::uint32_t>(i));
}

TEST_CASE("events: the first error stays, and a long one is cut") {
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  ring->fail(std::string(1000, 'x'));
  ring->fail("another");
  const std::string failure = seen().at(0).failure.value().error;
  CHECK(failure.size() > 300);
  CHECK(failure == std::string(failure.size(), 'x'));
}

TEST_CASE("events: a queued operation waits for its stream, and that stays if the communicator fails meanwhile") {
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  ring->set_behind(true);
  const auto since_ns = seen().at(0).behind_since_ns;
  REQUIRE(since_ns);
  ring->set_behind(true);
  CHECK(seen().at(0).behind_since_ns == since_ns);
  ring->set_behind(false);
  CHECK_FALSE(seen().at(0).behind_since_ns);
  ring->set_behind(true);
  ring->fail("a timeout");
  ring->set_behind(false);
  CHECK(seen().at(0).behind_since_ns);
}

TEST_CASE("events: texts of plans that do not fit are left out") {
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  for (std::uint32_t hash = 1; hash <= 3 * kPlans; ++hash) ring->name_plan(hash, "plan " + std::to_string(hash));
  for (std::uint32_t hash = 1; hash <= 3 * kPlans; ++hash) {
    call(*ring, 1, 4);
    ring->event(1).plan.store(hash);
    const std::string plan = seen().at(0).calls.at(0).plan;
    CHECK((plan == "plan " + std::to_string(hash) || (plan.empty() && hash > kPlans)));
  }
}

TEST_CASE("events: a place is used again, without what was there") {
  auto first = EventRing::open(kCommunicator, 0, 2);
  auto second = EventRing::open(kCommunicator + 1, 0, 2);
  call(*first, 1, 4);
  first->fail("gone");
  CHECK(seen().size() == 2);
  first.reset();
  REQUIRE(seen().size() == 1);
  CHECK(seen()[0].communicator == kCommunicator + 1);
  first = EventRing::open(kCommunicator + 2, 1, 2);
  const std::vector<SeenRank> ranks = seen();
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].communicator == kCommunicator + 2);
  CHECK(ranks[0].calls.empty());
  CHECK_FALSE(ranks[0].failure);
}

TEST_CASE("events: one descriptor for all rings, and none after the last") {
  const int before = open_descriptors();
  CHECK(read_process(::getpid()).status().code() == Code::kInvalidArgument);
  std::vector<std::unique_ptr<EventRing>> rings;
  for (int i = 0; i < 20; ++i) rings.push_back(EventRing::open(kCommunicator + static_cast<std::uint64_t>(i), 0, 1));
  CHECK(open_descriptors() == before + 1);
  CHECK(seen().size() == 20);
  rings.clear();
  CHECK(open_descriptors() == before);
}

TEST_CASE("events: a reader without a descriptor says so") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  const int lowest = ::dup(0);
  REQUIRE(lowest >= 0);
  ::close(lowest);
  CHECK(read_all_processes().complete);
  // None; then one: enough for a folder, and not for a file in it.
  for (const int free : {0, 1}) {
    const rlimit few{static_cast<rlim_t>(lowest + free), limit.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    const SeenProcesses seen = read_all_processes();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK_FALSE(seen.complete);
  }
}

TEST_CASE("events: without a descriptor, the ring serves its process alone") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none{0, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  call(*ring, 5, 4);
  CHECK(ring->event(5).count.load() == 4);
  CHECK(seen().empty());
  const auto next = EventRing::open(kCommunicator, 0, 2);
  CHECK(seen().size() == 1);
}

TEST_CASE("events: a file that may not grow leaves no descriptor") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const int before = open_descriptors();
  const rlimit none{0, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  CHECK(open_descriptors() == before);
  CHECK(seen().empty());
}

TEST_CASE("events: with TUTTI_METRICS, a reader sees what the rank has measured") {
  const internal::test::Variable metrics("TUTTI_METRICS", "prom:/none");
  std::uint64_t position = keep_ended();
  auto first = EventRing::open(kCommunicator, 0, 2);
  auto second = EventRing::open(kCommunicator + 1, 1, 3);
  second->set_hosts(2);
  CHECK(second->records());
  call(*second, 1, 4);
  second->set_inside(true);
  second->note_wait(1, {3});  // a short one does not count
  second->note_wait(60, {2});
  second->note_wait(20, {0});
  ::usleep(2000);
  second->measure_collective(Collective::kAllGather, 1000);
  second->set_inside(false);
  second->set_inside(true);
  second->set_transfer(true, 0, 400);
  second->measure_transfer(true, 1, 400, ticks());
  second->measure_transfer(false, 1, 100, ticks());
  second->set_inside(false);
  const std::vector<SeenRank> ranks = seen();
  REQUIRE(ranks.size() == 2);
  REQUIRE(ranks[0].measures);
  CHECK(ranks[0].measures->operations.empty());
  REQUIRE(ranks[1].measures);
  const SeenMeasures& measures = *ranks[1].measures;
  CHECK(measures.hosts == 2);
  CHECK(measures.waits == 1);
  CHECK(measures.waited_ms == 60);
  REQUIRE(measures.late.size() == 1);
  CHECK(measures.late[0].rank == 2);
  REQUIRE(measures.operations.size() == 3);
  CHECK(measures.operations[0].kind == static_cast<int>(Collective::kAllGather));
  CHECK(measures.operations[0].bytes == 1000);
  CHECK(measures.operations[0].count() == 1);
  CHECK(measures.operations[0].last == 1);
  CHECK(measures.operations[0].ns >= 1'900'000);
  CHECK(measures.operations[1].kind == kSends);
  CHECK(measures.operations[1].waited_ms == 0);
  CHECK(measures.operations[2].kind == kReceives);
  // What has ended can be read once more.
  second.reset();
  const std::vector<EndedMeasures> ended = ended_after(&position);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].communicator == kCommunicator + 1);
  CHECK(ended[0].rank == 1);
  CHECK(ended[0].ranks == 3);
  CHECK(ended[0].measures.operations.size() == 3);
  CHECK(ended_after(&position).empty());
  // The next one begins with zeros.
  second = EventRing::open(kCommunicator + 2, 1, 3);
  CHECK(seen().at(1).measures->operations.empty());
}

TEST_CASE("events: without TUTTI_METRICS, a rank measures nothing") {
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  CHECK_FALSE(ring->records());
  CHECK_FALSE(seen().at(0).measures);
}

TEST_CASE("events: what a rank did before a call that it makes after a long time") {
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  const auto begin = [&](std::uint32_t number) {
    call(*ring, number, 4);
    ring->set_begun(ticks());
    ring->set_inside(true);
    ring->set_inside(false);
  };
  begin(1);
  begin(2);
  for (const bool computes : {true, false}) {
    const std::int64_t end = now_ns() + 150'000'000;
    while (computes && now_ns() < end) {
    }
    if (!computes) ::usleep(150'000);
    const std::optional<Outside> now = ring->present_outside();
    begin(computes ? 3 : 4);
    const SeenRank rank = seen().at(0);
    REQUIRE(rank.calls.back().number == (computes ? 3 : 4));
    REQUIRE(now);
    REQUIRE(rank.calls.back().before);
    for (const Outside& outside : {*now, *rank.calls.back().before}) {
      CHECK(outside.us >= 100'000);
      CHECK(outside.run_us + outside.delay_us <= outside.us);
      // A busy machine gives a processor late.
      CHECK((outside.run_us + outside.delay_us > outside.us / 2) >= computes);
      if (!computes) CHECK(outside.us - outside.run_us - outside.delay_us >= 100'000);
    }
  }
}

TEST_CASE("events: the longest waits for bytes and for room count") {
  const auto ring = EventRing::open(kCommunicator, 0, 9);
  call(*ring, 1, 4);
  ring->note_link(3, false, 15'000'000);
  CHECK(seen().at(0).calls.back().data.peer == -1);
  ring->note_link(3, false, 15'000'000);
  ring->note_link(4, false, 90'000'000);
  ring->note_link(3, false, 15'000'000);
  ring->note_link(5, true, 25'000'000);
  const SeenCall first = seen().at(0).calls.back();
  CHECK(first.data.peer == 4);
  CHECK(first.data.us == 90'000);
  CHECK(first.room.peer == 5);
  CHECK(first.room.us == 25'000);
  CHECK_FALSE(first.before);
  call(*ring, 2, 4);
  CHECK(seen().at(0).calls.back().data.peer == -1);
  ring->note_link(5, false, 25'000'000);
  CHECK(seen().at(0).calls.back().data.us == 25'000);
}

TEST_CASE("events: a forked child leaves its parent's rings as they are", "[fork]") {
  auto ring = EventRing::open(kCommunicator, 0, 2);
  call(*ring, 1, 4);
  const pid_t child = ::fork();
  if (child == 0) {
    // It has its parent's file, but no communicator.
    const bool none = read_process(::getpid()).status().code() == Code::kInvalidArgument;
    auto own = EventRing::open(kCommunicator + 1, 1, 2);
    ring.reset();
    auto process = read_process(::getpid());
    const bool has_own = process.is_ok() && process->ranks.size() == 1 && process->ranks[0].rank == 1;
    ::_exit(none && has_own ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  REQUIRE(seen().size() == 1);
  CHECK(seen()[0].calls.size() == 1);
}

TEST_CASE("events: a process whose name has a line break") {
  std::array<char, 16> before{};
  REQUIRE(::prctl(PR_GET_NAME, before.data()) == 0);
  REQUIRE(::prctl(PR_SET_NAME, "a) Z\nb") == 0);
  const auto ring = EventRing::open(0xabc, 0, 2);
  auto process = read_process(::getpid());
  REQUIRE(::prctl(PR_SET_NAME, before.data()) == 0);
  REQUIRE(process.is_ok());
  CHECK(process->program == "a) Z?b");
  CHECK((process->state == 'R' || process->state == 'S'));
  CHECK(!stat_of("0"));
}

TEST_CASE("events: a process that does not exist") {
  CHECK(read_process(0x7fffffff).status().code() == Code::kInvalidArgument);
}

}  // namespace tutti::internal::observe::test
