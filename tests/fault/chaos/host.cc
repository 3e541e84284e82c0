#include "host.h"

#include <malloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "rank.h"

namespace tutti::internal::test::chaos {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLeftOverMs = 30'000;  // beyond the init timeout, until which a root service may wait

ProcessBoard* crashing = nullptr;

// Lets the harness look at the threads; it then kills this process.
void wait_for_harness(int signal) {
  crashing->signal = signal;
  for (;;) ::pause();
}

void show_crashes(ProcessBoard* board) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  crashing = board;
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) ::signal(signal, wait_for_harness);
#else
  crashing = board;  // the sanitizer prints them
#endif
}

void set_environment(const Round& round) {
  const auto set = [](const char* name, const std::string& value) {
    value.empty() ? ::unsetenv(name) : ::setenv(name, value.c_str(), 1);
  };
  set("TUTTI_TRANSPORTS", round.transports);
  set("TUTTI_TIMEOUT_MS", std::to_string(round.timeout_ms));
  set("TUTTI_INIT_TIMEOUT_MS", std::to_string(round.init_timeout_ms));
  // Freed memory is unmapped, so that later accesses are detected.
  ::mallopt(M_MMAP_THRESHOLD, 64 * 1024);
  if (round.perturb) ::mallopt(M_PERTURB, 0x5a);
}

struct Snapshot {
  std::map<std::string, std::string> files;  // descriptor -> its target
  std::vector<std::string> threads;
};

Snapshot take_snapshot() {
  Snapshot s;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    const std::string what = fs::read_symlink(entry.path(), gone).string();
    // The folder that is being read.
    if (!gone && what.find("/fd") == std::string::npos) s.files[entry.path().filename()] = what;
  }
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) s.threads.push_back(entry.path().filename());
  return s;
}

// The objects that exist now and did not before; empty if there are none.
std::string left_over(const Snapshot& before) {
  const Snapshot now = take_snapshot();
  std::string text;
  for (const auto& [descriptor, what] : now.files) {
    if (!before.files.contains(descriptor)) text += " descriptor " + descriptor + " (" + what + ")";
  }
  if (now.threads.size() > before.threads.size()) {
    text += " threads: " + std::to_string(now.threads.size() - before.threads.size());
  }
  return text;
}

std::string wait_for_nothing_left(const Snapshot& before, const Round& round) {
  const Deadline deadline = Deadline::after_ms(round.init_timeout_ms + kLeftOverMs);
  std::string text = left_over(before);
  while (!text.empty() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    text = left_over(before);
  }
  return text;
}

class Host {
 public:
  Host(const Round& round, InProcessControl& board, int process) : round_(round), board_(board) {
    for (int r = 0; r < round.ranks; ++r) {
      if (round.process_of[static_cast<std::size_t>(r)] == process) ranks_.push_back(r);
    }
    files_are_few_ = std::any_of(round.mishaps.begin(), round.mishaps.end(),
                                 [&](const Mishap& m) { return m.kind == MishapKind::kFewFiles && serves(m.rank); });
  }

  void run() {
    if (serves(0)) {
      limit_files_of_init();
      round_.hosting == Hosting::kInitAll ? init_all() : make_ids();
    }
    std::thread other;
    if (round_.has(MishapKind::kAbort) || round_.asks) other = std::thread([this] { abort_and_ask(); });
    std::vector<std::thread> threads;
    for (const int r : ranks_) {
      threads.emplace_back([this, r] {
        RankRun(round_, board_, r, handles_[r], files_are_few_).run();
        board_.ranks[r].finished = true;
      });
    }
    for (std::thread& t : threads) t.join();
    if (other.joinable()) other.join();
    lift_file_limit();
  }

 private:
  [[nodiscard]] bool serves(int rank) const { return std::find(ranks_.begin(), ranks_.end(), rank) != ranks_.end(); }

  // Before the ids are made, which the rank's thread does not see.
  void limit_files_of_init() {
    for (const Mishap& m : round_.mishaps) {
      if (m.kind != MishapKind::kFewFiles || m.step != kInInit) continue;
      if (m.rank != 0 && round_.hosting != Hosting::kInitAll) continue;
      board_.struck[&m - round_.mishaps.data()] = true;
      limit_files(m.files);
    }
  }

  void make_ids() {
    for (int c = 0; c < round_.comms; ++c) {
      tuttiUniqueId id;
      const tuttiResult_t result =
          in_library(board_.ranks[0].inside, "tuttiGetUniqueId", [&] { return tuttiGetUniqueId(&id); });
      if (result != tuttiSuccess) {
        note_error(board_.ranks[0], c, kInInit, result, tuttiGetLastError(nullptr));
        board_.no_ids = true;
        return;
      }
      std::memcpy(board_.ids[c], id.internal, sizeof id.internal);
    }
    board_.ids_made = true;
  }

  void init_all() {
    for (const int r : ranks_) board_.ranks[r].step = kInInit;
    for (int c = 0; c < round_.comms; ++c) {
      tuttiComm_t comms[kMaxRanks] = {};
      const tuttiResult_t result = in_library(board_.ranks[0].inside, "tuttiCommInitAll",
                                              [&] { return tuttiCommInitAll(comms, round_.ranks, nullptr); });
      if (result != tuttiSuccess) {
        note_error(board_.ranks[0], c, kInInit, result, tuttiGetLastError(nullptr));
        return;
      }
      for (const int r : ranks_) handles_[r][c].comm = comms[r];
    }
  }

  // Runs beside the ranks' threads.
  void abort_and_ask() {
    const auto finished = [this](int r) { return board_.ranks[r].finished.load(); };
    while (!std::all_of(ranks_.begin(), ranks_.end(), finished)) {
      for (const int r : ranks_) {
        for (std::size_t i = 0; i < round_.mishaps.size(); ++i) {
          const Mishap& m = round_.mishaps[i];
          if (m.rank == r && (board_.ranks[r].abort_wanted & (1 << i)) != 0) abort_one(r, static_cast<int>(i), m.comm);
        }
        if (round_.asks) ask(r);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  // The rank may destroy it meanwhile.
  void abort_one(int rank, int mishap, int comm) {
    Handle& handle = handles_[rank][comm];
    if (handle.comm == nullptr || handle.aborted) return;
    handle.aborted = true;
    board_.struck[mishap] = true;
    RankBoard& board = board_.ranks[rank];
    const tuttiResult_t result =
        in_library(board.aborting, "tuttiCommAbort", [&] { return tuttiCommAbort(handle.comm); });
    if (result == tuttiSuccess || result == tuttiInvalidArgument) return;
    note_wrong(board, "abort", std::string("tuttiCommAbort: ") + tuttiGetLastError(nullptr));
  }

  void ask(int rank) {
    for (Handle& handle : handles_[rank]) {
      tuttiResult_t error = tuttiSuccess;
      const tuttiResult_t result = in_library(board_.ranks[rank].aborting, "tuttiCommGetAsyncError",
                                              [&] { return tuttiCommGetAsyncError(handle.comm, &error); });
      if (result != tuttiSuccess || error == tuttiSuccess || *tuttiGetLastError(handle.comm) != '\0') continue;
      // Unless it has been destroyed since.
      if (tuttiCommGetAsyncError(handle.comm, &error) != tuttiSuccess) continue;
      note_wrong(board_.ranks[rank], "text", "no text of the asynchronous error " + std::to_string(error));
    }
  }

  const Round& round_;
  InProcessControl& board_;
  std::vector<int> ranks_;
  bool files_are_few_ = false;
  Handles handles_[kMaxRanks];
};

}  // namespace

void run_host(const Round& round, InProcessControl& board, int process, int network) {
  if (round.tiny_buffers && ::setns(network, CLONE_NEWNET) != 0) {
    std::perror("setns");
    ::_exit(3);
  }
  ProcessBoard& mine = board.processes[process];
  show_crashes(&mine);
  set_environment(round);
  const Snapshot before = take_snapshot();
  {
    Host host(round, board, process);
    host.run();
  }
  std::snprintf(mine.left_over, sizeof mine.left_over, "%s", wait_for_nothing_left(before, round).c_str());
  std::exit(0);
}

}  // namespace tutti::internal::test::chaos
