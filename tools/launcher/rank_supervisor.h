// Runs a program as ranks on this machine, up to their end: their output, their input, the launcher's signals.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "input_relay.h"
#include "merged_output.h"
#include "os/clock.h"
#include "rank_processes.h"

namespace tutti::internal::tools {

struct RankRun {
  int ranks = 1;
  std::vector<std::string> program;                   // and its arguments
  std::vector<std::vector<std::string>> environment;  // of each rank, NAME=VALUE
  std::optional<bool> labelled;                       // unset: of several ranks, on a terminal
  std::string folder;                                 // where files get the ranks' output; empty: it is passed on
  std::int64_t grace_ms = 0;                          // between being told to end and being killed
  std::int64_t timeout_ms = 0;                        // 0: none
  bool keep_going = false;                            // ranks that are left run on when one has failed
};

// Once in a process, before it has threads: it blocks signals, and does not restore that.
class RankSupervisor {
 public:
  explicit RankSupervisor(const RankRun& run);
  // The exit status: that of the first rank that failed, 128 + a signal that ended it or the run, 124 at the timeout,
  // 126 or 127 where the program cannot be started, 1 where something else failed, which is said.
  int run();

 private:
  Status open_signals();
  Result<UniqueFd> open_input(int rank);
  Result<UniqueFd> open_output(int rank, MergedOutput& output, int stream, const char* suffix);
  // The exit status where it fails.
  int start_ranks();
  int start_rank(int rank);
  void take_signals();
  void collect(pid_t first);
  void rank_ended(int rank, int wait_status);
  void rank_stopped(int rank, int number);
  void act_on_time();
  [[nodiscard]] int timeout_ms() const;
  // The run ends with this status, whatever ranks do: they have got a signal, and are killed if they do not end.
  void end_run(int exit_status);
  void wait_for_events();
  [[nodiscard]] bool finished() const;
  int fail(const std::string& what);

  const RankRun& run_;
  const ProcessState state_;
  UniqueFd signals_;
  MergedOutput output_;
  MergedOutput errors_;
  InputRelay input_;
  RankProcesses processes_;
  int failure_ = 0;          // exit status of the first rank that failed
  int ended_by_ = 0;         // exit status where the run was ended from outside; it counts then
  bool terminated_ = false;  // the ranks have got SIGTERM
  bool killed_ = false;
  std::optional<Deadline> run_until_;
  std::optional<Deadline> terminate_at_;
  std::optional<Deadline> kill_at_;
};

}  // namespace tutti::internal::tools
