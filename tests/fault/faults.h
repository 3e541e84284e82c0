// What the tests of failures share.
#pragma once

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "catch_compat.h"
#include "collectives/job.h"

namespace tutti::test {

// A failure must be noticed within a second; on a machine that other work keeps busy it may take longer
// before the test calls it a defect.
inline constexpr std::int64_t kNoticeMs = 5000;

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Sets the timeout of the operations of the jobs made while it lives.
class Timeout {
 public:
  explicit Timeout(int ms) { ::setenv("TUTTI_TIMEOUT_MS", std::to_string(ms).c_str(), 1); }
  Timeout(const Timeout&) = delete;
  Timeout& operator=(const Timeout&) = delete;
  ~Timeout() { ::unsetenv("TUTTI_TIMEOUT_MS"); }
};

enum class RunJobKind { kThreads, kProcesses };

inline void sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

inline std::string describe(tuttiResult_t result, tuttiComm_t comm) {
  return std::string(tuttiGetErrorString(result)) + " (" + tuttiGetLastError(comm) + ")";
}

}  // namespace tutti::test
