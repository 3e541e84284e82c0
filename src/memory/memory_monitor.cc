// The order of waiting: a thread that changes watched memory waits, inside the kernel, for the thread that takes
// reports. That thread waits only for the kernel: it takes no lock, allocates and frees nothing, writes no log, and its
// signals are blocked. changes() and drain() wait for it, and it never waits for them. So there is no cycle, whatever
// locks a caller of changes() holds, and wherever it is interrupted.
#include "memory/memory_monitor.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/event_fd.h"
#include "base/first_use.h"
#include "base/service_thread.h"
#include "base/status.h"
#include "memory/change_log.h"
#include "os/clock.h"
#include "os/fork.h"
#include "os/mutex.h"
#include "os/unique_fd.h"

namespace tutti::internal::memory {
namespace {

constexpr std::uint64_t kEvents = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE;
constexpr std::size_t kReportsAtOnce = 16;
// A few time slices, because on an oversubscribed machine the unmapping thread must first get a processor.
constexpr std::int64_t kDrainMs = 10;
// The usual size of huge pages; their memory is watched in these units.
constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
// Of an entry in /proc/self/pagemap (Linux, Documentation/admin-guide/mm/pagemap.rst): the page belongs to a file or
// to shared memory.
constexpr std::uint64_t kPageIsShared = std::uint64_t{1} << 61;

Result<UniqueFd> open_userfaultfd() {
  // Allowed to every user since Linux 5.11, because with this flag no access by the kernel waits for this process.
  auto fd = UniqueFd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY)));
  if (!fd.valid()) fd = UniqueFd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  if (!fd.valid()) {
    return Status::system(
        "userfaultfd, which reports when registered memory is unmapped (allowed from Linux 5.11 on unless a "
        "container's seccomp profile forbids it; before that by sysctl vm.unprivileged_userfaultfd=1)",
        errno);
  }
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kEvents | UFFD_FEATURE_PAGEFAULT_FLAG_WP;
  const int error = ::ioctl(fd.get(), UFFDIO_API, &api) == 0 ? 0 : errno;
  // A kernel may support it only for other processors; only its answer shows that.
  if (error != 0 || (api.features & UFFD_FEATURE_PAGEFAULT_FLAG_WP) == 0) {
    return Status::system(
        "userfaultfd cannot watch memory without stopping faults (Linux 5.7 or later can on x86-64, 6.10 on arm64)",
        error != 0 ? error : EOPNOTSUPP);
  }
  return fd;
}

class Watch final : public MemoryMonitor {
 public:
  static Result<std::unique_ptr<Watch>> open();

  bool watch(Range range) override;
  [[nodiscard]] std::uint64_t count() const override { return log_.count(); }
  bool changes(std::uint64_t* seen, std::vector<Range>* changed) override;
  bool drain() override;

  Status start();
  // Called before the code is unloaded. Nothing is watched afterwards.
  void stop();
  // For a forked child, whose memory is not watched and which has no such thread. Async-signal-safe.
  void abandon();

 private:
  static void* take_reports(void* self);
  void log(const uffd_msg& report);
  bool register_range(std::uintptr_t begin, std::uintptr_t end);
  bool in_flight();
  bool nothing_shared(Range range);

  UniqueFd reports_;
  UniqueFd pagemap_;
  EventFd stop_;
  pthread_t thread_{};
  std::atomic<bool> over_{false};
  ChangeLog log_;
};

Result<std::unique_ptr<Watch>> Watch::open() {
  auto watch = std::make_unique<Watch>();
  Result<UniqueFd> fd = open_userfaultfd();
  if (!fd.is_ok()) return fd.status();
  watch->reports_ = std::move(*fd);
  watch->pagemap_ = UniqueFd(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!watch->pagemap_.valid()) return Status::system("/proc/self/pagemap, which shows which memory is shared", errno);
  auto stop = EventFd::create();
  if (!stop.is_ok()) return stop.status();
  watch->stop_ = std::move(*stop);
  if (Status s = watch->start(); !s.is_ok()) return s;
  return watch;
}

Status Watch::start() {
  return start_thread(&thread_, take_reports, this, kServiceStackBytes).with_context("watching memory");
}

void Watch::stop() {
  over_.store(true);
  stop_.ring();
  ::pthread_join(thread_, nullptr);
  // Closing ends the watching, and every wait of a thread whose report has not been taken.
  reports_.reset();
}

void Watch::abandon() {
  over_.store(true);
  reports_.reset();
  pagemap_.reset();
  stop_.reset();
}

void* Watch::take_reports(void* self) {
  auto& watch = *static_cast<Watch*>(self);
  std::array<pollfd, 2> wait{pollfd{watch.reports_.get(), POLLIN, 0}, pollfd{watch.stop_.fd(), POLLIN, 0}};
  std::array<uffd_msg, kReportsAtOnce> reports;
  for (;;) {
    // Fails if the limit is less than two descriptors: then this loop waits by yielding.
    if (::poll(wait.data(), wait.size(), -1) < 0) ::sched_yield();
    if (watch.over_.load(std::memory_order_acquire)) return nullptr;
    watch.log_.begin_taking();
    // Wakes the threads whose reports it takes. A report may disappear if its process is being killed.
    const ssize_t bytes = ::read(watch.reports_.get(), reports.data(), sizeof reports);
    const std::size_t taken = bytes > 0 ? static_cast<std::size_t>(bytes) / sizeof reports[0] : 0;
    for (std::size_t i = 0; i < taken; ++i) watch.log(reports[i]);
    watch.log_.end_taking();
  }
}

void Watch::log(const uffd_msg& report) {
  const auto range = [](std::uint64_t begin, std::uint64_t end) {
    return Range{reinterpret_cast<const std::byte*>(begin), reinterpret_cast<const std::byte*>(end)};
  };
  switch (report.event) {
    case UFFD_EVENT_UNMAP:
    case UFFD_EVENT_REMOVE: log_.add(range(report.arg.remove.start, report.arg.remove.end)); break;
    case UFFD_EVENT_REMAP:
      log_.add(range(report.arg.remap.from, report.arg.remap.from + report.arg.remap.len));
      log_.add(range(report.arg.remap.to, report.arg.remap.to + report.arg.remap.len));
      break;
    default:  // there are no other events, because no page is protected and no missing page is reported
      break;
  }
}

bool Watch::register_range(std::uintptr_t begin, std::uintptr_t end) {
  uffdio_register registration{};
  registration.range.start = begin;
  registration.range.len = end - begin;
  registration.mode = UFFDIO_REGISTER_MODE_WP;
  return ::ioctl(reports_.get(), UFFDIO_REGISTER, &registration) == 0;
}

bool Watch::watch(Range range) {
  if (over_.load(std::memory_order_acquire)) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
  const auto end = reinterpret_cast<std::uintptr_t>(range.end);
  if (!register_range(begin, end)) {
    if (errno != EINVAL) return false;
    // The kernel accepts only whole huge pages. That is harmless for other memory.
    const std::uintptr_t rounded_end = (end + kHugeBytes - 1) & ~(kHugeBytes - 1);
    if (!register_range(begin & ~(kHugeBytes - 1), rounded_end)) return false;
  }
  return nothing_shared(range);
}

bool Watch::nothing_shared(Range range) {
  std::array<std::uint64_t, 512> pages;
  const std::size_t page = page_bytes();
  std::uint64_t first = reinterpret_cast<std::uintptr_t>(range.begin) / page;
  const std::uint64_t end = reinterpret_cast<std::uintptr_t>(range.end) / page;
  while (first < end) {
    const std::size_t wanted = std::min<std::size_t>(pages.size(), end - first) * sizeof pages[0];
    const ssize_t got = ::pread(pagemap_.get(), pages.data(), wanted, static_cast<off_t>(first * sizeof pages[0]));
    const std::size_t count = got > 0 ? static_cast<std::size_t>(got) / sizeof pages[0] : 0;
    if (count == 0) return false;
    if (std::any_of(pages.begin(), pages.begin() + count, [](std::uint64_t p) { return (p & kPageIsShared) != 0; })) {
      return false;
    }
    first += count;
  }
  return true;
}

bool Watch::changes(std::uint64_t* seen, std::vector<Range>* changed) {
  // In a forked child the writer may have stopped in the middle of it.
  if (over_.load(std::memory_order_acquire)) return true;
  // A thread whose change has returned sees at least the taking that included its report.
  const std::uint64_t takings = log_.takings();
  while (takings % 2 != 0 && log_.takings() == takings) ::sched_yield();
  ChangeLog::Copy copy;
  std::size_t copied = 0;
  const bool all = log_.copy_since(seen, &copy, &copied);
  changed->insert(changed->end(), copy.begin(), copy.begin() + static_cast<std::ptrdiff_t>(copied));
  return all;
}

// The kernel counts changes from their begin, before their addresses can be reused, until the changing thread continues
// after its report has been taken. While the count is not 0, it refuses to protect pages with EAGAIN, before it checks
// the range (fs/userfaultfd.c, mmap_changing). So a call with an invalid range queries the count without an effect.
bool Watch::in_flight() {
  uffdio_writeprotect nothing{};
  const bool refused = ::ioctl(reports_.get(), UFFDIO_WRITEPROTECT, &nothing) != 0 && errno == EAGAIN;
  // The kernel reads its count without ordering, so this fence keeps the number of takings from being read earlier.
  std::atomic_thread_fence(std::memory_order_acquire);
  return refused;
}

bool Watch::drain() {
  if (over_.load(std::memory_order_acquire)) return false;
  std::uint64_t takings = 0;
  if (!in_flight() && (takings = log_.takings()) % 2 == 0) return true;
  const Deadline deadline = Deadline::after_ms(kDrainMs);
  while (in_flight()) {
    if (deadline.passed()) return false;
    ::sched_yield();
  }
  // All reports are taken; those of this taking may not be in the log yet.
  takings = log_.takings();
  while (takings % 2 != 0 && log_.takings() == takings) {
    if (deadline.passed()) return false;
    ::sched_yield();
  }
  return true;
}

// The watch of this process. The lock is held while a watch is made and across fork(2), so that it is free in a child.
// The thread that takes reports never takes it.
struct Current final : ForkAware {
  Current() { enlist(); }
  void before_fork() override TUTTI_ACQUIRE(mutex) { mutex.lock(); }
  void after_fork_in_parent() override TUTTI_RELEASE(mutex) { mutex.unlock(); }
  void after_fork_in_child() override TUTTI_RELEASE(mutex) {
    if (Watch* const inherited = watch.exchange(nullptr); inherited != nullptr) inherited->abandon();
    mutex.unlock();  // which this thread has locked
  }

  Mutex mutex;
  std::atomic<Watch*> watch{nullptr};
  // All watches that were ever made. None is freed, because a cache that outlives the end, or is inherited by a child,
  // may use it.
  std::vector<std::unique_ptr<Watch>> made TUTTI_GUARDED_BY(mutex);
  bool ends TUTTI_GUARDED_BY(mutex) = false;  // end() will be called
};

Current& current() {
  // Never destroyed: other caches may outlive the static objects of this library.
  static constinit FirstUse<Current, Surplus::kKept> only;
  return only.get();
}

// When the library is loaded, not when the watch is first used, as another thread may fork just then.
[[maybe_unused]] const Current& monitor_made_at_load = current();

// At exit, or when the library is unloaded: the thread must not outlive its code.
void end() {
  if (Watch* const watch = current().watch.exchange(nullptr); watch != nullptr) watch->stop();
}

}  // namespace

MemoryMonitor* MemoryMonitor::instance(std::string* why) {
  Current& now = current();
  if (Watch* const watch = now.watch.load(std::memory_order_acquire); watch != nullptr) return watch;
  const MutexLock lock(now.mutex);
  if (Watch* const watch = now.watch.load(std::memory_order_acquire); watch != nullptr) return watch;
  const Status made = guarded([&]() -> Status {
    now.mutex.assert_held();
    // Runs before earlier registered exit handlers, which may free the memory.
    if (!now.ends && std::atexit(end) != 0) return Status::out_of_memory();
    now.ends = true;
    now.made.reserve(now.made.size() + 1);
    Result<std::unique_ptr<Watch>> watch = Watch::open();
    if (!watch.is_ok()) return watch.status();
    now.made.push_back(std::move(*watch));
    now.watch.store(now.made.back().get(), std::memory_order_release);
    return {};
  });
  if (!made.is_ok()) *why = made.message();
  return now.watch.load(std::memory_order_acquire);
}

std::size_t MemoryMonitor::page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));  // no system call
}

}  // namespace tutti::internal::memory
