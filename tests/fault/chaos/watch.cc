#include "watch.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <new>
#include <set>
#include <thread>

#include "host.h"
#include "os/clock.h"
#include "stacks.h"

namespace tutti::internal::test::chaos {
namespace {

class Shared {
 public:
  Shared()
      : memory_(::mmap(nullptr, sizeof(InProcessControl), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    board_ = new (memory_) InProcessControl;
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ::munmap(memory_, sizeof(InProcessControl)); }
  [[nodiscard]] InProcessControl& board() const { return *board_; }

 private:
  void* memory_;
  InProcessControl* board_;
};

// A child of the harness.
struct Child {
  pid_t pid = -1;
  bool running = false;
  int status = 0;
  bool stopped = false;
  std::int64_t resumed_ns = 0;

  void reap(bool wait) {
    if (running && ::waitpid(pid, &status, wait ? 0 : WNOHANG) == pid) running = false;
  }
  void signal(int number) const {
    if (running) ::kill(pid, number);
  }
};

template <class Body>
Child start(Body&& body) {
  std::cout.flush();
  std::fflush(nullptr);
  Child child;
  child.pid = ::fork();
  if (child.pid == 0) {
    body();
    ::_exit(0);
  }
  child.running = child.pid > 0;
  return child;
}

// Ends by itself if the harness does not end it.
void use_the_processor() {
  ::alarm(300);
  std::atomic<unsigned> turns{0};
  for (;;) ++turns;
}

class Watch {
 public:
  Watch(const Round& round, const Limits& limits, int network)
      : round_(round), limits_(limits), network_(network), board_(shared_.board()) {}

  std::vector<Finding> run() {
    for (int p = 0; p < round_.processes; ++p) {
      hosts_.push_back(start([&] { run_host(round_, board_, p, network_); }));
    }
    for (int i = 0; i < round_.loads; ++i) loads_.push_back(start(use_the_processor));
    begun_ns_ = now_ns();
    while (any_running() && findings_.empty()) {
      for (Child& host : hosts_) host.reap(false);
      help();
      strike();
      look();
      std::this_thread::sleep_for(std::chrono::microseconds(all_struck_ ? 1000 : 100));
    }
    if (!findings_.empty()) show();
    end();
    return judge_all();
  }

 private:
  [[nodiscard]] bool any_running() const {
    return std::any_of(hosts_.begin(), hosts_.end(), [](const Child& c) { return c.running; });
  }
  Child& host_of(int rank) {
    return hosts_[static_cast<std::size_t>(round_.process_of[static_cast<std::size_t>(rank)])];
  }

  // Tells ranks that wait for a rank that will not come.
  void help() {
    if (!board_.ids_made && !host_of(0).running) board_.no_ids = true;
    bool others_through = true;
    for (int r = 0; r < round_.ranks; ++r) {
      const bool absent = std::any_of(round_.mishaps.begin(), round_.mishaps.end(),
                                      [&](const Mishap& m) { return m.kind == MishapKind::kAbsent && m.rank == r; });
      others_through = others_through && (absent || board_.ranks[r].finished || !host_of(r).running);
    }
    if (others_through) board_.absent_may_go = true;
  }

  void strike() {
    all_struck_ = true;
    for (std::size_t i = 0; i < round_.mishaps.size(); ++i) {
      const Mishap& m = round_.mishaps[i];
      const bool here = m.kind == MishapKind::kKill || m.kind == MishapKind::kStop || m.kind == MishapKind::kAbort;
      if (here) strike_one(m, i);
    }
  }

  void strike_one(const Mishap& m, std::size_t i) {
    Child& host = host_of(m.rank);
    if (!host.running || (done_[i] && m.kind != MishapKind::kStop)) return;
    if (board_.ranks[m.rank].step >= m.step && armed_ns_[i] == 0) armed_ns_[i] = now_ns();
    if (!done_[i]) all_struck_ = false;
    if (armed_ns_[i] == 0) return;
    const std::int64_t us = (now_ns() - armed_ns_[i]) / 1000;
    if (!done_[i] && us >= m.delay_us) {
      done_[i] = true;
      if (m.kind == MishapKind::kAbort) {
        board_.ranks[m.rank].abort_wanted |= 1 << i;
        return;
      }
      board_.struck[i] = true;
      host.signal(m.kind == MishapKind::kKill ? SIGKILL : SIGSTOP);
      host.stopped = m.kind == MishapKind::kStop;
    }
    if (m.kind == MishapKind::kStop && host.stopped && done_[i] && us >= m.delay_us + m.stopped_ms * 1000LL) {
      host.signal(m.then_kill ? SIGKILL : SIGCONT);
      host.stopped = false;
      host.resumed_ns = now_ns();
    }
  }

  // No thread may be inside a call for longer than its timeout plus the delay of a busy machine.
  void look() {
    for (const ProcessBoard& process : board_.processes) {
      if (process.signal != 0) findings_.push_back({"crash", "signal " + std::to_string(process.signal)});
    }
    const std::int64_t now = now_ns();
    if (now - begun_ns_ > limits_.round_ms * 1'000'000LL) {
      findings_.push_back({"hang", "the round does not end"});
    }
    for (int r = 0; r < round_.ranks; ++r) {
      const Child& host = host_of(r);
      if (!host.running || host.stopped) continue;
      for (const Inside* inside : {&board_.ranks[r].inside, &board_.ranks[r].aborting}) {
        const std::int64_t since = inside->since_ns;
        if (since == 0) continue;
        const int timeout_ms = std::max(round_.timeout_ms, board_.ranks[r].step < 0 ? round_.init_timeout_ms : 0);
        const std::int64_t ms = (now - std::max(since, host.resumed_ns)) / 1'000'000;
        if (ms <= timeout_ms + limits_.slack_ms) continue;
        findings_.push_back({"hang", "rank " + std::to_string(r) + " has been inside " + inside->name.load() + " for " +
                                         std::to_string(ms) + " ms"});
      }
    }
  }

  void show() const {
    for (const Child& host : hosts_) {
      if (host.running) print_stacks(host.pid);
    }
  }

  void end() {
    for (std::vector<Child>* children : {&hosts_, &loads_}) {
      for (Child& child : *children) {
        child.signal(SIGKILL);
        child.reap(true);
      }
    }
  }

  // Consequences of a hang or a crash are not further findings.
  std::vector<Finding> judge_all() {
    std::vector<int> statuses;
    for (const Child& host : hosts_) statuses.push_back(host.status);
    if (findings_.empty()) findings_ = judge(round_, board_, statuses);
    if (!findings_.empty()) std::cout << text_of(round_) << text_of(round_, board_);
    // The ranks of a round report the same kind.
    std::set<std::string> kinds;
    std::erase_if(findings_, [&](const Finding& f) { return !kinds.insert(f.kind).second; });
    return std::move(findings_);
  }

  const Round& round_;
  const Limits& limits_;
  int network_;
  Shared shared_;
  InProcessControl& board_;
  std::vector<Child> hosts_;
  std::vector<Child> loads_;
  std::int64_t begun_ns_ = 0;
  std::int64_t armed_ns_[kMaxMishaps] = {};
  bool done_[kMaxMishaps] = {};
  bool all_struck_ = false;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> run_round(const Round& round, const Limits& limits, int network) {
  return Watch(round, limits, network).run();
}

}  // namespace tutti::internal::test::chaos
