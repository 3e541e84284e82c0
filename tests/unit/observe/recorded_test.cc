// Files of events that outlive their process.
#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "catch_compat.h"
#include "observe/event_ring.h"
#include "observe/origin.h"
#include "observe/reader.h"
#include "observe/recorded_file.h"
#include "os/clock.h"
#include "os/ticks.h"

namespace tutti::internal::observe::test {
namespace {

constexpr std::uint64_t kCommunicator = 77;

// A folder in which the processes of a test record; the setting ends with it.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "recorded.XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
    ::setenv("TUTTI_FLIGHT_RECORDER", path_.c_str(), 1);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    ::unsetenv("TUTTI_FLIGHT_RECORDER");
    std::filesystem::remove_all(path_);
  }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<SeenProcess> read() const {
    auto seen = read_folder(path_);
    REQUIRE(seen.is_ok());
    CHECK(seen->unreadable == 0);
    CHECK(seen->others.empty());
    return std::move(seen->processes);
  }
  [[nodiscard]] std::size_t files() const { return find_recorded(path_, kEventsKind)->size(); }
  // Of this process, in a container without others.
  [[nodiscard]] std::string own_file() const {
    std::array<char, 256> host{};
    REQUIRE(::gethostname(host.data(), host.size() - 1) == 0);
    return fmt::format("{}/tutti-{}-{}.events", path_, host.data(), ::getpid());
  }

 private:
  std::string path_;
};

void call(EventRing& ring, std::uint32_t number) {
  ring.at().sequence.store(number);
  Event& event = ring.event(number);
  event.state.store(0);
  event.count.store(5);
  event.begun.store(ticks());
  event.state.store(Event::written(number));
}

// Runs `body` in a child, which then waits to be killed. It is killed after `meanwhile`.
template <class Body, class Meanwhile>
void kill_after(Body body, Meanwhile meanwhile) {
  std::array<int, 2> ready{};
  REQUIRE(::pipe(ready.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    [[maybe_unused]] const auto kept = body();
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  // Also if a requirement fails.
  struct End {
    pid_t child;
    std::array<int, 2> ready;
    ~End() {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      ::close(ready[0]);
      ::close(ready[1]);
    }
  } const end{child, ready};
  char done = 0;
  REQUIRE(::read(ready[0], &done, 1) == 1);
  meanwhile();
}

// Exit status of a forked child: 0: all was right; 77: it lacks a right, and `lacks` says which.
void check_child(pid_t child, const char* lacks) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    WARN(lacks);
  } else {
    CHECK(WEXITSTATUS(status) == 0);
  }
}

}  // namespace

TEST_CASE("recorded events: the file of a process without failures goes with its last communicator") {
  const Folder folder;
  auto first = EventRing::open(kCommunicator, 0, 2);
  auto second = EventRing::open(kCommunicator + 1, 1, 2);
  call(*first, 3);
  const auto processes = folder.read();
  REQUIRE(processes.size() == 1);
  CHECK(processes[0].pid == ::getpid());
  CHECK_FALSE(processes[0].ended);
  CHECK(processes[0].state == 'R');
  REQUIRE(processes[0].ranks.size() == 2);
  CHECK(processes[0].ranks[0].number == 3);
  CHECK(read_process(::getpid())->ranks.size() == 2);
  first.reset();
  CHECK(folder.files() == 1);
  second.reset();
  CHECK(folder.files() == 0);
  // It can be read without its name, too.
  first = EventRing::open(kCommunicator, 0, 2);
  std::filesystem::remove(folder.own_file());
  CHECK(read_process(::getpid())->ranks.size() == 1);
}

TEST_CASE("recorded events: a killed process leaves what it did", "[fork]") {
  const Folder folder;
  const std::int64_t begun_ns = now_ns();
  kill_after(
      [] {
        auto ring = EventRing::open(kCommunicator, 2, 3);
        call(*ring, 7);
        ring->set_inside(true);
        ::usleep(20'000);
        ring->note_wait(20, {1});
        return ring;
      },
      [&] {
        REQUIRE(folder.read().size() == 1);
        CHECK_FALSE(folder.read()[0].ended);
      });
  const auto processes = folder.read();
  REQUIRE(processes.size() == 1);
  CHECK(processes[0].ended);
  CHECK(processes[0].state == '?');
  CHECK_FALSE(processes[0].program.empty());
  REQUIRE(processes[0].ranks.size() == 1);
  const SeenRank& rank = processes[0].ranks[0];
  CHECK(rank.inside);
  CHECK_FALSE(rank.failure);
  REQUIRE(rank.wait);
  CHECK(rank.wait->ms == 20);
  CHECK(rank.wait->ranks == std::vector<int>{1});
  REQUIRE(rank.last() != nullptr);
  REQUIRE(rank.last()->begun_ns);
  CHECK(*rank.last()->begun_ns >= begun_ns);
  // The last event is the report of the wait.
  CHECK(rank.last_ns - *rank.last()->begun_ns >= 10'000'000);
  CHECK(rank.last_ns <= now_ns());
}

TEST_CASE("recorded events: a failed communicator stays as it was, also if it is given back", "[fork]") {
  const Folder folder;
  kill_after(
      [] {
        auto other = EventRing::open(kCommunicator + 1, 0, 2);
        auto ring = EventRing::open(kCommunicator, 0, 2);
        call(*ring, 4);
        ring->set_inside(true);
        ring->set_transfer(false, 1, 400);
        ring->note_wait(15, {1});
        ::usleep(20'000);
        ring->fail("rank 1 has died");
        ring->set_inside(false);
        ring.reset();
        other.reset();
        // Later ones stand beside it.
        EventRing::open(kCommunicator + 2, 0, 2).reset();
        return EventRing::open(kCommunicator + 3, 0, 2);
      },
      [] {});
  const auto processes = folder.read();
  REQUIRE(processes.size() == 1);
  CHECK(processes[0].ended);
  REQUIRE(processes[0].ranks.size() == 2);
  CHECK(processes[0].ranks[0].communicator == kCommunicator + 3);
  const SeenRank& rank = processes[0].ranks[1];
  CHECK(rank.communicator == kCommunicator);
  REQUIRE(rank.failure);
  CHECK(rank.failure->error == "rank 1 has died");
  CHECK(rank.failure->inside);
  CHECK(rank.failure->at_ns > 0);
  CHECK_FALSE(rank.inside);
  CHECK_FALSE(rank.wait);
  CHECK_FALSE(rank.transfer);
  REQUIRE(rank.failure->transfer);
  CHECK(rank.failure->transfer->bytes == 400);
  REQUIRE(rank.failure->wait);
  CHECK(rank.failure->wait->ms >= 25);
  CHECK(rank.failure->wait->ranks == std::vector<int>{1});
}

TEST_CASE("recorded events: at most 64 failed communicators are kept", "[fork]") {
  const Folder folder;
  kill_after(
      [] {
        auto lasting = EventRing::open(kCommunicator, 0, 2);
        for (std::uint64_t i = 1; i <= 100; ++i) EventRing::open(kCommunicator + i, 0, 2)->fail("gone");
        return lasting;
      },
      [] {});
  const auto processes = folder.read();
  REQUIRE(processes.size() == 1);
  CHECK(processes[0].ranks.size() == 65);
}

TEST_CASE("recorded events: a file that is there stays") {
  const Folder folder;
  const std::string name = folder.own_file();
  { std::ofstream(name) << "of an earlier process, or of one in another container"; }
  auto ring = EventRing::open(kCommunicator, 0, 2);
  CHECK(folder.files() == 2);
  CHECK(folder.read().size() == 1);
  CHECK(std::filesystem::exists(name.substr(0, name.size() - 7) + "-2.events"));
  ring.reset();
  CHECK(folder.files() == 1);
}

TEST_CASE("recorded events: a killed process has ended, even if a child that it has forked lives", "[fork]") {
  const Folder folder;
  std::array<int, 2> end{};
  REQUIRE(::pipe(end.data()) == 0);
  kill_after(
      [&] {
        auto ring = EventRing::open(kCommunicator, 0, 2);
        call(*ring, 1);
        if (::fork() == 0) {
          // Until the test closes its side.
          ::close(end[1]);
          char none = 0;
          (void)!::read(end[0], &none, 1);
          ::_exit(0);
        }
        return ring;
      },
      [&] { CHECK_FALSE(folder.read().at(0).ended); });
  CHECK(folder.read().at(0).ended);
  ::close(end[1]);
  ::close(end[0]);
}

TEST_CASE("recorded events: if a process has ended, the last event of its own job is its end", "[fork]") {
  const Folder folder;
  for (const std::uint64_t communicator : {kCommunicator, kCommunicator + 1}) {
    kill_after(
        [&] {
          auto ring = EventRing::open(communicator, 0, 2);
          call(*ring, 1);
          ring->note_wait(1, {1});
          return ring;
        },
        [] {});
    ::usleep(20'000);
  }
  const auto processes = folder.read();
  REQUIRE(processes.size() == 2);
  const std::int64_t apart_ns = processes[0].ranks[0].last_ns - processes[1].ranks[0].last_ns;
  CHECK(std::abs(apart_ns) >= 10'000'000);
}

TEST_CASE("recorded events: without a folder that can be used, memory is used") {
  const Folder folder;
  ::setenv("TUTTI_FLIGHT_RECORDER", (folder.path() + "/none/below").c_str(), 1);
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  CHECK(read_process(::getpid())->ranks.size() == 1);
  CHECK(folder.files() == 0);
  CHECK(read_folder(folder.path() + "/none").status().code() == Code::kInvalidArgument);
}

// Exit status of the child: see check_child().
TEST_CASE("recorded events: in a folder without room, memory is used", "[fork]") {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool apart = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
    // Room for the header, and not for a ring.
    const bool small = apart && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       ::mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=8k") == 0;
    if (!small) ::_exit(77);
    const auto ring = EventRing::open(kCommunicator, 0, 2);
    const bool seen = read_process(::getpid()).is_ok();
    ::_exit(seen && folder.files() == 0 ? 0 : 1);
  }
  check_child(child, "needs the right to mount");
}

// As with `unshare --pid --fork` without --mount-proc.
TEST_CASE("recorded events: with /proc of an outer namespace, a process finds itself and has not ended", "[fork]") {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWPID) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) ::_exit(77);
    const pid_t first = ::fork();
    if (first == 0) {
      const auto ring = EventRing::open(kCommunicator, 0, 2);
      const auto seen = folder.read();
      const bool found = read_process(number_in_proc(::getpid())).is_ok();
      ::_exit(found && seen.size() == 1 && !seen[0].ended ? 0 : 1);
    }
    int status = 0;
    ::_exit(::waitpid(first, &status, 0) == first && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  check_child(child, "needs the right to make namespaces");
}

TEST_CASE("recorded events: files of others, and damaged ones") {
  const Folder folder;
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  { std::ofstream(folder.path() + "/tutti-a-1.events") << ""; }
  { std::ofstream(folder.path() + "/tutti-a-2.events") << std::string(100'000, 'x'); }
  { std::ofstream(folder.path() + "/notes.txt") << "x"; }
  REQUIRE(::mkfifo((folder.path() + "/tutti-a-3.events").c_str(), 0600) == 0);
  // The whole file of this process, cut at every length of its header and first ring, and with random bytes.
  std::ifstream file(folder.own_file(), std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  REQUIRE(whole.size() == kHeaderBytes + kRingBytes);
  const std::string copy = folder.path() + "/tutti-a-4.events";
  for (std::size_t length = 0; length < whole.size(); length += 61) {
    { std::ofstream(copy, std::ios::binary) << whole.substr(0, length); }
    auto seen = read_folder(folder.path());
    REQUIRE(seen.is_ok());
    // The ring may be whole before the file is.
    CHECK((seen->processes.size() == 1 || length > kHeaderBytes));
  }
  unsigned state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 20; ++i) {
      state = state * 1664525 + 1013904223;
      damaged[100 + (state >> 8) % (damaged.size() - 100)] = static_cast<char>(state >> 4);
    }
    { std::ofstream(copy, std::ios::binary) << damaged; }
    CHECK(read_folder(folder.path()).is_ok());
  }
}

TEST_CASE("recorded events: a folder may have more files than a process may open") {
  const Folder folder;
  const auto ring = EventRing::open(kCommunicator, 0, 2);
  constexpr std::size_t kCopies = 60;
  for (std::size_t i = 0; i < kCopies; ++i) {
    std::filesystem::copy_file(folder.own_file(), fmt::format("{}/tutti-a-{}.events", folder.path(), i));
  }
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const int lowest = ::dup(0);
  ::close(lowest);
  const rlimit few{static_cast<rlim_t>(lowest) + kCopies / 3, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  const std::size_t found = folder.read().size();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(found == kCopies + 1);
}

TEST_CASE("recorded events: a file that may not be read is named") {
  const Folder folder;
  const std::string loop = folder.path() + "/tutti-a-1.events";
  REQUIRE(::symlink(loop.c_str(), loop.c_str()) == 0);
  auto seen = read_folder(folder.path());
  REQUIRE(seen.is_ok());
  REQUIRE(seen->others.size() == 1);
  CHECK(seen->others.front().find(loop) != std::string::npos);
}

TEST_CASE("recorded events: a request for a dump does not end the process", "[fork]") {
  const Folder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto ring = EventRing::open(kCommunicator, 0, 2);
    ::raise(SIGUSR2);
    ::_exit(7);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}

}  // namespace tutti::internal::observe::test
