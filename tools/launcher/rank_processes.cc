#include "rank_processes.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "os/unique_fd.h"

namespace tutti::internal::tools {
namespace {

constexpr int kNoProcess = 1;
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

// As bash tells them apart.
StartFailure failure_of(const std::string& program, int error) {
  const bool has_path = program.find('/') != std::string::npos;
  if (error != ENOENT || (has_path && ::access(program.c_str(), F_OK) == 0)) {
    const char* const why = error == ENOENT ? "its interpreter does not exist" : std::strerror(error);
    return {kCannotRun, fmt::format("{}: cannot be run: {}", program, why)};
  }
  const bool is_here = !has_path && ::access(program.c_str(), F_OK) == 0;
  return {kNotFound, fmt::format("{}: not found{}{}", program, has_path ? "" : " in any folder of PATH",
                                 is_here ? fmt::format("; is ./{} meant?", program) : "")};
}

// In the child, up to the program; returns errno where that cannot be run.
int become(const RankProgram& program, char** words, char** environment, const ProcessState& state, pid_t launcher) {
  // The launcher may have died before prctl.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (::getppid() != launcher) ::_exit(kNoProcess);
  if (::setpgid(0, 0) != 0) return errno;
  const std::array<int, 3> streams{program.input, program.output, program.errors};
  for (int stream = 0; stream < 3; ++stream) {
    if (streams[stream] != stream && ::dup2(streams[stream], stream) < 0) return errno;
  }
  state.restore();
  ::execvpe(words[0], words, environment);
  return errno;
}

}  // namespace

ProcessState ProcessState::now() {
  ProcessState state;
  ::sigprocmask(SIG_BLOCK, nullptr, &state.mask);
  ::sigaction(SIGPIPE, nullptr, &state.broken_pipe);
  ::getrlimit(RLIMIT_NOFILE, &state.open_files);
  return state;
}

void ProcessState::restore() const {
  ::setrlimit(RLIMIT_NOFILE, &open_files);
  ::sigaction(SIGPIPE, &broken_pipe, nullptr);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
}

RankProcesses::RankProcesses(const ProcessState& state) : state_(state), launcher_(::getpid()) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

RankProcesses::~RankProcesses() {
  signal(SIGKILL);
  for (const Group& group : groups_) {
    if (!group.left) continue;
    while (::waitpid(group.runs ? group.leader : -group.leader, nullptr, 0) > 0 || errno == EINTR) {
    }
  }
}

StartFailure RankProcesses::start(const RankProgram& program) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {kNoProcess, Status::system("pipe", errno).message()};
  const UniqueFd told(ends[0]);
  UniqueFd tell(ends[1]);
  const std::vector<char*> words = pointers(program.words);
  const std::vector<char*> environment = pointers(program.environment);
  const pid_t child = ::fork();
  if (child < 0) return {kNoProcess, Status::system("no process for a rank", errno).message()};
  if (child == 0) {
    const int error =
        become(program, const_cast<char**>(words.data()), const_cast<char**>(environment.data()), state_, launcher_);
    [[maybe_unused]] const ssize_t put = ::write(tell.get(), &error, sizeof error);
    ::_exit(kNoProcess);
  }
  tell.reset();
  // Ends without a word once the program runs: tell is close-on-exec.
  int error = 0;
  ssize_t got = 0;
  while ((got = ::read(told.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (got == sizeof error) {
    ::waitpid(child, nullptr, 0);
    return failure_of(program.words[0], error);
  }
  groups_.push_back({child, true, true});
  ++running_;
  ++groups_left_;
  return {};
}

// The kernel does not reuse a group's number until all of its processes have been collected.
void RankProcesses::signal(int number) const {
  for (const Group& group : groups_) {
    if (group.left && ::kill(-group.leader, number) != 0 && group.runs) ::kill(group.leader, number);
  }
}

// The rank itself may have gone into another group.
void RankProcesses::collect_group(std::size_t rank, const Changed& changed) {
  Group& group = groups_[rank];
  if (!group.left) return;
  bool empty = false;
  for (const pid_t whom : {group.leader, -group.leader}) {
    if (whom > 0 && !group.runs) continue;
    int wait_status = 0;
    pid_t process = 0;
    while ((process = ::waitpid(whom, &wait_status, WNOHANG | WUNTRACED)) > 0) {
      if (process != group.leader) continue;
      if (!WIFSTOPPED(wait_status)) {
        group.runs = false;
        --running_;
      }
      changed(static_cast<int>(rank), wait_status);
    }
    empty = process < 0 && errno == ECHILD;
  }
  if (!empty || group.runs) return;
  group.left = false;
  --groups_left_;
}

void RankProcesses::collect(pid_t first, const Changed& changed) {
  for (std::size_t rank = 0; rank < groups_.size(); ++rank) {
    if (groups_[rank].leader == first) collect_group(rank, changed);
  }
  for (std::size_t rank = 0; rank < groups_.size(); ++rank) collect_group(rank, changed);
}

}  // namespace tutti::internal::tools
