// Shared parts of the tests of processes that fork: children, and their actions.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "faults.h"

namespace tutti::internal::test {

// Runs `body` in a forked child and returns its error text. A child that hangs is killed by its alarm.
inline std::string in_child(const std::function<std::string()>& body) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "no pipe";
  const pid_t pid = ::fork();
  if (pid < 0) return "no fork";
  if (pid == 0) {
    ::alarm(60);
    const std::string wrong = body();
    const bool told = ::write(ends[1], wrong.data(), wrong.size()) == static_cast<ssize_t>(wrong.size());
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  std::string wrong;
  std::array<char, 512> buffer{};
  for (ssize_t n = 0; (n = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    wrong.append(buffer.data(), static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return status == 0 ? wrong : "the child ended with wait status " + std::to_string(status) + " " + wrong;
}

inline tuttiResult_t all_reduce(tuttiComm_t comm, std::int32_t* value, tuttiStream_t stream = nullptr) {
  return tuttiAllReduce(value, value, 1, tuttiInt32, tuttiSum, comm, stream);
}

// Both ranks, one of them over a stream, which makes the communicator start its thread.
inline std::string try_out(const std::array<tuttiComm_t, 2>& comms, tuttiStream_t stream) {
  std::array<std::int32_t, 2> values{1, 2};
  tuttiResult_t other = tuttiInternalError;
  std::thread rank_1([&] { other = all_reduce(comms[1], &values[1]); });
  const tuttiResult_t queued = all_reduce(comms[0], &values[0], stream);
  const tuttiResult_t done = stream == nullptr ? queued : tuttiStreamSynchronize(stream);
  rank_1.join();
  if (queued != tuttiSuccess || done != tuttiSuccess || other != tuttiSuccess) return "an operation failed";
  return values[0] == 3 && values[1] == 3 ? "" : "a wrong sum";
}

inline std::string make_own() {
  std::array<tuttiComm_t, 2> comms{};
  if (tuttiCommInitAll(comms.data(), 2, nullptr) != tuttiSuccess) return tuttiGetLastError(nullptr);
  tuttiStream_t stream = nullptr;
  if (tuttiStreamCreate(&stream) != tuttiSuccess) return tuttiGetLastError(nullptr);
  std::string wrong = try_out(comms, nullptr);
  if (wrong.empty()) wrong = try_out(comms, stream);
  // At the same time, because each waits for the other.
  tuttiResult_t other = tuttiInternalError;
  std::thread rank_1([&] { other = tuttiCommDestroy(comms[1]); });
  const tuttiResult_t mine = tuttiCommDestroy(comms[0]);
  rank_1.join();
  if (mine != tuttiSuccess || other != tuttiSuccess) wrong = "cannot destroy its own";
  if (tuttiStreamDestroy(stream) != tuttiSuccess) wrong = "cannot destroy its own stream";
  return wrong;
}

// With a unique id, like ranks that are processes.
inline std::string join_own() {
  tuttiUniqueId id;
  if (tuttiGetUniqueId(&id) != tuttiSuccess) return tuttiGetLastError(nullptr);
  std::array<tuttiComm_t, 2> comms{};
  tuttiResult_t other = tuttiInternalError;
  std::thread rank_1([&] { other = tuttiCommInitRank(&comms[1], 2, id, 1); });
  const tuttiResult_t mine = tuttiCommInitRank(&comms[0], 2, id, 0);
  const std::string why = tuttiGetLastError(nullptr);
  rank_1.join();
  if (mine != tuttiSuccess || other != tuttiSuccess) return "joining: " + why;
  const std::string wrong = try_out(comms, nullptr);
  std::thread leaves([&] { (void)tuttiCommDestroy(comms[1]); });
  (void)tuttiCommDestroy(comms[0]);
  leaves.join();
  return wrong;
}

}  // namespace tutti::internal::test
