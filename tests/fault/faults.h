// Shared parts of the tests of failures.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "catch_compat.h"
#include "collectives/job.h"
#include "os/clock.h"
#include "variable.h"

namespace tutti::internal::test {

// A failure must be noticed within a second; a busy machine gets more time before the test calls it a defect.
inline constexpr std::int64_t kNoticeMs = 5000;

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Sets the timeout of the operations of the jobs made while it lives.
class Timeout : public Variable {
 public:
  explicit Timeout(int ms) : Variable("TUTTI_TIMEOUT_MS", std::to_string(ms)) {}
};

// Text that this process and its forked children write to standard error during its life.
class StandardError {
 public:
  StandardError() : file_(std::tmpfile()), saved_(::dup(STDERR_FILENO)) {
    REQUIRE(file_ != nullptr);
    REQUIRE(::dup2(::fileno(file_), STDERR_FILENO) >= 0);
  }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;
  ~StandardError() {
    restore();
    std::fclose(file_);
  }
  std::string take() {
    restore();
    std::string text(static_cast<std::size_t>(::lseek(::fileno(file_), 0, SEEK_END)), ' ');
    const ssize_t n = ::pread(::fileno(file_), text.data(), text.size(), 0);
    return text.substr(0, n > 0 ? static_cast<std::size_t>(n) : 0);
  }

 private:
  void restore() {
    if (saved_ >= 0) ::dup2(saved_, STDERR_FILENO);
    if (saved_ >= 0) ::close(saved_);
    saved_ = -1;
  }
  std::FILE* file_;
  int saved_;
};

inline std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// An object in memory that all processes of a job map.
template <typename T>
class SharedMemory {
 public:
  SharedMemory() : memory_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(memory_ != MAP_FAILED);
    object_ = new (memory_) T();
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { ::munmap(memory_, sizeof(T)); }
  [[nodiscard]] T* get() const { return object_; }
  T* operator->() const { return object_; }

 private:
  void* memory_;
  T* object_;
};

enum class RunJobKind { kThreads, kProcesses };

inline void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// Until the count is at least `least`, or for a minute.
inline void await_count(const std::atomic<int>& count, int least) {
  const Deadline deadline = Deadline::after_ms(60'000);
  while (count < least && !deadline.passed()) sleep_ms(1);
}

// Counts this rank, and waits until the count is `ranks`.
inline void await_all(std::atomic<int>* count, int ranks) {
  ++*count;
  await_count(*count, ranks);
}

// Calls all-reduces until an error, or for a minute.
inline tuttiResult_t reduce_until_error(tuttiComm_t comm, std::size_t count = 2000) {
  std::vector<float> values(count, 1.0F);
  const Deadline deadline = Deadline::after_ms(60'000);
  tuttiResult_t result = tuttiSuccess;
  while (result == tuttiSuccess && !deadline.passed()) {
    result = tuttiAllReduce(values.data(), values.data(), values.size(), tuttiFloat32, tuttiMax, comm, nullptr);
  }
  return result;
}

inline std::string describe(tuttiResult_t result, tuttiComm_t comm) {
  return std::string(tuttiGetErrorString(result)) + " (" + tuttiGetLastError(comm) + ")";
}

}  // namespace tutti::internal::test
