// Status and the failure state, and small parts that have no file of their own.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "base/config.h"
#include "base/copy.h"
#include "base/failure.h"
#include "base/first_use.h"
#include "base/log.h"
#include "base/memfd.h"
#include "base/types.h"
#include "catch_compat.h"
#include "os/fork.h"
#include "os/held_signal.h"
#include "os/kernel_files.h"

namespace {
std::atomic<int> allocations{0};
}

// If they were inlined, GCC would see a new and a delete that do not match.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  void* p = std::malloc(bytes != 0 ? bytes : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*unused*/) noexcept {
  ++allocations;
  return std::malloc(bytes != 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace tutti::internal::test {
namespace {

// Whether `body` returns true, in its own process, which is killed if it does not return.
template <class Body>
bool ends_in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Large {
  std::array<std::byte, 256> bytes{};
};

Result<Large> succeed(bool well) {
  if (!well) return Status::out_of_memory();
  return Large{};
}

}  // namespace

TEST_CASE("a result holds its value without allocating") {
  const int before = allocations;
  Result<Large> result = succeed(true);
  const bool good = result.is_ok() && result->bytes[255] == std::byte{0};
  const Result<Large> moved = std::move(result);
  const int after = allocations;
  CHECK(good);
  CHECK(moved.is_ok());
  CHECK(after == before);
  const Result<Large> failed = succeed(false);
  CHECK_FALSE(failed.is_ok());
  CHECK(failed.status().code() == Code::kSystemError);
  CHECK(allocations > 0);
}

TEST_CASE("a result hands over what can only be moved") {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  REQUIRE(result.is_ok());
  const std::unique_ptr<int> taken = std::move(result).value();
  CHECK(*taken == 5);
}

TEST_CASE("a status keeps its code and gathers context") {
  REQUIRE(Status::ok().is_ok());
  REQUIRE(Status::ok().with_context("here").is_ok());
  const Status s = Status::system("open", ENOENT).with_context("here");
  REQUIRE(s.code() == Code::kSystemError);
  REQUIRE(s.message().find("here: open") == 0);
  REQUIRE(s.with_context("here").message() == s.message());  // not repeated
  REQUIRE(s.with_context("her").message() == "her: " + s.message());
  Status copy = s;
  REQUIRE(copy.message() == s.message());
  copy = Status::ok();
  REQUIRE(copy.is_ok());
  REQUIRE_FALSE(s.is_ok());
}

TEST_CASE("the first failure wins") {
  FailureState state;
  REQUIRE_FALSE(state.failed());
  REQUIRE(state.fail(Status::remote("rank 3")));
  REQUIRE_FALSE(state.fail(Status::timeout("late")));
  REQUIRE(state.failed());
  REQUIRE(state.status().code() == Code::kRemoteError);
  REQUIRE_FALSE(state.departed(2));
  state.set_departed({2, 7});
  REQUIRE(state.any_departed());
  REQUIRE(state.departed(2));
  REQUIRE_FALSE(state.departed(1));
  REQUIRE(state.departed_before(8).rank == 2);
  REQUIRE(state.departed_before(7).rank == -1);
}

TEST_CASE("an unknown result code is a defect") {
  CHECK(code_of(static_cast<int>(Code::kSuccess)) == Code::kSuccess);
  CHECK(code_of(static_cast<int>(Code::kMismatch)) == Code::kMismatch);
  CHECK(code_of(1000) == Code::kAborted);
  CHECK(code_of(1001) == Code::kMismatch);
  for (const int number : {-1, 9, 10, 11, 999, 1002, INT_MAX, INT_MIN}) CHECK(code_of(number) == Code::kInternalError);
}

// While every participant of the fork is held.
struct Speaker final : ForkAware {
  Speaker() { enlist(); }
  void before_fork() override {}
  void after_fork_in_parent() override { text = Status::system("opening", EMFILE).message(); }
  void after_fork_in_child() override {}
  std::string text;
};

TEST_CASE("the text of an error takes no lock", "[fork]") {
  CHECK(ends_in_child([] {
    static Speaker speaker;  // never destroyed
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    return speaker.text.find("RLIMIT_NOFILE") != std::string::npos;
  }));
}

// Knows whether a child may use it.
struct Notified final : ForkAware {
  Notified() { enlist(); }
  void before_fork() override { held = true; }
  void after_fork_in_parent() override { held = false; }
  void after_fork_in_child() override { may_be_used = true; }
  std::atomic<bool> held{false};
  std::atomic<bool> may_be_used{false};
};

TEST_CASE("fork: a child has no object of which the handlers do not know", "[fork]") {
  std::atomic<Notified*> newest{nullptr};
  std::atomic<bool> ends{false};
  std::thread other([&] {
    // Never destroyed. At most a few thousand: each fork visits all.
    for (int i = 0; i < 5000 && !ends; ++i) {
      newest = new Notified;
      std::this_thread::yield();
    }
  });
  while (newest == nullptr) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) CHECK(ends_in_child([&] { return newest.load()->may_be_used.load(); }));
  ends = true;
  other.join();
  CHECK_FALSE(newest.load()->held);
}

TEST_CASE("fork: a child that is forked while another thread makes an object at first use makes its own", "[fork]") {
  static FirstUse<std::string> first_use;
  std::atomic<bool> making{false};
  std::atomic<bool> may_end{false};
  std::thread other([&] {
    CHECK(first_use.get([&] {
      making = true;
      while (!may_end) std::this_thread::yield();
      return "first";
    }) == "first");
  });
  while (!making) std::this_thread::yield();
  CHECK(ends_in_child([] { return first_use.get([] { return "second"; }) == "second"; }));
  may_end = true;
  other.join();
  CHECK(first_use.get([] { return "third"; }) == "first");
}

TEST_CASE("no thread waits for the reader of standard error, and dropped lines are counted", "[fork]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  CHECK(ends_in_child([&] {
    ::dup2(ends[1], STDERR_FILENO);
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    const std::string rubbish(4096, 'x');
    while (::write(ends[1], rubbish.data(), rubbish.size()) > 0) {
    }
    ::fcntl(ends[1], F_SETFL, 0);
    for (int i = 0; i < 3; ++i) log::warn("into a full pipe");
    std::string rest(1 << 20, ' ');
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    while (::read(ends[0], rest.data(), rest.size()) > 0) {
    }
    log::warn(std::string(100'000, 'y'));
    log::warn("last");
    const ssize_t n = ::read(ends[0], rest.data(), rest.size());
    const std::string text = rest.substr(0, n > 0 ? static_cast<std::size_t>(n) : 0);
    return text.find("3 earlier log lines were dropped") != std::string::npos && text.size() < 9000 &&
           text.rfind("warn: last\n") == text.size() - 11;
  }));
  for (const int end : ends) ::close(end);
}

TEST_CASE("lines of the log have the time, the host, the process and its ranks of the first job", "[fork]") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  CHECK(ends_in_child([&] {
    ::dup2(ends[1], STDERR_FILENO);
    const auto line = [&](bool added, bool expected, const char* ranks) {
      log::warn("text");
      std::string read(4096, ' ');
      read.resize(static_cast<std::size_t>(::read(ends[0], read.data(), read.size())));
      char host[256] = {};
      (void)::gethostname(host, sizeof host - 1);
      const std::string rest = fmt::format(" {} tutti[{}] {}warn: text\n", host, ::getpid(), ranks);
      const std::string_view form = "dddd-dd-ddTdd:dd:dd.dddZ";
      bool is_time = read.size() == form.size() + rest.size();
      for (std::size_t i = 0; is_time && i < form.size(); ++i) {
        is_time = form[i] == 'd' ? read[i] >= '0' && read[i] <= '9' : read[i] == form[i];
      }
      return is_time && read.substr(form.size()) == rest && added == expected;
    };
    return line(true, true, "") && line(log::add_rank(7, 3), true, "rank 3 ") &&
           line(log::add_rank(7, 3), true, "rank 3 ") && line(log::add_rank(8, 0), false, "rank 3 ") &&
           line(log::add_rank(7, 2), true, "ranks 2-3 ") && line(log::add_rank(7, 0), true, "ranks 0,2,3 ");
  }));
  for (const int end : ends) ::close(end);
}

TEST_CASE("tutti's variables in the environment are logged, except the secret") {
  ::setenv("TUTTI_LOG", "warn", 1);
  ::setenv("TUTTI_SECRET", "hidden", 1);
  const std::vector<std::string> given = given_variables();
  ::unsetenv("TUTTI_LOG");
  ::unsetenv("TUTTI_SECRET");
  CHECK(std::find(given.begin(), given.end(), "TUTTI_LOG=warn") != given.end());
  CHECK(std::find(given.begin(), given.end(), "TUTTI_SECRET=(not shown)") != given.end());
}

TEST_CASE("shared memory over the limit of file sizes is an error that names it, and no signal") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit low{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
  const auto refused = make_memfd("test", 8192);  // the signal would end this process
  const auto made = make_memfd("test", 4096);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(refused.status().code() == Code::kSystemError);
  CHECK(refused.status().message().find("8192 bytes (this process may make files of 4096, RLIMIT_FSIZE") !=
        std::string::npos);
  CHECK(made.is_ok());
  sigset_t pending;
  REQUIRE(::sigpending(&pending) == 0);
  CHECK(sigismember(&pending, SIGXFSZ) == 0);
}

TEST_CASE("a signal that is held back neither ends the process nor stays, unless it was pending before") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  ::close(ends[0]);
  const auto pipe_pending = [] {
    sigset_t pending;
    return ::sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
  };
  const auto write_to_nobody = [&] {
    const HeldSignal broken(SIGPIPE);
    return ::write(ends[1], "x", 1) < 0 ? errno : 0;
  };
  CHECK(write_to_nobody() == EPIPE);  // and the process still exists, with SIGPIPE as it was
  CHECK_FALSE(pipe_pending());
  sigset_t one;
  sigset_t before;
  sigemptyset(&one);
  sigaddset(&one, SIGPIPE);
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &one, &before) == 0);
  CHECK(sigismember(&before, SIGPIPE) == 0);
  CHECK(write_to_nobody() == EPIPE);
  CHECK_FALSE(pipe_pending());
  REQUIRE(::pthread_kill(::pthread_self(), SIGPIPE) == 0);
  CHECK(write_to_nobody() == EPIPE);
  CHECK(pipe_pending());
  const timespec at_once{};
  CHECK(::sigtimedwait(&one, nullptr, &at_once) == SIGPIPE);
  REQUIRE(::pthread_sigmask(SIG_SETMASK, &before, nullptr) == 0);
  ::close(ends[1]);
}

TEST_CASE("the table's entries of each collective") {
  using C = Collective;
  struct Known {
    C collective;
    const char* name;
    bool rooted, reducing, combining, blocks, gives_own, gets_own, alike, prefixes, one_memory;
  };
  const Known known[] = {
      {C::kAllReduce, "all_reduce", false, true, true, false, false, false, true, false, true},
      {C::kReduceScatter, "reduce_scatter", false, true, true, true, false, true, false, false, true},
      {C::kAllGather, "all_gather", false, false, false, true, true, false, false, false, true},
      {C::kBroadcast, "broadcast", true, false, false, false, false, false, false, false, true},
      {C::kReduce, "reduce", true, true, true, false, false, false, false, false, true},
      {C::kBarrier, "barrier", false, false, true, false, false, false, true, false, true},
      {C::kGather, "gather", true, false, false, true, true, false, false, false, true},
      {C::kScatter, "scatter", true, false, false, true, false, true, false, false, true},
      {C::kAllToAll, "alltoall", false, false, false, true, false, false, false, false, false},
      {C::kScan, "scan", false, true, true, false, false, false, false, true, true},
      {C::kExscan, "exscan", false, true, true, false, false, false, false, true, true},
      {C::kAllGatherV, "all_gather_v", false, false, false, true, true, false, false, false, true},
      {C::kReduceScatterV, "reduce_scatter_v", false, true, true, true, false, true, false, false, true},
      {C::kAllToAllV, "alltoall_v", false, false, false, true, false, false, false, false, false},
      {C::kGatherV, "gather_v", true, false, false, true, true, false, false, false, true},
      {C::kScatterV, "scatter_v", true, false, false, true, false, true, false, false, true},
  };
  REQUIRE(std::size(known) == kCollectives);
  for (const Known& k : known) {
    INFO(k.name);
    CHECK(std::string(name_of(k.collective)) == k.name);
    CHECK(has_root(k.collective) == k.rooted);
    CHECK(reduces(k.collective) == k.reducing);
    CHECK(combines(k.collective) == k.combining);
    CHECK(has_blocks(k.collective) == k.blocks);
    CHECK(blocks_of(k.collective, 7) == (k.blocks ? 7 : 1));
    CHECK(gives_own_block(k.collective) == k.gives_own);
    CHECK(gets_own_block(k.collective) == k.gets_own);
    CHECK(alike_everywhere(k.collective) == k.alike);
    CHECK(combines_prefixes(k.collective) == k.prefixes);
    CHECK(input_is_output(k.collective) == k.one_memory);
    CHECK(has_data(k.collective) == (k.collective != C::kBarrier));
  }
  CHECK_FALSE(has_any(info_of(C::kBroadcast).input, 1, 0));
  CHECK_FALSE(has_any(info_of(C::kExscan).output, 0, 0));
  CHECK(has_any(info_of(C::kExscan).output, 1, 0));
  CHECK(has_any(info_of(C::kBroadcast).output, 1, 0));
  CHECK_FALSE(has_any(info_of(C::kReduce).output, 0, 2));
  CHECK(blocks_in(info_of(C::kAllGather).output, C::kAllGather, 5) == 5);
  CHECK(blocks_in(info_of(C::kAllGather).input, C::kAllGather, 5) == 1);
  // Values from another version's fingerprint.
  const auto unknown = static_cast<C>(31);
  CHECK(std::string(name_of(unknown)) == "unknown");
  CHECK_FALSE((has_root(unknown) || reduces(unknown) || has_blocks(unknown)));
}

TEST_CASE("sizes of datatypes") {
  REQUIRE(size_of(DataType::kInt8) == 1);
  REQUIRE(size_of(DataType::kBfloat16) == 2);
  REQUIRE(size_of(DataType::kFloat64) == 8);
  REQUIRE(size_of(static_cast<DataType>(200)) == 0);
}

}  // namespace tutti::internal::test

TEST_CASE("bytes are copied wherever source and target lie") {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kLongest = 3 * kPage + 5;
  std::vector<std::byte> from(kLongest + 2 * kPage);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::vector<std::byte> to(from.size());
  // The source just before and just behind the target, modulo a page, and at other distances.
  for (const std::size_t apart : {0U, 1U, 2U, 16U, 31U, 32U, 33U, 2000U, 4064U, 4065U, 4095U}) {
    for (const std::size_t at : {0U, 1U, 63U}) {
      for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{2047}, std::size_t{2048},
                                      std::size_t{2049}, std::size_t{4096}, std::size_t{4097}, kLongest}) {
        INFO(apart << " apart, at " << at << ", " << bytes << " bytes");
        std::byte* const target = to.data() + (reinterpret_cast<std::uintptr_t>(from.data()) + at + apart -
                                               reinterpret_cast<std::uintptr_t>(to.data())) %
                                                  kPage;
        std::fill(to.begin(), to.end(), std::byte{0xa5});
        tutti::internal::copy_bytes(target, from.data() + at, bytes);
        REQUIRE(std::memcmp(target, from.data() + at, bytes) == 0);
        REQUIRE(std::count(to.data(), target, std::byte{0xa5}) == target - to.data());
        REQUIRE(target[bytes] == std::byte{0xa5});
      }
    }
  }
  tutti::internal::copy_bytes(nullptr, nullptr, 0);
}

// As of a process that ends meanwhile: reading from address 0 fails.
TEST_CASE("a file of the kernel that cannot be read is empty") {
  using tutti::internal::contents_of;
  CHECK(contents_of("/proc/self/mem").empty());
  CHECK(contents_of("/proc/self/none").empty());
  CHECK(contents_of("/proc/self/statm").ends_with("\n"));
  CHECK(tutti::internal::first_line_of("/proc/self/mem").empty());
  CHECK(tutti::internal::first_line_of("/proc/self/comm") == "base_test");
}
