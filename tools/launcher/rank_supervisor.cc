#include "rank_supervisor.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/descriptors.h"

namespace tutti::internal::tools {
namespace {

constexpr int kFailure = 1;
constexpr int kTimedOut = 124;
constexpr int kOfSignal = 128;
// Processes may be made while others are killed.
constexpr std::int64_t kKillAgainMs = 100;
// How soon it is seen that what a rank has started has left its group.
constexpr int kLookMs = 50;
constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

bool is_ignored(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

bool is_labelled(const RankRun& run, int destination) {
  return run.labelled.value_or(run.ranks > 1 && ::isatty(destination) == 1);
}

// One rank has the launcher's streams as they are, unless something has to be done with them.
bool passes_on(const RankRun& run) {
  return run.ranks > 1 || run.labelled.value_or(false);
}

std::string describe(int rank, int wait_status) {
  if (!WIFSIGNALED(wait_status)) {
    return fmt::format("tutti run: rank {} has ended with exit status {}", rank, WEXITSTATUS(wait_status));
  }
  const int number = WTERMSIG(wait_status);
  return fmt::format("tutti run: rank {} was ended by signal {} ({}{})", rank, number, ::strsignal(number),
                     WCOREDUMP(wait_status) ? ", core dumped" : "");
}

}  // namespace

RankSupervisor::RankSupervisor(const RankRun& run)
    : run_(run),
      state_(ProcessState::now()),
      output_(STDOUT_FILENO, is_labelled(run, STDOUT_FILENO)),
      errors_(STDERR_FILENO, is_labelled(run, STDERR_FILENO)),
      processes_(state_) {}

// The ranks inherit ignored signals, such as SIGHUP under nohup.
Status RankSupervisor::open_signals() {
  sigset_t taken;
  ::sigemptyset(&taken);
  ::sigaddset(&taken, SIGCHLD);
  for (const int number : kForwarded) {
    if (!is_ignored(number)) ::sigaddset(&taken, number);
  }
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  if (::sigprocmask(SIG_BLOCK, &taken, nullptr) != 0) return Status::system("sigprocmask", errno);
  signals_ = UniqueFd(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  return signals_.valid() ? Status() : Status::system("signalfd", errno);
}

// Rank 0 gets the launcher's input, which an invalid descriptor stands for, or a pipe if that is a terminal. The others
// get /dev/null.
Result<UniqueFd> RankSupervisor::open_input(int rank) {
  if (rank > 0) {
    UniqueFd none(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!none.valid()) return Status::system("/dev/null", errno);
    return none;
  }
  if (::isatty(STDIN_FILENO) != 1) return UniqueFd();
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::system("pipe", errno);
  UniqueFd source(ends[0]);
  UniqueFd sink(ends[1]);
  if (::fcntl(sink.get(), F_SETFL, O_NONBLOCK) != 0) return Status::system("fcntl", errno);
  input_ = InputRelay(std::move(sink));
  return source;
}

// An invalid one stands for the launcher's own.
Result<UniqueFd> RankSupervisor::open_output(int rank, MergedOutput& output, int stream, const char* suffix) {
  if (!run_.folder.empty()) {
    const std::string path = fmt::format("{}/rank{}.{}", run_.folder, rank, suffix);
    UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file.valid()) return Status::system(path, errno);
    return file;
  }
  if (!passes_on(run_)) return UniqueFd();
  Result<OutputPipe> pipe = open_output_pipe(stream);
  if (!pipe.is_ok()) return pipe.status();
  output.add(rank, std::move(pipe->source));
  return std::move(pipe->sink);
}

int RankSupervisor::fail(const std::string& what) {
  errors_.say(fmt::format("tutti run: {}", what));
  return kFailure;
}

int RankSupervisor::start_rank(int rank) {
  const Result<UniqueFd> input = open_input(rank);
  if (!input.is_ok()) return fail(input.status().message());
  const Result<UniqueFd> output = open_output(rank, output_, STDOUT_FILENO, "out");
  if (!output.is_ok()) return fail(output.status().message());
  const Result<UniqueFd> errors = open_output(rank, errors_, STDERR_FILENO, "err");
  if (!errors.is_ok()) return fail(errors.status().message());
  const auto or_own = [](const UniqueFd& fd, int own) { return fd.valid() ? fd.get() : own; };
  const StartFailure failure = processes_.start(
      {run_.program, run_.environment[static_cast<std::size_t>(rank)], or_own(input.value(), STDIN_FILENO),
       or_own(output.value(), STDOUT_FILENO), or_own(errors.value(), STDERR_FILENO)});
  if (failure.exit_status == 0) return 0;
  fail(failure.message);
  return failure.exit_status;
}

int RankSupervisor::start_ranks() {
  for (int rank = 0; rank < run_.ranks; ++rank) {
    if (const int status = start_rank(rank); status != 0) return status;
  }
  return 0;
}

void RankSupervisor::end_run(int exit_status) {
  if (ended_by_ == 0) ended_by_ = exit_status;
  terminate_at_.reset();
  if (!kill_at_) kill_at_ = Deadline::after_ms(run_.grace_ms);
}

void RankSupervisor::rank_ended(int rank, int wait_status) {
  const bool by_signal = WIFSIGNALED(wait_status);
  const int number = by_signal ? WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  // Later failures are consequences of the first one, or of the end of the run.
  if ((!by_signal && number == 0) || failure_ != 0 || ended_by_ != 0) return;
  failure_ = by_signal ? kOfSignal + number : number;
  // As with `head`, below.
  const bool has_no_reader = by_signal && number == SIGPIPE && !passes_on(run_);
  if (!has_no_reader) errors_.say(describe(rank, wait_status));
  if (!run_.keep_going) terminate_at_ = Deadline::after_ms(run_.grace_ms);
}

// Reports only stops by the terminal: a process that sends another signal to stop or continue a rank knows of it.
void RankSupervisor::rank_stopped(int rank, int number) {
  if (number != SIGTTIN && number != SIGTTOU) return;
  errors_.say(
      fmt::format("tutti run: rank {} was stopped by signal {} ({}): a rank uses the terminal by its standard streams "
                  "alone, since the terminal is the launcher's",
                  rank, number, ::strsignal(number)));
}

void RankSupervisor::collect(pid_t first) {
  processes_.collect(first, [this](int rank, int wait_status) {
    if (WIFSTOPPED(wait_status)) return rank_stopped(rank, WSTOPSIG(wait_status));
    rank_ended(rank, wait_status);
  });
}

void RankSupervisor::take_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      collect(static_cast<pid_t>(info.ssi_pid));
      continue;
    }
    processes_.signal(number);
    terminated_ |= number == SIGTERM;
    // Ranks are in no group that the terminal's keys reach.
    if (number == SIGTSTP) ::raise(SIGSTOP);
    if (number == SIGINT || number == SIGTERM || number == SIGHUP) end_run(kOfSignal + number);
  }
}

void RankSupervisor::act_on_time() {
  if (run_until_ && run_until_->passed()) {
    run_until_.reset();
    fail(fmt::format("the ranks had not ended after {:g} s (--timeout)", static_cast<double>(run_.timeout_ms) / 1e3));
    end_run(kTimedOut);
    terminate_at_ = Deadline::after_ms(0);
  }
  // A process may also leave its rank's group, as a daemon does, and of that no signal tells.
  if (!processes_.ranks_left() && processes_.processes_left()) collect(0);
  // Processes that ranks have started, such as formatters of their output, may end by themselves, and may ignore
  // SIGINT.
  if (!processes_.ranks_left() && processes_.processes_left() && !terminate_at_ && !terminated_) {
    terminate_at_ = Deadline::after_ms(ended_by_ != 0 ? 0 : run_.grace_ms);
  }
  if (terminate_at_ && terminate_at_->passed()) {
    terminate_at_.reset();
    terminated_ = true;
    processes_.signal(SIGTERM);
    processes_.signal(SIGCONT);  // one that is stopped would not take it
    if (!kill_at_) kill_at_ = Deadline::after_ms(run_.grace_ms);
  }
  if (kill_at_ && kill_at_->passed()) {
    processes_.signal(SIGKILL);
    kill_at_ = Deadline::after_ms(kKillAgainMs);
    killed_ = true;
  }
}

int RankSupervisor::timeout_ms() const {
  constexpr int kLong = 1'000'000'000;
  int ms = -1;
  for (const auto& deadline : {run_until_, terminate_at_, kill_at_}) {
    if (deadline) ms = deadline->left_ms(ms < 0 ? kLong : ms);
  }
  if (!processes_.ranks_left() && processes_.processes_left()) ms = ms < 0 ? kLookMs : std::min(ms, kLookMs);
  return ms;
}

void RankSupervisor::wait_for_events() {
  int ms = timeout_ms();
  // The signals are first: what a rank that has ended wrote before is then seen with its end, and passed on before.
  std::vector<pollfd> entries{{signals_.get(), POLLIN, 0}};
  output_.watch(&entries, &ms);
  errors_.watch(&entries, &ms);
  input_.watch(&entries, &ms);
  ::poll(entries.data(), entries.size(), ms);
  input_.serve(entries);
  for (MergedOutput* const one : {&output_, &errors_}) {
    const int error = one->serve(entries);
    if (error == 0 || ended_by_ != 0) continue;
    // A reader that has enough, such as `head`, is not an error. Any other failure is one.
    end_run(error == EPIPE ? kOfSignal + SIGPIPE
                           : fail(Status::system("cannot write what the ranks write", error).message()));
    terminate_at_ = Deadline::after_ms(0);
  }
  if (entries[0].revents != 0) take_signals();
}

bool RankSupervisor::finished() const {
  if (processes_.processes_left()) return false;
  // A user who ends a run does not wait for a reader that does not take its output.
  return (output_.done() && errors_.done()) || (ended_by_ != 0 && killed_);
}

int RankSupervisor::run() {
  const DescriptorReservation descriptors(static_cast<std::size_t>(4 * run_.ranks));
  if (const Status status = open_signals(); !status.is_ok()) {
    std::fprintf(stderr, "tutti run: %s\n", status.message().c_str());
    return kFailure;
  }
  if (run_.timeout_ms > 0) run_until_ = Deadline::after_ms(run_.timeout_ms);
  const int not_started = start_ranks();
  if (not_started != 0) {
    end_run(not_started);
    processes_.signal(SIGKILL);
  }
  while (!finished()) {
    wait_for_events();
    act_on_time();
    if (!processes_.processes_left()) {
      run_until_.reset();
      output_.expect_the_last();
      errors_.expect_the_last();
    }
  }
  return ended_by_ != 0 ? ended_by_ : failure_;
}

}  // namespace tutti::internal::tools
