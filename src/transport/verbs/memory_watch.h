// Tells when memory of this process that was registered with a device is no longer what it was: unmapped, moved
// or discarded, by whomever. A registration pins pages, not addresses: after munmap(2) and mmap(2) the same
// address shows other pages, and a device would go on sending the old ones.
//
// By userfaultfd(2) in write-protect mode without a page ever being protected: the kernel then reports munmap,
// mremap and madvise(MADV_DONTNEED, MADV_REMOVE) of the watched ranges, and each of these calls returns only when
// its report has been taken. One per process, as a range can be watched by one userfaultfd alone; a sleeping thread
// takes the reports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::transport::verbs {

class MemoryWatch {
 public:
  struct Range {
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
  };

  virtual ~MemoryWatch() = default;
  // The process's. Null where the kernel or a sandbox does not allow it: *why then says so and how to get it. Any
  // thread. A child after fork(2) gets its own.
  static MemoryWatch* instance(std::string* why);

  // Whole pages. From here on changes are reported. False where the kernel cannot watch this memory (a mapped file,
  // someone else's userfaultfd); nothing is then to be kept registered. Any thread. Idempotent.
  virtual bool watch(Range range) = 0;

  // What has changed since *seen (0 at first), appended to *changed; *seen moves to now. False if there was more
  // than is remembered: everything may have changed. Once a call that changes memory has returned, every later call
  // of changes() reports it. Any thread; each caller has its own `seen`. Allocates nothing while it holds the lock:
  // whoever frees watched memory waits for the thread that takes reports, which waits for this lock.
  virtual bool changes(std::uint64_t* seen, std::vector<Range>* changed) = 0;
};

}  // namespace tutti::transport::verbs
