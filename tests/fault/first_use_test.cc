// A process forks while another thread makes its first communicator, during a measurement of the machine: the child
// makes its own communicators. Each case needs a process that has made none.
#include <dlfcn.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <csignal>

#include "faults.h"

namespace {

std::atomic<bool> waits{false};   // the next measurement waits
std::atomic<bool> inside{false};  // it has begun
std::atomic<bool> goes_on{false};

}  // namespace

// Replaces the C library's function. A thread that has lost its processor would stay in it as long.
extern "C" [[gnu::visibility("default")]] ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long locals,
                                                                   const iovec* remote, unsigned long remotes,
                                                                   unsigned long flags) {
  using Function = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "process_vm_readv"));
  if (waits.exchange(false)) {
    inside = true;
    while (!goes_on) tutti::internal::test::sleep_ms(1);
  }
  return real(pid, local, locals, remote, remotes, flags);
}

namespace tutti::internal::test {
namespace {

std::string use_two() {
  std::array<tuttiComm_t, 2> comms{};
  if (tuttiCommInitAll(comms.data(), 2, nullptr) != tuttiSuccess) return tuttiGetLastError(nullptr);
  std::array<float, 2> values{1, 2};
  std::array<tuttiResult_t, 2> results{};
  std::thread other(
      [&] { results[1] = tuttiAllReduce(&values[1], &values[1], 1, tuttiFloat32, tuttiSum, comms[1], nullptr); });
  results[0] = tuttiAllReduce(&values[0], &values[0], 1, tuttiFloat32, tuttiSum, comms[0], nullptr);
  other.join();
  for (const tuttiComm_t comm : comms) (void)tuttiCommDestroy(comm);
  return results[0] == tuttiSuccess && results[1] == tuttiSuccess && values[0] == 3 && values[1] == 3 ? ""
                                                                                                      : "wrong sums";
}

// A job of one rank, which connects like a process does.
std::string use_one() {
  tuttiUniqueId id{};
  tuttiComm_t comm = nullptr;
  float value = 1;
  const bool works = tuttiGetUniqueId(&id) == tuttiSuccess && tuttiCommInitRank(&comm, 1, id, 0) == tuttiSuccess &&
                     tuttiAllReduce(&value, &value, 1, tuttiFloat32, tuttiSum, comm, nullptr) == tuttiSuccess &&
                     tuttiCommDestroy(comm) == tuttiSuccess;
  return works ? use_two() : tuttiGetLastError(nullptr);
}

}  // namespace

TEST_CASE("fork: a child that is forked while another thread makes the first communicator makes its own") {
  waits = true;
  std::string of_parent = "not run";
  std::thread maker([&] { of_parent = use_one(); });
  for (int i = 0; i < 30'000 && !inside; ++i) sleep_ms(1);
  REQUIRE(inside);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);  // ends a child that hangs
    ::_exit(use_one().empty() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  goes_on = true;
  maker.join();
  CHECK(of_parent == "");
  CHECK_FALSE(WIFSIGNALED(status));
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

}  // namespace tutti::internal::test
