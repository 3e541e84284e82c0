#include "monitor/metrics_periodic.h"

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "observe/origin.h"
#include "observe/reader.h"
#include "os/clock.h"

namespace tutti::internal::monitor {
namespace {

constexpr std::int64_t kWarnAgainMs = 3'600'000;

}  // namespace

void PeriodicDuty::prepare(net::PollSet* set) {
  const std::int64_t left_ms = (next_ns_ - now_ns()) / kNsPerMs + 1;
  set->wake_at(Deadline::after_ms(std::max<std::int64_t>(left_ms, 0)));
}

void PeriodicDuty::advance(const net::PollSet& /*set*/) {
  if (now_ns() < next_ns_) return;
  write_and_warn();
  next_ns_ = now_ns() + writer_.interval_ms * kNsPerMs;
}

void PeriodicDuty::write_last() {
  write_and_warn();
}

void PeriodicDuty::write_and_warn() {
  const Status status = guarded([this] { return write(); });
  if (status.is_ok() || (warned_ns_ != 0 && now_ns() - warned_ns_ < kWarnAgainMs * kNsPerMs)) return;
  warned_ns_ = now_ns();
  const Status logged = guarded([&] { return log::warn(what_ + ": " + status.message()), Status(); });
  (void)logged;
}

Result<std::vector<observe::SeenProcess>> read_own(int pid) {
  auto process = observe::read_process(observe::number_in_proc(pid));
  std::vector<observe::SeenProcess> own;
  if (process.is_ok()) {
    own.push_back(std::move(*process));
  } else if (process.status().code() != Code::kInvalidArgument) {
    return process.status();
  }
  return own;
}

Result<std::vector<std::string>> LinesOfProcess::next() {
  auto own = read_own(pid_);
  // The ranks would seem to have ended, and to have done everything anew later.
  if (!own.is_ok()) return own.status();
  // After that: no rank is in neither of both.
  const std::vector<observe::EndedMeasures> ended = observe::ended_after(&ended_);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return lines_.next(own->empty() ? std::vector<observe::SeenRank>() : own->front().ranks, ended,
                     std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

}  // namespace tutti::internal::monitor
