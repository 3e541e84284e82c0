#include "ranks.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/config.h"
#include "base/control_group.h"
#include "exit_status.h"
#include "operation.h"
#include "os/clock.h"

namespace tutti::internal::perf {
namespace {

constexpr std::int64_t kIdWaitMs = 60'000;
// A rank whose peer died learns of it from the library within a second; this is for one that does not.
constexpr std::int64_t kGraceAfterFailureMs = 20'000;
constexpr useconds_t kPollIntervalUs = 2000;

enum class IdState : int { kMissing = 0, kReady = 1, kFailed = 2 };

// Memory that the processes share; made before the fork.
struct SharedPage {
  std::atomic<IdState> state{IdState::kMissing};
  tuttiUniqueId id{};
  std::atomic<bool> broken_pipe{false};  // who reads the output has gone
};

int fail(const Status& status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return kFailureStatus;
}

int run_and_destroy(tuttiComm_t comm, const RankMain& rank_main) {
  const int result = rank_main(comm);
  const Status status = to_status(tuttiCommDestroy(comm), "tuttiCommDestroy", nullptr);
  return status.is_ok() || result != 0 ? result : fail(status);
}

// Runs body(i) on `count` threads; the largest status. Not threads of the library's kind, which block signals: a rank
// that writes into a broken pipe gets SIGPIPE.
int run_threads(int count, const std::function<int(int)>& body) {
  std::vector<int> statuses(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    try {
      threads.emplace_back([&, i] { statuses[i] = body(i); });
    } catch (const std::system_error& e) {
      // The ranks that run would wait for this one.
      const Status why = Status::system("cannot start a thread", e.code().value());
      const int status = fail(Status(why.code(), why.message() + thread_advice(e.code().value())));
      std::fflush(nullptr);
      std::_Exit(status);
    }
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(statuses.begin(), statuses.end());
}

int run_in_process(int threads, const RankMain& rank_main) {
  std::vector<tuttiComm_t> comms(static_cast<std::size_t>(threads));
  const Status status = to_status(tuttiCommInitAll(comms.data(), threads, nullptr), "tuttiCommInitAll", nullptr);
  if (!status.is_ok()) return fail(status);
  return run_threads(threads, [&](int i) { return run_and_destroy(comms[i], rank_main); });
}

bool share_id(SharedPage& page) {
  const Status status = to_status(tuttiGetUniqueId(&page.id), "tuttiGetUniqueId", nullptr);
  if (!status.is_ok()) fail(status);
  page.state.store(status.is_ok() ? IdState::kReady : IdState::kFailed, std::memory_order_release);
  return status.is_ok();
}

bool wait_for_id(const SharedPage& page) {
  const Deadline deadline = Deadline::after_ms(kIdWaitMs);
  while (page.state.load(std::memory_order_acquire) == IdState::kMissing && !deadline.passed()) usleep(kPollIntervalUs);
  return page.state.load(std::memory_order_acquire) == IdState::kReady;
}

int run_child(int process, const Options& options, SharedPage& page, const RankMain& rank_main) {
  const int threads = options.ranks_of_process();
  // For TUTTI_BIND, over what a launcher has said of the parent.
  setenv("TUTTI_LOCAL_RANK", std::to_string(process).c_str(), 1);
  setenv("TUTTI_LOCAL_SIZE", std::to_string(options.processes).c_str(), 1);
  if (process == 0 ? !share_id(page) : !wait_for_id(page)) return kFailureStatus;
  return run_threads(threads, [&](int i) {
    tuttiComm_t comm = nullptr;
    const int rank = process * threads + i;
    const Status status =
        to_status(tuttiCommInitRank(&comm, options.local_ranks(), page.id, rank), "tuttiCommInitRank", nullptr);
    return status.is_ok() ? run_and_destroy(comm, rank_main) : fail(status);
  });
}

int exit_status_of(pid_t child, int wait_status) {
  if (WIFEXITED(wait_status)) return WEXITSTATUS(wait_status);
  std::fprintf(stderr, "error: process %d was ended by signal %d (%s)\n", static_cast<int>(child),
               WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
  return kFailureStatus;
}

// A reader of the output that has enough, such as `head`, closes the pipe; this is not an error. So a rank that gets
// SIGPIPE waits until the parent ends all ranks at once, before one of them reports the loss of another.
SharedPage* page_of_child = nullptr;
extern "C" void wait_for_the_end(int) {
  page_of_child->broken_pipe.store(true);
  for (;;) pause();
}
void watch_output(SharedPage* page) {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  page_of_child = page;
  signal(SIGPIPE, wait_for_the_end);
}

// Ends as one process would.
[[noreturn]] void end_by_broken_pipe(const std::vector<pid_t>& children) {
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  signal(SIGPIPE, SIG_DFL);
  raise(SIGPIPE);
  std::exit(kFailureStatus);  // where the signal is blocked
}

// Waits for all children. After the first failure the others get a while to end by themselves.
int collect(std::vector<pid_t> children, const SharedPage& page) {
  int worst = 0;
  std::int64_t kill_at_ns = 0;
  while (!children.empty()) {
    if (page.broken_pipe.load()) end_by_broken_pipe(children);
    const std::size_t before = children.size();
    std::erase_if(children, [&](pid_t child) {
      int wait_status = 0;
      const pid_t ended = waitpid(child, &wait_status, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
      worst = std::max(worst, ended < 0 ? kFailureStatus : exit_status_of(child, wait_status));
      return true;
    });
    if (worst != 0 && kill_at_ns == 0) kill_at_ns = now_ns() + kGraceAfterFailureMs * 1'000'000;
    if (kill_at_ns != 0 && now_ns() > kill_at_ns) {
      for (const pid_t child : children) kill(child, SIGKILL);
    }
    if (children.size() == before) usleep(kPollIntervalUs);
  }
  return worst;
}

int run_processes(const Options& options, const RankMain& rank_main) {
  void* memory = mmap(nullptr, sizeof(SharedPage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail(Status::system("mmap", errno));
  SharedPage* page = new (memory) SharedPage;
  const pid_t parent = getpid();
  std::vector<pid_t> children;
  for (int process = 0; process < options.processes; ++process) {
    const pid_t child = fork();
    if (child < 0) {
      fail(Status::system("fork", errno));
      for (const pid_t started : children) kill(started, SIGKILL);
      collect(children, *page);
      return kFailureStatus;
    }
    if (child == 0) {
      // The parent may have died between fork and prctl.
      if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(kFailureStatus);
      watch_output(page);
      const int status = run_child(process, options, *page, rank_main);
      std::fflush(nullptr);
      std::exit(status);
    }
    children.push_back(child);
  }
  const int status = collect(std::move(children), *page);
  munmap(memory, sizeof(SharedPage));
  return status;
}

// Threads of each of the launcher's processes, which are connected already.
int run_threads_of_job(int threads, tuttiComm_t processes, const RankMain& rank_main) {
  int process = 0;
  int count = 0;
  tuttiUniqueId id{};
  Status status = to_status(tuttiCommUserRank(processes, &process), "tuttiCommUserRank", processes);
  if (status.is_ok()) status = to_status(tuttiCommCount(processes, &count), "tuttiCommCount", processes);
  if (status.is_ok() && process == 0) status = to_status(tuttiGetUniqueId(&id), "tuttiGetUniqueId", nullptr);
  if (status.is_ok()) {
    status = to_status(tuttiBcast(&id, sizeof id, tuttiUint8, 0, processes, nullptr), "tuttiBcast", processes);
  }
  if (!status.is_ok()) return fail(status);
  return run_threads(threads, [&](int i) {
    tuttiComm_t comm = nullptr;
    const Status made =
        to_status(tuttiCommInitRank(&comm, count * threads, id, process * threads + i), "tuttiCommInitRank", nullptr);
    return made.is_ok() ? run_and_destroy(comm, rank_main) : fail(made);
  });
}

int run_launched(const Options& options, const RankMain& rank_main) {
  tuttiComm_t comm = nullptr;
  const tuttiResult_t result = tuttiCommInitEnv(&comm, nullptr);
  if (result == tuttiSuccess) {
    const int threads = options.ranks_of_process();
    if (threads == 1) return run_and_destroy(comm, rank_main);
    return run_and_destroy(comm,
                           [&](tuttiComm_t processes) { return run_threads_of_job(threads, processes, rank_main); });
  }
  Status status = to_status(result, "tuttiCommInitEnv", nullptr);
  // The library's text is for programs that cannot start ranks by themselves.
  if (status.message().find("no launcher found") != std::string::npos) {
    status = Status::invalid_usage(
        "no launcher has started this program, so it does not know its ranks. Start 2 processes with -p 2 (tutti tune: "
        "-n 2) or 2 threads with -t 2, or start the program by tutti run -n 2, mpirun, mpiexec, srun or torchrun");
  }
  fail(status);
  return result == tuttiInvalidUsage ? kUsageStatus : kFailureStatus;
}

}  // namespace

int launched_processes() {
  for (const char* variable :
       {"TUTTI_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    if (const auto value = environment_variable(variable)) return std::max(0, std::atoi(value->c_str()));
  }
  return 0;
}

int run_ranks(const Options& options, const RankMain& rank_main) {
  // A measurement that begins with two ranks on one processor may end so.
  if (!environment_variable("TUTTI_AFFINITY")) setenv("TUTTI_AFFINITY", "start", 1);
  const bool joins_launched = options.processes == 0 && launched_processes() > 1;
  if (options.local_ranks() == 0 || joins_launched) return run_launched(options, rank_main);
  if (options.processes > 1) return run_processes(options, rank_main);
  return run_in_process(options.local_ranks(), rank_main);
}

}  // namespace tutti::internal::perf
