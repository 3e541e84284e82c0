#include "job.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "os/clock.h"
#include "os/unique_fd.h"

namespace tutti::internal::test {
namespace {

constexpr std::int64_t kJobMs = 240'000;

void set_environment(const std::string& transports) {
  ::setenv("TUTTI_TRANSPORTS", transports.c_str(), 1);
  ::setenv("TUTTI_TIMEOUT_MS", "60000", 0);
  ::setenv("TUTTI_INIT_TIMEOUT_MS", "60000", 0);
}

struct Pipe {
  UniqueFd read;
  UniqueFd write;
  static Pipe create() {
    std::array<int, 2> fds{};
    if (::pipe(fds.data()) != 0) std::abort();
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
  }
};

bool write_all(int fd, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes != 0) {
    const ssize_t n = ::write(fd, at, bytes);
    if (n <= 0) return false;
    at += n;
    bytes -= static_cast<std::size_t>(n);
  }
  return true;
}

// Up to `bytes` until the end of the stream or the deadline.
std::string read_up_to(int fd, std::size_t bytes, Deadline deadline) {
  std::string text;
  while (text.size() < bytes) {
    pollfd p{fd, POLLIN, 0};
    if (deadline.passed()) break;
    if (::poll(&p, 1, 1000) <= 0) continue;
    std::array<char, 4096> buffer{};
    const ssize_t n = ::read(fd, buffer.data(), std::min(buffer.size(), bytes - text.size()));
    if (n <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(n));
  }
  return text;
}

// Rank 0 makes the id, because its process listens for the others, and hands out copies.
std::string join(int rank, int ranks, const Pipe& ids, tuttiComm_t* comm) {
  tuttiUniqueId id;
  std::memset(&id, 0, sizeof id);
  if (rank == 0) {
    if (tuttiGetUniqueId(&id) != tuttiSuccess) return std::string("unique id: ") + tuttiGetLastError(nullptr);
    for (int r = 1; r < ranks; ++r) {
      if (!write_all(ids.write.get(), &id, sizeof id)) return "cannot hand out the unique id";
    }
  } else {
    const std::string text = read_up_to(ids.read.get(), sizeof id, Deadline::after_ms(60'000));
    if (text.size() != sizeof id) return "no unique id";
    std::memcpy(&id, text.data(), sizeof id);
  }
  if (tuttiCommInitRank(comm, ranks, id, rank) != tuttiSuccess)
    return std::string("init: ") + tuttiGetLastError(nullptr);
  return {};
}

Outcome child_rank(int rank, int ranks, const Pipe& ids, const Body& body) {
  tuttiComm_t comm = nullptr;
  Outcome outcome;
  outcome.wrong = join(rank, ranks, ids, &comm);
  if (!outcome.wrong.empty()) return outcome;
  outcome = body(comm, rank, ranks);
  if (tuttiCommDestroy(comm) != tuttiSuccess && outcome.wrong.empty()) outcome.wrong = "destroy failed";
  return outcome;
}

Outcome collect(pid_t pid, int fd, Deadline deadline) {
  Outcome outcome;
  const std::string text = read_up_to(fd, SIZE_MAX, deadline);
  if (deadline.passed()) ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (text.size() < sizeof outcome.digest || !WIFEXITED(status)) {
    outcome.wrong = "the process ended with wait status " + std::to_string(status);
    return outcome;
  }
  std::memcpy(&outcome.digest, text.data(), sizeof outcome.digest);
  outcome.wrong = text.substr(sizeof outcome.digest);
  if (outcome.wrong.empty() && WEXITSTATUS(status) != 0) outcome.wrong = "the process failed";
  return outcome;
}

}  // namespace

std::vector<Outcome> run_threads(int ranks, const std::string& transports, const Body& body) {
  set_environment(transports);
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<Outcome> outcomes(n);
  std::vector<tuttiComm_t> comms(n, nullptr);
  if (tuttiCommInitAll(comms.data(), ranks, nullptr) != tuttiSuccess) {
    outcomes[0].wrong = std::string("tuttiCommInitAll: ") + tuttiGetLastError(nullptr);
    return outcomes;
  }
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < n; ++r) {
    threads.emplace_back([&, r] {
      outcomes[r] = body(comms[r], static_cast<int>(r), ranks);
      if (tuttiCommDestroy(comms[r]) != tuttiSuccess && outcomes[r].wrong.empty()) outcomes[r].wrong = "destroy failed";
    });
  }
  for (std::thread& t : threads) t.join();
  return outcomes;
}

std::vector<Outcome> run_processes(int ranks, const std::string& transports, const Body& body) {
  return run_unlike_processes(std::vector<std::string>(static_cast<std::size_t>(ranks), transports), body);
}

std::vector<Outcome> run_unlike_processes(const std::vector<std::string>& transports, const Body& body) {
  const int ranks = static_cast<int>(transports.size());
  const Deadline deadline = Deadline::after_ms(kJobMs);
  const Pipe ids = Pipe::create();
  std::vector<pid_t> pids;
  std::vector<Pipe> pipes;
  std::fflush(stdout);  // or each child writes it again
  for (int r = 0; r < ranks; ++r) {
    pipes.push_back(Pipe::create());
    const pid_t pid = ::fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      // A test that its runner kills must not leave ranks behind, which may compute without end.
      if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) std::abort();
      set_environment(transports[static_cast<std::size_t>(r)]);
      const Outcome outcome = child_rank(r, ranks, ids, body);
      const int fd = pipes.back().write.get();
      const bool told = write_all(fd, &outcome.digest, sizeof outcome.digest) &&
                        write_all(fd, outcome.wrong.data(), outcome.wrong.size());
      ::_exit(told && outcome.wrong.empty() ? 0 : 1);
    }
    pids.push_back(pid);
    pipes.back().write.reset();
  }
  std::vector<Outcome> outcomes;
  for (std::size_t r = 0; r < pids.size(); ++r) outcomes.push_back(collect(pids[r], pipes[r].read.get(), deadline));
  return outcomes;
}

std::string wrong_of(const std::vector<Outcome>& outcomes) {
  std::string all;
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (!outcomes[r].wrong.empty()) all += "rank " + std::to_string(r) + ": " + outcomes[r].wrong + "\n";
  }
  return all;
}

bool same_digests(const std::vector<Outcome>& outcomes) {
  return std::all_of(outcomes.begin(), outcomes.end(),
                     [&](const Outcome& o) { return o.digest == outcomes.front().digest; });
}

}  // namespace tutti::internal::test
