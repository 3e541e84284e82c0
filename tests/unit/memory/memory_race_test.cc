// Threads that unmap, map and send at the same time: no registration of an earlier mapping is ever found.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "memory/change_log.h"
#include "os/clock.h"
#include "registration_fakes.h"
#include "sanitizers.h"

using namespace tutti::internal;
using namespace tutti::internal::memory;
using namespace tutti::internal::memory::test;

namespace {

using tutti::internal::test::kThreadSanitizer;

constexpr int kRounds = kThreadSanitizer ? 500 : 3000;
constexpr std::size_t kPages = 8;
constexpr std::chrono::milliseconds kTime(kThreadSanitizer ? 500 : 1500);

// The watch. If this kernel or a sandbox does not provide userfaultfd, the whole program is skipped.
MemoryMonitor* probe() {
  std::string why;
  MemoryMonitor* const watch = MemoryMonitor::instance(&why);
  if (watch == nullptr) {
    std::printf("skipped: no memory is watched here: %s\n", why.c_str());
    std::exit(77);
  }
  return watch;
}

// One thread's own registrar, cache and user, without Catch, whose checks are for one thread.
struct Rank {
  explicit Rank(MemoryMonitor* watch) : cache(registrar, watch, SIZE_MAX), user(cache) {}
  // The number of the registration that covers the memory, or 0.
  std::uint32_t next(const std::byte* begin) {
    user.begin_operation();
    Source source;
    source.base = begin;
    source.size = kPages * kPage;
    const RdmaKeys* keys = user.find(source);
    return keys != nullptr ? keys->lkeys[0] : 0;
  }
  CountingRegistrar registrar;
  RegistrationCache cache;
  RegistrationUser user;
};

}  // namespace

TEST_CASE("a thread that has returned from munmap finds the registration gone") {
  MemoryMonitor* const watch = probe();
  std::atomic<int> stale{0};
  std::atomic<int> found{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Rank rank(watch);
      for (int i = 0; i < kRounds; ++i) {
        Pages memory(kPages);
        const auto before = static_cast<std::uint32_t>(rank.registrar.registered);
        const std::uint32_t key = rank.next(memory.at(0));
        if (key == 0) continue;
        ++found;
        if (key <= before) ++stale;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(stale == 0);
  CHECK(found > kRounds);
}

TEST_CASE("memory mapped at an address whose munmap has not returned is not mistaken for the old") {
  MemoryMonitor* const watch = probe();
  Rank rank(watch);
  std::atomic<std::byte*> to_unmap{nullptr};
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) {
      if (std::byte* const p = to_unmap.exchange(nullptr); p != nullptr) {
        ::munmap(p, kPages * kPage);
      } else {
        std::this_thread::yield();
      }
    }
  });
  int stale = 0;
  int refused = 0;
  for (int i = 0; i < kRounds / 2; ++i) {
    Pages memory(kPages);
    std::byte* const place = memory.at(0);
    if (rank.next(place) == 0) ++refused;
    const auto before = static_cast<std::uint32_t>(rank.registrar.registered);
    to_unmap = memory.release();
    // As soon as the address is free, even if munmap has not returned.
    void* again = MAP_FAILED;
    const Deadline deadline = Deadline::after_ms(5000);
    while (again == MAP_FAILED && !deadline.passed()) {
      std::this_thread::yield();
      again = ::mmap(place, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                     -1, 0);
    }
    REQUIRE(again == place);
    const std::uint32_t key = rank.next(place);
    if (key == 0) {
      ++refused;
    } else if (key <= before) {
      ++stale;
    }
    ::munmap(place, kPages * kPage);
  }
  over = true;
  other.join();
  INFO("refused " << refused << " times");
  CHECK(stale == 0);
  CHECK(refused < kRounds / 2);
}

TEST_CASE("many threads unmap while others look up") {
  MemoryMonitor* const watch = probe();
  constexpr std::size_t kBuffers = 8;
  const auto end = std::chrono::steady_clock::now() + kTime;
  std::atomic<std::uint64_t> changes{0};
  std::atomic<std::uint64_t> lookups{0};
  std::atomic<int> faults{0};
  std::vector<std::thread> threads;
  Pages memory(kBuffers * kPages);
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      // Discards and replaces memory that the other threads have registered.
      for (std::size_t i = static_cast<std::size_t>(t); std::chrono::steady_clock::now() < end; ++i) {
        std::byte* const place = memory.at(i % kBuffers * kPages);
        if (i % 2 == 0) {
          ::madvise(place, kPage, MADV_DONTNEED);
        } else {
          Pages(kPages, place).release();
        }
        ++changes;
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      Rank rank(watch);
      rank.registrar.touches_pages = false;  // other threads are replacing them
      for (std::size_t i = 0; std::chrono::steady_clock::now() < end; ++i) {
        if (rank.next(memory.at(i % kBuffers * kPages)) != 0) ++lookups;
      }
      rank.user.begin_operation();
      rank.cache.forget_all();
      if (rank.registrar.live() != 0 || !rank.registrar.fault().empty()) ++faults;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(faults == 0);
  CHECK(changes > 0);
  CHECK(lookups > 0);
}

TEST_CASE("operations of several communicators keep their memory registered") {
  MemoryMonitor* const watch = probe();
  constexpr std::size_t kBuffers = 8;
  CountingRegistrar registrar;
  // Room for slightly more than the memory of three operations: each registration evicts other memory.
  RegistrationCache cache(registrar, watch, 8 * kPages * kPage);
  Pages memory(kPages * kBuffers);
  const auto end = std::chrono::steady_clock::now() + kTime;
  std::atomic<int> gone{0};
  std::atomic<int> found{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      RegistrationUser user(cache);
      Pages own(kPages);
      for (std::size_t i = t; std::chrono::steady_clock::now() < end; ++i) {
        user.begin_operation();
        Source source;
        source.size = kPages * kPage;
        std::array<const RdmaKeys*, 3> keys{};
        for (std::size_t k = 0; k < keys.size(); ++k) {
          source.base = k == 0 ? own.at(0) : memory.at((i + k) % kBuffers * kPages);
          keys[k] = user.find(source);
        }
        for (const RdmaKeys* one : keys) {
          if (one == nullptr) continue;
          ++found;
          if (!registrar.is_live(one)) ++gone;
        }
        if (i % 16 == 0) ::madvise(own.at(0), kPage, MADV_DONTNEED);
        if (i % 256 == 0) cache.forget_all();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(gone == 0);
  CHECK(found > 100);
  CHECK(registrar.fault().empty());
  cache.forget_all();
  CHECK(registrar.live() == 0);
}

TEST_CASE("the log of changes is complete or says that it is not") {
  ChangeLog log;
  std::atomic<bool> over{false};
  std::atomic<bool> anything_told{false};
  constexpr std::uint64_t kChanges = kThreadSanitizer ? 100'000 : 500'000;
  // On a loaded machine the writer may be far ahead whenever the reader runs: then it continues.
  constexpr std::uint64_t kMostChanges = 40 * kChanges;
  std::uint64_t written = 0;
  // Range number i begins at i and ends at 2 i + 1.
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kMostChanges; written = ++i) {
      if (i >= kChanges && i % 16 == 0 && anything_told) break;
      if (i % 16 == 0) log.begin_taking();
      log.add({reinterpret_cast<const std::byte*>(i), reinterpret_cast<const std::byte*>(2 * i + 1)});
      if (i % 16 == 15) log.end_taking();
      if (i % 64 == 0) std::this_thread::yield();
    }
    over = true;
  });
  std::uint64_t seen = 0;
  std::uint64_t wrong = 0;
  std::uint64_t told = 0;
  auto copy = std::make_unique<ChangeLog::Copy>();
  for (bool last = false; !last;) {
    last = over;
    const std::uint64_t first = seen;
    std::size_t copied = 0;
    if (!log.copy_since(&seen, copy.get(), &copied)) continue;
    if (copied != seen - first) ++wrong;
    told += copied;
    if (told > 0) anything_told = true;
    for (std::size_t i = 0; i < copied; ++i) {
      const auto begin = reinterpret_cast<std::uint64_t>((*copy)[i].begin);
      const auto range_end = reinterpret_cast<std::uint64_t>((*copy)[i].end);
      if (begin != first + i || range_end != 2 * begin + 1) ++wrong;
    }
  }
  writer.join();
  CHECK(wrong == 0);
  CHECK(seen == written);
  CHECK(told > 0);
  CHECK(log.takings() % 2 == 0);
}

namespace {

// Freed when the process exits, after the watch has ended or before.
struct FreedAtExit {
  std::vector<std::byte*> mappings;
  ~FreedAtExit() {
    for (std::byte* p : mappings) ::munmap(p, kPages * kPage);
  }
};

[[noreturn]] void exit_with_watched_memory(bool before_watch) {
  static FreedAtExit* first = nullptr;
  if (before_watch) {
    static FreedAtExit made_first;
    first = &made_first;
  }
  std::string why;
  MemoryMonitor* const watch = MemoryMonitor::instance(&why);
  static FreedAtExit last;
  if (watch == nullptr) std::_Exit(3);
  for (FreedAtExit* owner : {first, &last}) {
    if (owner == nullptr) continue;
    owner->mappings.push_back(Pages(kPages).release());
    const std::byte* const p = owner->mappings.back();
    if (!watch->watch({p, p + kPages * kPage})) std::_Exit(4);
  }
  // A thread that continues to change watched memory while the process ends.
  Pages busy(kPages);
  std::byte* const place = busy.release();
  if (!watch->watch({place, place + kPages * kPage})) std::_Exit(5);
  std::thread([place] {
    for (;;) ::madvise(place, kPage, MADV_DONTNEED);
  }).detach();
  std::exit(0);
}

}  // namespace

TEST_CASE("a process ends while its memory is watched", "[fork]") {
  (void)probe();
  const bool before_watch = GENERATE(true, false);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) exit_with_watched_memory(before_watch);
  int status = 0;
  const Deadline deadline = Deadline::after_ms(20'000);
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (deadline.passed()) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      FAIL("the child hangs");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(status == 0);
}
