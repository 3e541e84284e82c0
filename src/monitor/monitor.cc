#include "monitor/monitor.h"

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <utility>

#include "base/lasting_thread.h"
#include "base/log.h"
#include "base/status.h"
#include "monitor/metrics.h"
#include "monitor/ras.h"
#include "os/kernel.h"

namespace tutti::internal::monitor {
namespace {

constexpr int kLongestWaitMs = 60'000;

// The process whose environment has been read; in a forked child, it is another one.
constinit std::atomic<pid_t> started_in{0};

Duties duties_of_environment() {
  Duties duties = make_metrics();
  if (auto ras = make_ras()) duties.push_back(std::move(ras));
  return duties;
}

}  // namespace

void run_duties(const Duties& duties, int stop_fd) {
  net::PollSet set;
  for (;;) {
    set.clear(kLongestWaitMs);
    const std::size_t stop = set.add(stop_fd, POLLIN);
    for (const auto& duty : duties) duty->prepare(&set);
    if (Status s = set.wait(); !s.is_ok()) return log::warn("the monitor ends: " + s.message());
    if (set.ready(stop) != 0) return;
    for (const auto& duty : duties) duty->advance(set);
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
  if (started.is_ok()) return;
  static_cast<void>(guarded([&] { return log::warn("the monitor does not start: " + started.message()), Status(); }));
}

}  // namespace tutti::internal::monitor
