// The watch on this kernel, and the cache on top of it: a change of memory, by any thread, removes its registration.
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "memory/change_log.h"
#include "os/clock.h"
#include "os/unique_fd.h"
#include "registration_fakes.h"

using namespace tutti::internal;
using namespace tutti::internal::memory;
using namespace tutti::internal::memory::test;

namespace {

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

// Registers `memory`, makes a change, and checks that it is registered again, and never found as before.
template <class Change>
void check_change(Cache& cache, const std::byte* memory, std::size_t bytes, Change change) {
  const RdmaKeys* keys = cache.at_rest(memory, bytes);
  REQUIRE(cache.registrar.is_live(keys));
  const std::uint32_t old = keys->lkeys[0];
  REQUIRE(cache.at_rest(memory, bytes) == keys);
  change();
  keys = cache.next(memory, bytes);
  CHECK((keys == nullptr || keys->lkeys[0] != old));
  keys = cache.at_rest(memory, bytes);
  REQUIRE(cache.registrar.is_live(keys));
  CHECK(keys->lkeys[0] != old);
}

}  // namespace

TEST_CASE("memory that is mapped again is registered again") {
  MemoryMonitor* const watch = probe();
  Cache cache(watch);
  Pages memory(16, Pages::apart());
  std::byte* const begin = memory.at(0);
  SECTION("munmap and mmap") {
    check_change(cache, begin, memory.bytes(), [&] {
      memory.unmap();
      Pages(16, begin).release();
    });
    ::munmap(begin, 16 * kPage);
  }
  SECTION("mmap over it") {
    check_change(cache, begin, memory.bytes(), [&] { Pages(16, begin).release(); });
  }
  SECTION("mmap over some of its pages") {
    check_change(cache, begin, memory.bytes(), [&] { Pages(2, begin + 14 * kPage).release(); });
  }
  SECTION("munmap of more than it") {
    check_change(cache, memory.at(3), 2 * kPage, [&] {
      memory.unmap();
      Pages(16, begin).release();
    });
    ::munmap(begin, 16 * kPage);
  }
  SECTION("another mapping moved over it") {
    Pages other(16, Pages::apart());
    check_change(cache, begin, memory.bytes(), [&] {
      REQUIRE(::mremap(other.at(0), other.bytes(), other.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, begin) == begin);
      other.release();
    });
  }
  SECTION("moved away, and other memory in its place") {
    Pages elsewhere(16, Pages::apart());
    check_change(cache, begin, memory.bytes(), [&] {
      REQUIRE(::mremap(begin, memory.bytes(), memory.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere.at(0)) ==
              elsewhere.at(0));
      Pages(16, begin).release();
    });
  }
  SECTION("shrunk and grown") {
    check_change(cache, begin, memory.bytes(), [&] {
      REQUIRE(::mremap(begin, memory.bytes(), 8 * kPage, 0) == begin);
      Pages(8, begin + 8 * kPage).release();
    });
  }
  SECTION("discarded") {
    check_change(cache, begin, memory.bytes(), [&] { REQUIRE(::madvise(begin, kPage, MADV_DONTNEED) == 0); });
  }
  SECTION("discarded if memory is short") {
    check_change(cache, begin, memory.bytes(), [&] { REQUIRE(::madvise(begin, kPage, MADV_FREE) == 0); });
  }
}

TEST_CASE("neighbours of changed memory stay registered") {
  MemoryMonitor* const watch = probe();
  Cache cache(watch);
  Pages memory(12, Pages::apart());
  const RdmaKeys* left = cache.at_rest(memory.at(0), 4 * kPage);
  const RdmaKeys* right = cache.at_rest(memory.at(8), 4 * kPage);
  (void)cache.at_rest(memory.at(4), 4 * kPage);
  Pages(4, memory.at(4)).release();
  CHECK(cache.at_rest(memory.at(0), 4 * kPage) == left);
  CHECK(cache.at_rest(memory.at(8), 4 * kPage) == right);
  CHECK(cache.registrar.live() == 2);
}

TEST_CASE("memory of the C library's allocator") {
  MemoryMonitor* const watch = probe();
  Cache cache(watch);
  SECTION("a mapping of its own") {
    constexpr std::size_t kBytes = std::size_t{64} << 20;
    for (int round = 0; round < 5; ++round) {
      auto* const p = static_cast<std::byte*>(std::malloc(kBytes));
      REQUIRE(p != nullptr);
      const int before = cache.registrar.registered;
      REQUIRE(cache.registrar.is_live(cache.at_rest(p, kBytes)));
      CHECK(cache.registrar.registered == before + 1);
      std::free(p);
    }
  }
  SECTION("the heap, given back to the system") {
    constexpr std::size_t kBytes = std::size_t{48} << 10;
    std::vector<std::byte*> blocks;
    for (int i = 0; i < 64; ++i) {
      blocks.push_back(static_cast<std::byte*>(std::malloc(kBytes)));
      CHECK(cache.registrar.is_live(cache.at_rest(blocks.back(), kBytes)));
    }
    for (std::byte* block : blocks) std::free(block);
    ::malloc_trim(0);
    cache->begin_operation();
    INFO("registered " << cache.registered_bytes());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    // The first and the last page may contain memory of others.
    CHECK(cache.registered_bytes() < 64 * kBytes);
#endif
  }
}

TEST_CASE("memory that can change unseen is not registered") {
  MemoryMonitor* const watch = probe();
  Cache cache(watch);
  const UniqueFd memory(::memfd_create("memory_watch_test", MFD_CLOEXEC));
  REQUIRE(::ftruncate(memory.get(), static_cast<off_t>(4 * kPage)) == 0);
  SECTION("of a file, shared") {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
    REQUIRE(file != nullptr);
    REQUIRE(::ftruncate(::fileno(file.get()), static_cast<off_t>(4 * kPage)) == 0);
    Pages pages(4, nullptr, MAP_SHARED, ::fileno(file.get()));
    CHECK(cache.next(pages.at(0), pages.bytes()) == nullptr);
  }
  SECTION("of a file, private") {
    // On a disk, because folders for temporary files may be in memory.
    Dl_info c_library{};
    REQUIRE(::dladdr(reinterpret_cast<void*>(&::getppid), &c_library) != 0);
    const UniqueFd file(::open(c_library.dli_fname, O_RDONLY | O_CLOEXEC));
    REQUIRE(file.valid());
    Pages pages(4, nullptr, MAP_PRIVATE, file.get());
    CHECK(cache.next(pages.at(0), pages.bytes()) == nullptr);
  }
  SECTION("shared by a descriptor") {
    Pages pages(4, nullptr, MAP_SHARED, memory.get());
    if (GENERATE(true, false)) pages.at(1)[0] = std::byte{1};
    CHECK(cache.next(pages.at(0), pages.bytes()) == nullptr);
  }
  SECTION("shared with children") {
    Pages pages(4, nullptr, MAP_SHARED | MAP_ANONYMOUS);
    CHECK(cache.next(pages.at(0), pages.bytes()) == nullptr);
  }
  SECTION("a System V segment") {
    const int id = ::shmget(IPC_PRIVATE, 4 * kPage, IPC_CREAT | 0600);
    REQUIRE(id >= 0);
    auto* const p = static_cast<std::byte*>(::shmat(id, nullptr, 0));
    ::shmctl(id, IPC_RMID, nullptr);
    CHECK(cache.next(p, 4 * kPage) == nullptr);
    ::shmdt(p);
  }
  SECTION("partly shared") {
    Pages pages(8);
    Pages(4, pages.at(4), MAP_SHARED, memory.get()).release();
    CHECK(cache.next(pages.at(0), pages.bytes()) == nullptr);
  }
  CHECK(cache.registrar.live() == 0);
  CHECK_FALSE(cache->trouble().empty());
}

TEST_CASE("huge pages are watched") {
  MemoryMonitor* const watch = probe();
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  void* const p = ::mmap(nullptr, 2 * kHuge, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
  if (p == MAP_FAILED) {
    WARN("no huge pages are set aside here");
    return;
  }
  Cache cache(watch);
  auto* const begin = static_cast<std::byte*>(p);
  check_change(cache, begin + kPage, kHuge, [&] { REQUIRE(::madvise(begin, kHuge, MADV_DONTNEED) == 0); });
  ::munmap(p, 2 * kHuge);
}

TEST_CASE("two communicators both notice a change") {
  MemoryMonitor* const watch = probe();
  Cache one(watch);
  Cache two(watch);
  Pages memory(4, Pages::apart());
  const std::uint32_t old_one = one.at_rest(memory.at(0), memory.bytes())->lkeys[0];
  const std::uint32_t old_two = two.at_rest(memory.at(0), memory.bytes())->lkeys[0];
  Pages(4, memory.at(0)).release();
  CHECK(one.at_rest(memory.at(0), memory.bytes())->lkeys[0] != old_one);
  CHECK(two.at_rest(memory.at(0), memory.bytes())->lkeys[0] != old_two);
}

TEST_CASE("more changes than the log holds") {
  MemoryMonitor* const watch = probe();
  constexpr std::size_t kChanges = ChangeLog::kRanges + 10;
  Cache cache(watch);
  Pages memory(kChanges + 1, Pages::apart());
  const std::uint32_t first = cache.at_rest(memory.at(0), kPage)->lkeys[0];
  for (std::size_t i = 1; i <= kChanges; ++i) REQUIRE(cache.at_rest(memory.at(i), kPage) != nullptr);
  Pages(1, memory.at(0)).release();
  for (std::size_t i = 1; i <= kChanges; ++i) Pages(1, memory.at(i)).release();
  const RdmaKeys* keys = cache.at_rest(memory.at(0), kPage);
  REQUIRE(cache.registrar.is_live(keys));
  CHECK(keys->lkeys[0] != first);
  CHECK(cache.registrar.live() == 1);
  std::uint64_t seen = 0;
  std::vector<MemoryMonitor::Range> changed;
  CHECK_FALSE(watch->changes(&seen, &changed));
  CHECK(changed.empty());
  CHECK(seen == watch->count());
}

TEST_CASE("a child watches its own memory, and its parent continues", "[fork]") {
  MemoryMonitor* const watch = probe();
  Cache cache(watch);
  Pages memory(4, Pages::apart());
  const std::uint32_t old = cache.at_rest(memory.at(0), memory.bytes())->lkeys[0];
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Not watched, and so not waiting for a watch.
    int bad = 0;
    bad |= cache.next(memory.at(0), memory.bytes()) != nullptr ? 1 : 0;
    Pages(4, memory.at(0)).release();
    std::string why;
    MemoryMonitor* const own = MemoryMonitor::instance(&why);
    bad |= own == nullptr || own == watch ? 2 : 0;
    if (own != nullptr) {
      RegistrationCache shared(cache.registrar, own, SIZE_MAX);
      RegistrationUser mine(shared);
      Source source;
      source.base = memory.at(0);
      source.size = memory.bytes();
      const RdmaKeys* keys = mine.find(source);
      bad |= keys == nullptr ? 4 : 0;
      const std::uint32_t before = keys != nullptr ? keys->lkeys[0] : 0;
      Pages(4, memory.at(0)).release();
      mine.begin_operation();
      keys = mine.find(source);
      for (int i = 0; i < 1000 && keys == nullptr; ++i) {
        mine.begin_operation();
        keys = mine.find(source);
      }
      bad |= keys == nullptr || keys->lkeys[0] == before ? 8 : 0;
    }
    std::_Exit(bad);
  }
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
  CHECK(cache.at_rest(memory.at(0), memory.bytes())->lkeys[0] == old);
  Pages(4, memory.at(0)).release();
  CHECK(cache.at_rest(memory.at(0), memory.bytes())->lkeys[0] != old);
}
