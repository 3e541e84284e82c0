// Ranks that die while the job initialises, at every stage: all other ranks soon report the right rank.
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <optional>

#include "by_hand.h"
#include "catch_compat.h"
#include "join/root_service.h"
#include "join/unique_id.h"
#include "ranks.h"

using namespace tutti::internal;
using tutti::internal::test::Child;
using tutti::internal::test::connect_to;
using tutti::internal::test::on_threads;
using tutti::internal::test::registration_of;

namespace {

constexpr std::int64_t kInitMs = 120'000;  // no rank may wait this long
constexpr std::int64_t kSoonMs = 20'000;   // a second, with time for other work on a busy machine

// Where the victim dies.
enum class Stage {
  kConnected,    // the root has its connection, but no byte of it
  kRegistered,   // the root knows it, other ranks have not come yet
  kDirectPut,    // it knows its place, and has no connection
  kToParent,     // it has its parent, but has not told the root
  kInTree,       // its part of the tree is complete
  kFirstGather,  // it has completed the first all-gather
  kSecondGather,
};

Settings loopback() {
  Settings settings;
  settings.interface = "lo";
  return settings;
}

Deadline init_deadline() {
  return Deadline::after_ms(kInitMs);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

[[noreturn]] void die() {
  ::raise(SIGKILL);
  ::_exit(3);
}

// The steps of join() up to `stage`, by hand; ends the process there.
[[noreturn]] void die_while_joining(const UniqueIdBytes& id, int rank, int ranks, Stage stage) {
  const RootContact contact = decode_unique_id(id).value();
  net::ByteStream root = connect_to(contact.addresses, contact.secret, {net::Purpose::kRoot, rank, 0, 1}, -1);
  if (stage == Stage::kConnected) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    die();
  }
  // The ranks that look for this rank there find no process: its children cannot connect before it dies.
  const Registration registration = registration_of(rank, ranks, kInitMs, {"127.0.0.1:9"});
  if (!net::send_frame(&root, registration.serialize(), init_deadline()).is_ok()) ::_exit(3);
  if (stage == Stage::kRegistered) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    die();
  }
  Result<std::string> answer = net::recv_frame(&root, 1 << 16, init_deadline());
  if (!answer.is_ok()) ::_exit(3);
  const Placement placement = Placement::parse(*answer).value();
  if (stage == Stage::kDirectPut || rank == 0) die();
  std::vector<net::Address> parent;
  for (const std::string& text : placement.parent_addresses) parent.push_back(net::parse_address(text).value());
  const Secret session = session_secret(contact.secret, placement.nonce).value();
  const net::ByteStream up = connect_to(parent, session, {net::Purpose::kTree, rank, 0, 1}, tree_parent(rank));
  die();
}

[[noreturn]] void die_at(const UniqueIdBytes& id, int rank, int ranks, Stage stage) {
  if (stage <= Stage::kToParent) die_while_joining(id, rank, ranks, stage);
  Result<Job> job = join(id, rank, ranks, loopback(), init_deadline());
  if (!job.is_ok()) ::_exit(3);
  if (stage >= Stage::kFirstGather && !job->tree->all_gather("x", init_deadline()).is_ok()) ::_exit(3);
  if (stage >= Stage::kSecondGather && !job->tree->all_gather("y", init_deadline()).is_ok()) ::_exit(3);
  die();
}

// The steps of a survivor, as far as it gets: three all-gathers.
Status survive(const UniqueIdBytes& id, int rank, int ranks) {
  Result<Job> job = join(id, rank, ranks, loopback(), init_deadline());
  if (!job.is_ok()) return job.status();
  for (int round = 0; round < 3; ++round) {
    const Status s = job->tree->all_gather("x", init_deadline()).status();
    if (!s.is_ok()) {
      job->tree->leave();
      return s;
    }
  }
  return {};
}

struct Survivors {
  std::vector<Status> statuses;
  bool in_time = false;
};

// All ranks except the victim, as threads of this process. With `late`, one of them registers only after the victim's
// death.
Survivors run_survivors(const UniqueIdBytes& id, int victim, int ranks, std::int64_t late_ms) {
  Survivors result;
  result.statuses.resize(static_cast<std::size_t>(ranks));
  const Deadline soon = Deadline::after_ms(kSoonMs);
  const int late = victim == ranks - 1 ? ranks - 2 : ranks - 1;
  on_threads(ranks, [&](int rank) {
    if (rank == victim) return;
    if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
    result.statuses[static_cast<std::size_t>(rank)] = survive(id, rank, ranks);
  });
  result.in_time = !soon.passed();
  return result;
}

// `or_root`: the victim's process runs the root, which may end before all ranks have their places. `named`: the
// victim's process is known and in the text.
void check_survivors(const Survivors& survivors, int victim, bool or_root, bool named = true) {
  CHECK(survivors.in_time);
  for (std::size_t rank = 0; rank < survivors.statuses.size(); ++rank) {
    if (static_cast<int>(rank) == victim) continue;
    const Status& status = survivors.statuses[rank];
    INFO("rank " << rank << ": " << code_name(status.code()) << ": " << status.message());
    CHECK(status.code() == Code::kRemoteError);
    if (or_root && contains(status.message(), "the root service (in the process of rank 0, or")) continue;
    CHECK(contains(status.message(), "rank " + std::to_string(victim) + (named ? " (host " : " ")));
    CHECK(contains(status.message(), "died"));
    // No other rank is named.
    for (std::size_t other = 0; other < survivors.statuses.size(); ++other) {
      if (static_cast<int>(other) == victim) continue;
      CHECK_FALSE(contains(status.message(), "rank " + std::to_string(other) + " (host "));
    }
  }
}

void one_dies(int victim, int ranks, Stage stage) {
  INFO("rank " << victim << " of " << ranks << " dies at stage " << static_cast<int>(stage));
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  Child child([&]() -> int { die_at(*id, victim, ranks, stage); });
  const Survivors survivors = run_survivors(*id, victim, ranks, stage <= Stage::kRegistered ? 1000 : 0);
  CHECK(child.wait() == -1);  // by the signal, if it should
  check_survivors(survivors, victim, false, stage != Stage::kConnected);
}

}  // namespace

TEST_CASE("a rank that dies during the initialisation is named by all others", "[fork]") {
  const Stage stage = GENERATE(Stage::kConnected, Stage::kRegistered, Stage::kDirectPut, Stage::kToParent,
                               Stage::kInTree, Stage::kFirstGather, Stage::kSecondGather);
  one_dies(0, 2, stage);
  one_dies(1, 2, stage);
  one_dies(0, 3, stage);
  one_dies(2, 4, stage);
  one_dies(0, 8, stage);
  one_dies(1, 8, stage);  // has children
  one_dies(7, 8, stage);
}

TEST_CASE("rank 0 that dies with the root in its process is named as well", "[fork]") {
  const Stage stage = GENERATE(Stage::kDirectPut, Stage::kInTree, Stage::kFirstGather);
  for (const int ranks : {2, 3, 8}) {
    INFO(ranks << " ranks, stage " << static_cast<int>(stage));
    int fds[2] = {-1, -1};
    REQUIRE(::pipe(fds) == 0);
    const UniqueFd reader(fds[0]);
    const UniqueFd writer(fds[1]);
    Child child([&]() -> int {
      Result<UniqueIdBytes> id = create_unique_id(loopback());
      if (!id.is_ok() || ::write(writer.get(), id->data(), id->size()) < 0) return 3;
      die_at(*id, 0, ranks, stage);
    });
    UniqueIdBytes id{};
    REQUIRE(::read(reader.get(), id.data(), id.size()) == static_cast<ssize_t>(id.size()));
    const Survivors survivors = run_survivors(id, 0, ranks, 0);
    CHECK(child.wait() == -1);
    check_survivors(survivors, 0, stage == Stage::kDirectPut);
  }
}

TEST_CASE("ranks that have not registered when the first dies hear of it from rank 0's process, which ends", "[fork]") {
  constexpr int kRanks = 4;
  for (int round = 0; round < 3; ++round) {
    int fds[2] = {-1, -1};
    REQUIRE(::pipe(fds) == 0);
    const UniqueFd reader(fds[0]);
    const UniqueFd writer(fds[1]);
    Child first([&]() -> int {
      Result<UniqueIdBytes> id = create_unique_id(loopback());
      if (!id.is_ok() || ::write(writer.get(), id->data(), id->size()) < 0) return 3;
      const Status status = survive(*id, 0, kRanks);
      return contains(status.message(), "rank 1 (host ") ? 0 : 4;
    });
    UniqueIdBytes id{};
    REQUIRE(::read(reader.get(), id.data(), id.size()) == static_cast<ssize_t>(id.size()));
    Child victim([&]() -> int { die_while_joining(id, 1, kRanks, Stage::kRegistered); });
    CHECK(victim.wait() == -1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // rank 0 has received it
    std::vector<Status> statuses(kRanks);
    on_threads(kRanks, [&](int rank) {
      if (rank >= 2) statuses[static_cast<std::size_t>(rank)] = survive(id, rank, kRanks);
    });
    for (std::size_t rank = 2; rank < kRanks; ++rank) {
      INFO("rank " << rank << ": " << statuses[rank].message());
      CHECK(contains(statuses[rank].message(), "rank 1 (host "));
    }
    CHECK(first.wait() == 0);
  }
}

TEST_CASE("a process that made the id without being a rank may end once all ranks have joined", "[fork]") {
  constexpr int kRanks = 3;
  int fds[2] = {-1, -1};
  REQUIRE(::pipe(fds) == 0);
  const UniqueFd reader(fds[0]);
  const UniqueFd writer(fds[1]);
  Child maker([&]() -> int {
    Result<UniqueIdBytes> id = create_unique_id(loopback());
    if (!id.is_ok() || ::write(writer.get(), id->data(), id->size()) < 0) return 3;
    ::sleep(120);
    return 0;
  });
  UniqueIdBytes id{};
  REQUIRE(::read(reader.get(), id.data(), id.size()) == static_cast<ssize_t>(id.size()));
  std::vector<Status> statuses(kRanks);
  on_threads(kRanks, [&](int rank) {
    Result<Job> job = join(id, rank, kRanks, loopback(), init_deadline());
    // The other ranks are joining or have joined: rank 1 has its place, so all ranks are placed.
    if (rank == 1) maker.kill(SIGKILL);
    Status s = job.status();
    for (int round = 0; round < 2 && s.is_ok(); ++round) s = job->tree->all_gather("x", init_deadline()).status();
    statuses[static_cast<std::size_t>(rank)] = s;
  });
  for (const Status& status : statuses) {
    INFO(status.message());
    CHECK(status.is_ok());
  }
}

TEST_CASE("a rank that cannot take part tells the others why", "[fork]") {
  Result<UniqueIdBytes> id = create_unique_id(loopback());
  REQUIRE(id.is_ok());
  Result<UniqueFd> taken = net::listen_tcp(0, 0);
  REQUIRE(taken.is_ok());
  const int port = net::local_address(taken->get())->port();
  std::vector<Status> statuses(6);
  const Deadline soon = Deadline::after_ms(kSoonMs);
  on_threads(6, [&](int rank) {
    Settings settings = loopback();
    if (rank == 1) settings.port_low = settings.port_high = port;
    statuses[static_cast<std::size_t>(rank)] = join(*id, rank, 6, settings, init_deadline()).status();  // all fail
  });
  CHECK_FALSE(soon.passed());
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    INFO("rank " << rank << ": " << statuses[rank].message());
    CHECK(statuses[rank].code() == (rank == 1 ? Code::kSystemError : Code::kRemoteError));
    CHECK(contains(statuses[rank].message(), "cannot listen on TCP port"));
    if (rank != 1) CHECK(contains(statuses[rank].message(), "rank 1 (host "));
  }
}

TEST_CASE("a rank that declines fails the others, whichever it is", "[fork]") {
  const Status why = Status::invalid_usage("it has pigeons");
  for (const bool by_id : {true, false}) {
    for (const int declining : {0, 1, 5}) {
      INFO("rank " << declining << (by_id ? ", by id" : ", at a known root"));
      Result<UniqueIdBytes> id = create_unique_id(loopback());
      REQUIRE(id.is_ok());
      Result<UniqueFd> free = net::listen_tcp(0, 0);
      REQUIRE(free.is_ok());
      const KnownRoot root{"127.0.0.1", {net::local_address(free->get())->port()}, "job"};
      free->reset();
      std::vector<Status> statuses(6);
      const Deadline soon = Deadline::after_ms(kSoonMs);
      on_threads(6, [&](int rank) {
        const auto take_part = [&](const auto& where) {
          if (rank == declining) return decline(where, rank, 6, why, init_deadline());
          statuses[static_cast<std::size_t>(rank)] = join(where, rank, 6, loopback(), init_deadline()).status();
        };
        if (by_id) {
          take_part(*id);
        } else {
          take_part(root);
        }
      });
      CHECK_FALSE(soon.passed());
      for (int rank = 0; rank < 6; ++rank) {
        if (rank == declining) continue;
        const Status& status = statuses[static_cast<std::size_t>(rank)];
        INFO("rank " << rank << ": " << status.message());
        CHECK(status.code() == Code::kRemoteError);
        CHECK(contains(status.message(), "rank " + std::to_string(declining) + " (host "));
        CHECK(contains(status.message(), why.message()));
      }
    }
  }
}
