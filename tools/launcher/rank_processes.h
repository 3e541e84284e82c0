// The ranks of a program as processes of this machine: they are started, get signals, and end.
//
// Each leads a process group of its own, to which the signals go, so what a rank has started gets them too; a rank
// dies with the launcher.
#pragma once

#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal::tools {

// The signal mask, how SIGPIPE is taken, and the limit of open files: the launcher changes them for itself alone.
struct ProcessState {
  sigset_t mask{};
  struct sigaction broken_pipe {};
  rlimit open_files{};
  static ProcessState now();
  void restore() const;
};

struct RankProgram {
  std::vector<std::string> words;        // the program, found as a shell does, and its arguments
  std::vector<std::string> environment;  // NAME=VALUE
  int input = -1;
  int output = -1;
  int errors = -1;
};

// Why no process runs the program: 127 if it is not found, 126 if it cannot be run, 1 if no process could be started.
struct StartFailure {
  int exit_status = 0;  // 0: it runs
  std::string message;
};

// One thread.
class RankProcesses {
 public:
  // Processes that a rank leaves behind become children of this process, so it sees their end.
  explicit RankProcesses(const ProcessState& state);
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  // Kills what is left.
  ~RankProcesses();

  using Changed = std::function<void(int rank, int wait_status)>;

  // Ranks in their order, from 0.
  StartFailure start(const RankProgram& program);
  void signal(int number) const;
  // Calls `changed` for each rank that has ended or was stopped since (what waitpid says of it), `first` first, which
  // is a process.
  void collect(pid_t first, const Changed& changed);
  [[nodiscard]] bool ranks_left() const { return running_ > 0; }
  // Of ranks, or of what they have started.
  [[nodiscard]] bool processes_left() const { return groups_left_ > 0; }

 private:
  struct Group {
    pid_t leader = 0;
    bool left = false;  // the rank, or what it has started
    bool runs = false;  // the rank
  };
  void collect_group(std::size_t rank, const Changed& changed);

  const ProcessState state_;
  const pid_t launcher_;
  std::vector<Group> groups_;  // by rank
  int running_ = 0;
  int groups_left_ = 0;
};

}  // namespace tutti::internal::tools
