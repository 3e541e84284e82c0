#include "monitor/monitor.h"

#include <poll.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/lasting_thread.h"
#include "base/log.h"
#include "base/status.h"
#include "monitor/metrics.h"
#include "monitor/ras.h"
#include "os/clock.h"
#include "os/kernel.h"

namespace tutti::internal::monitor {
namespace {

constexpr int kLongestWaitMs = 60'000;
constexpr std::int64_t kDutyPauseMs = 1000;  // after an error

// The process whose environment has been read; in a forked child, it is another one.
constinit std::atomic<pid_t> started_in{0};

Duties duties_of_environment() {
  Duties duties = make_metrics();
  if (auto ras = make_ras()) duties.push_back(std::move(ras));
  return duties;
}

void warn(const char* what, const Status& why) {
  static_cast<void>(guarded([&] { return log::warn(what + why.message()), Status(); }));
}

// Runs one duty. If the duty throws, for example because memory is missing, it pauses, and the others go on.
class Attended {
 public:
  explicit Attended(Duty& duty) : duty_(&duty) {}

  void prepare(net::PollSet* set) {
    const std::int64_t left_ns = paused_until_ns_ - now_ns();
    is_prepared_ = left_ns <= 0 && attempt([&] { duty_->prepare(set); });
    if (is_prepared_) return;
    set->wake_at(Deadline::after_ms(std::max<std::int64_t>(0, (paused_until_ns_ - now_ns()) / kNsPerMs + 1)));
  }
  void advance(const net::PollSet& set) {
    if (is_prepared_) (void)attempt([&] { duty_->advance(set); });
  }

 private:
  template <class Work>
  bool attempt(Work work) {
    const Status done = guarded([&] { return work(), Status(); });
    if (done.is_ok()) return true;
    paused_until_ns_ = now_ns() + kDutyPauseMs * kNsPerMs;
    if (!std::exchange(has_warned_, true)) warn("the monitor pauses one of its duties: ", done);
    return false;
  }

  Duty* duty_;
  bool is_prepared_ = false;
  bool has_warned_ = false;
  std::int64_t paused_until_ns_ = 0;
};

}  // namespace

void run_duties(const Duties& duties, int stop_fd) {
  std::vector<Attended> attended;
  for (const auto& duty : duties) attended.emplace_back(*duty);
  net::PollSet set;
  bool has_warned = false;
  for (;;) {
    set.clear(kLongestWaitMs);
    const std::size_t stop = set.add(stop_fd, POLLIN);
    for (Attended& each : attended) each.prepare(&set);
    Status waited = set.wait();
    if (!waited.is_ok()) {
      // There are more descriptors than the process may have by now, or the system is short of memory.
      if (!std::exchange(has_warned, true)) warn("the monitor pauses: ", waited);
      set.clear(static_cast<int>(kDutyPauseMs));
      (void)set.add(stop_fd, POLLIN);
      waited = set.wait();
      if (!waited.is_ok()) return warn("the monitor ends: ", waited);
      if (set.ready(stop) != 0) return;
      continue;
    }
    if (set.ready(stop) != 0) return;
    for (Attended& each : attended) each.advance(set);
  }
}

void start_monitor() {
  const pid_t own = os::kernel().getpid();
  if (started_in.exchange(own, std::memory_order_relaxed) == own) return;
  const Status started = guarded([] {
    // Shared, because a function must be copyable.
    auto duties = std::make_shared<Duties>(duties_of_environment());
    if (duties->empty()) return Status();
    return start_lasting_thread([duties = std::move(duties)](int stop_fd) { run_duties(*duties, stop_fd); });
  });
  if (!started.is_ok()) warn("the monitor does not start: ", started);
}

}  // namespace tutti::internal::monitor
