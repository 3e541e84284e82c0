// A duty that writes what this process's ranks have done, at once and then each interval.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "monitor/inspector.h"
#include "monitor/metrics_duties.h"
#include "monitor/monitor.h"
#include "observe/measures.h"
#include "observe/reader.h"

namespace tutti::internal::monitor {

class PeriodicDuty : public Duty {
 public:
  void prepare(net::PollSet* set) override;
  void advance(const net::PollSet& set) override;

 protected:
  // `what`: begins the warning of write()'s errors, at most one an hour.
  PeriodicDuty(MetricsWriter writer, std::string what) : writer_(std::move(writer)), what_(std::move(what)) {}
  virtual Status write() = 0;
  // For destructors.
  void write_last();
  [[nodiscard]] const MetricsWriter& writer() const { return writer_; }

 private:
  void write_and_warn();

  const MetricsWriter writer_;
  const std::string what_;
  std::int64_t next_ns_ = 0;
  std::int64_t warned_ns_ = 0;
};

// The process's own ranks, none if it has no communicator. kSystemError: they cannot be read now.
Result<std::vector<observe::SeenProcess>> read_own(int pid);

// The lines about this process.
class LinesOfProcess {
 public:
  explicit LinesOfProcess(const MetricsWriter& writer) : lines_(writer.host, writer.pid), pid_(writer.pid) {}
  // What has been measured since the last call, also by ranks whose communicators have ended. An error: the process
  // cannot read its own events now; the next call has what this one lacks.
  Result<std::vector<std::string>> next();

 private:
  InspectorLines lines_;
  const int pid_;
  std::uint64_t ended_ = observe::keep_ended();
};

}  // namespace tutti::internal::monitor
