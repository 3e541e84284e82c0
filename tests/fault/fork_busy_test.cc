// A process that forks while its communicators are running operations; the child ends in every possible way: it neither
// hangs nor harms its parent's communicators.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

#include "forked.h"

namespace tutti::internal::test {
namespace {

using Pair = std::array<tuttiComm_t, 2>;

Pair join(const char* transports) {
  ::setenv("TUTTI_TRANSPORTS", transports, 1);
  Pair comms{};
  tuttiUniqueId id;
  REQUIRE(tuttiGetUniqueId(&id) == tuttiSuccess);
  tuttiResult_t joined = tuttiInternalError;
  std::thread rank_1([&] { joined = tuttiCommInitRank(&comms[1], 2, id, 1); });
  const tuttiResult_t mine = tuttiCommInitRank(&comms[0], 2, id, 0);
  rank_1.join();
  ::unsetenv("TUTTI_TRANSPORTS");
  REQUIRE((mine == tuttiSuccess && joined == tuttiSuccess));
  return comms;
}

// The state that children inherit: ranks that share memory, and ranks connected by sockets.
struct Parent {
  Parent() : pairs{Pair{}, join("shm"), join("tcp")} {
    REQUIRE(tuttiCommInitAll(pairs[0].data(), 2, nullptr) == tuttiSuccess);
    for (tuttiStream_t& stream : streams) REQUIRE(tuttiStreamCreate(&stream) == tuttiSuccess);
  }
  Parent(const Parent&) = delete;
  Parent& operator=(const Parent&) = delete;
  ~Parent() {
    for (const Pair& pair : pairs) {
      CHECK(try_out(pair, nullptr) == "");
      CHECK(try_out(pair, streams[0]) == "");
      std::thread rank_1([&] { (void)tuttiCommDestroy(pair[1]); });
      CHECK(tuttiCommDestroy(pair[0]) == tuttiSuccess);
      rank_1.join();
    }
    for (const tuttiStream_t stream : streams) CHECK(tuttiStreamDestroy(stream) == tuttiSuccess);
  }

  std::array<Pair, 3> pairs;
  std::array<tuttiStream_t, 2> streams{};
};

// In a child: every object of its parent is refused.
std::string destroy_all(const Parent& parent) {
  for (const Pair& pair : parent.pairs) {
    for (const tuttiComm_t comm : pair) {
      if (tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT) != tuttiInvalidUsage) return "revoked its parent's";
      if (tuttiCommAbort(comm) != tuttiInvalidUsage) return "aborted its parent's";
      if (tuttiCommDestroy(comm) != tuttiInvalidUsage) return "destroyed its parent's";
    }
  }
  for (const tuttiStream_t stream : parent.streams) {
    if (tuttiStreamDestroy(stream) != tuttiInvalidUsage) return "destroyed its parent's stream";
  }
  return "";
}

// Destroyed when a process exits, also a child.
struct AtEnd {
  AtEnd() = default;
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
  ~AtEnd() {
    if (parent != nullptr && !destroy_all(*parent).empty()) std::_Exit(5);
  }
  const Parent* parent = nullptr;  // in a child
};
AtEnd at_end;

// The child's own: an operation that waits for its peer, and a function behind it. The exit must handle them.
std::string leave_own() {
  static Pair comms{};
  static tuttiStream_t stream = nullptr;
  static std::int32_t value = 1;
  if (tuttiCommInitAll(comms.data(), 2, nullptr) != tuttiSuccess) return tuttiGetLastError(nullptr);
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return "no stream";
  if (all_reduce(comms[0], &value, stream) != tuttiSuccess) return "not queued";
  return tuttiLaunchHostFunc(
             stream, [](void*) {}, nullptr) == tuttiSuccess
             ? ""
             : "not launched";
}

enum class Ending { kAtOnce, kExit, kDestroy, kMakeOwn };
constexpr Ending kEndings[] = {Ending::kAtOnce, Ending::kExit, Ending::kDestroy, Ending::kMakeOwn};

std::string fork_and_end(const Parent& parent, Ending ending) {
  return in_child([&]() -> std::string {
    if (ending == Ending::kAtOnce) return "";
    at_end.parent = &parent;
    std::string wrong = ending == Ending::kDestroy ? destroy_all(parent) : "";
    if (ending == Ending::kMakeOwn) {
      wrong = make_own() + join_own();
      if (wrong.empty()) wrong = leave_own();
    }
    if (!wrong.empty()) return wrong;
    ::close(STDOUT_FILENO);  // without the test's output
    std::exit(0);
  });
}

// ---- The parent's work --------------------------------------------------------------------------

// The threads that keep the parent busy.
class Work {
 public:
  Work() = default;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() { CHECK(stop() == ""); }
  [[nodiscard]] bool stopped() const { return stopped_; }
  void begin(std::function<std::string()> body) {
    threads_.emplace_back([this, body = std::move(body)] {
      if (std::string what = body(); !what.empty()) wrong_ = true;
    });
  }
  std::string stop() {
    stopped_ = true;
    for (std::thread& thread : std::exchange(threads_, {})) thread.join();
    return wrong_ ? "the parent's own work went wrong" : "";
  }

 private:
  std::atomic<bool> stopped_{false};
  std::atomic<bool> wrong_{false};
  std::vector<std::thread> threads_;
};

// Rank 0 decides the end, so that both end after the same operation.
std::string operate(const Work& work, tuttiComm_t comm, int rank) {
  for (;;) {
    const std::int32_t mine = rank == 1 ? 2 : work.stopped() ? 1 : 0;
    std::int32_t sum = mine;
    if (all_reduce(comm, &sum) != tuttiSuccess) return tuttiGetLastError(comm);
    if (sum == 3) return "";
    if (sum != 2) return "a wrong sum";
  }
}

std::string queue(const Work& work, const Pair& pair) {
  constexpr std::size_t kAtOnce = 50;
  std::array<tuttiStream_t, 2> streams{};
  for (tuttiStream_t& stream : streams) {
    if (tuttiStreamCreate(&stream) != tuttiSuccess) return "no stream";
  }
  while (!work.stopped()) {
    std::vector<std::array<std::int32_t, 2>> values(kAtOnce, {1, 2});
    for (auto& each : values) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        if (all_reduce(pair[rank], &each[rank], streams[rank]) != tuttiSuccess) return "not queued";
      }
    }
    for (const tuttiStream_t stream : streams) {
      if (tuttiStreamSynchronize(stream) != tuttiSuccess) return tuttiGetLastError(nullptr);
    }
    for (const auto& each : values) {
      if (each[0] != 3 || each[1] != 3) return "a wrong sum";
    }
  }
  for (const tuttiStream_t stream : streams) (void)tuttiStreamDestroy(stream);
  return "";
}

// Communicators come and go: the control tree has to tell all its ranks.
std::string split(const Work& work, tuttiComm_t comm, int rank) {
  for (;;) {
    std::int32_t sum = rank == 1 ? 2 : work.stopped() ? 1 : 0;
    tuttiComm_t part = nullptr;
    if (tuttiCommSplit(comm, 0, 0, &part, nullptr) != tuttiSuccess) return tuttiGetLastError(comm);
    if (all_reduce(part, &sum) != tuttiSuccess) return tuttiGetLastError(part);
    if (tuttiCommDestroy(part) != tuttiSuccess) return "not destroyed";
    if (sum == 3) return "";
    if (sum != 2) return "a wrong sum";
  }
}

// In the state that each of the forks finds.
void check_endings(const std::function<std::string(Ending)>& forks) {
  std::mt19937 random(3);
  for (int times = 0; times < 20; ++times) {
    for (const Ending ending : kEndings) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      const std::string wrong = forks(ending);
      INFO("ending " << static_cast<int>(ending));
      REQUIRE(wrong == "");
    }
  }
}

}  // namespace

TEST_CASE("a process forks while all is quiet") {
  const Parent parent;
  check_endings([&](Ending ending) { return fork_and_end(parent, ending); });
}

TEST_CASE("a process forks while other threads are in operations") {
  const Parent parent;
  Work work;
  for (const Pair& pair : parent.pairs) {
    for (int rank = 0; rank < 2; ++rank) {
      work.begin([&work, &pair, rank] { return operate(work, pair[static_cast<std::size_t>(rank)], rank); });
    }
  }
  check_endings([&](Ending ending) { return fork_and_end(parent, ending); });
}

TEST_CASE("a process forks while other threads wait in operations") {
  const Parent parent;
  Work work;
  for (const Pair& pair : parent.pairs) {
    work.begin([&] {
      std::int32_t value = 1;
      return all_reduce(pair[0], &value) == tuttiSuccess && value == 3 ? "" : "an operation failed";
    });
  }
  sleep_ms(20);
  check_endings([&](Ending ending) { return fork_and_end(parent, ending); });
  for (const Pair& pair : parent.pairs) {
    std::int32_t value = 2;
    CHECK(all_reduce(pair[1], &value) == tuttiSuccess);
  }
}

TEST_CASE("a process forks while the engine has operations") {
  const Parent parent;
  Work work;
  for (const Pair& pair : parent.pairs) {
    work.begin([&] { return queue(work, pair); });
  }
  check_endings([&](Ending ending) { return fork_and_end(parent, ending); });
}

TEST_CASE("a process forks while communicators are made, split and destroyed") {
  const Parent parent;
  Work work;
  for (const Pair& pair : parent.pairs) {
    for (int rank = 0; rank < 2; ++rank) {
      work.begin([&work, &pair, rank] { return split(work, pair[static_cast<std::size_t>(rank)], rank); });
    }
  }
  work.begin([&work] {
    std::string wrong;
    while (!work.stopped() && wrong.empty()) wrong = join_own();
    return wrong;
  });
  check_endings([&](Ending ending) { return fork_and_end(parent, ending); });
}

TEST_CASE("a process forks in a function of a stream") {
  const Parent parent;
  Work work;
  for (const Pair& pair : parent.pairs) {
    work.begin([&] { return queue(work, pair); });
  }
  struct Forks {
    const Parent& parent;
    Ending ending;
    std::string wrong;
  };
  const auto function = [](void* data) {
    auto& forks = *static_cast<Forks*>(data);
    forks.wrong = fork_and_end(forks.parent, forks.ending);
  };
  check_endings([&](Ending ending) {
    Forks forks{parent, ending, "not called"};
    if (tuttiLaunchHostFunc(parent.streams[0], function, &forks) != tuttiSuccess) return std::string("not launched");
    if (tuttiStreamSynchronize(parent.streams[0]) != tuttiSuccess) return std::string("the stream failed");
    return forks.wrong;
  });
}

// In the child, the thread of functions is the only one that continues: it ends, and the child exits.
TEST_CASE("a child returns from the function of a stream in which it was made") {
  const Parent parent;
  static std::atomic<int> after{0};
  static pid_t child = -1;
  const auto forks = [](void*) {
    child = ::fork();
    if (child != 0) return;
    ::close(STDOUT_FILENO);
    ::alarm(60);
  };
  REQUIRE(tuttiLaunchHostFunc(parent.streams[0], forks, nullptr) == tuttiSuccess);
  for (int i = 0; i < 10; ++i) {
    const auto counts = [](void*) { ++after; };
    REQUIRE(tuttiLaunchHostFunc(parent.streams[i % 2 == 0 ? 0 : 1], counts, nullptr) == tuttiSuccess);
  }
  for (const tuttiStream_t stream : parent.streams) CHECK(tuttiStreamSynchronize(stream) == tuttiSuccess);
  CHECK(after == 10);
  REQUIRE(child > 0);
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace tutti::internal::test
