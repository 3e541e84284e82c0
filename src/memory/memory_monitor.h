// Tells when memory of this process that was registered with a device is no longer what it was: unmapped, moved
// or discarded, by whomever. A registration pins pages, not addresses: after munmap(2) and mmap(2) the same
// address shows other pages, and a device would go on sending the old ones.
//
// By userfaultfd(2) in write-protect mode without a page ever being protected: the kernel then reports munmap,
// mremap and madvise(MADV_DONTNEED, MADV_FREE, MADV_REMOVE) of the watched ranges, and each of these calls returns
// only when its report has been taken. One per process, as a range can be watched by one userfaultfd alone; a
// sleeping thread takes the reports.
//
// Limits. A private mapping of a file in memory (tmpfs) is watched, but not told of a truncation of that file.
// Watching part of a mapping divides it, as mlock(2) and madvise(2) do: mremap(2) of the whole then fails
// before Linux 6.17 (realloc(3) copies instead). A thread that discards memory while an operation of another
// thread uses that memory may have the operations after it send what was discarded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::internal::memory {

class MemoryMonitor {
 public:
  struct Range {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
  };

  virtual ~MemoryMonitor() = default;
  // The process's monitor. Null if the kernel or a sandbox forbids it: then *why has the reason and the fix. Any
  // thread. A child after fork(2) gets its own; in the child, the parent's monitor watches nothing and drain() returns
  // false.
  static MemoryMonitor* instance(std::string* why);
  // Of the smallest page.
  static std::size_t page_bytes();

  // Whole pages. From now on their changes are reported. False if not all changes of this memory would be reported: a
  // mapped file, another userfaultfd, and memory shared through a file or a System V segment, which also changes by
  // ftruncate(2), fallocate(2) and shmdt(2). Only present pages show whether they are shared. So call this before
  // registering, for the reports, and again after it, when all pages are present. If it returns false, do not keep the
  // memory registered. Any thread. Idempotent.
  virtual bool watch(Range range) = 0;

  // Changes reported so far. Any thread; a few nanoseconds.
  [[nodiscard]] virtual std::uint64_t count() const = 0;

  // Appends the changes since *seen (0 at first) to *changed, and moves *seen to count(). False if some changes have
  // been overwritten: then everything may have changed. After a call that changes memory has returned, every later call
  // of changes() reports it. Any thread; each caller has its own `seen`.
  virtual bool changes(std::uint64_t* seen, std::vector<Range>* changed) = 0;

  // True if changes() now reports all changes that began before this call. (Before munmap(2) returns, its addresses may
  // already be new memory of another thread.) False if after ten milliseconds some begun change has not been reported:
  // then do not use kept registrations. Any thread; one system call if nothing is changing.
  virtual bool drain() = 0;
};

}  // namespace tutti::internal::memory
