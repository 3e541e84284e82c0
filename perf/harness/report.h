// The table (nccl-tests' columns), the JSON object, and progress on a terminal. Used by rank 0 alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "measure.h"
#include "options.h"
#include "progress_line.h"
#include "record.h"

namespace tutti::internal::perf {

struct Row {
  Problem problem;
  Measurement out_of_place;
  std::optional<Measurement> in_place;  // the barrier has none, nor have transfers
  std::string algorithm;
  std::string transport;

  [[nodiscard]] double algbw_gbs(const Measurement& measurement) const;  // 10^9 bytes per second
  [[nodiscard]] double busbw_gbs(const Measurement& measurement) const;
};

class Report {
 public:
  Report(const Options& options, std::vector<RankPlace> ranks);

  // Opens the files that were asked for, and prints the head of the table. kInvalidUsage: what was asked for is not
  // possible here. `notes`: on what is left out.
  Status begin(const std::vector<std::string>& notes);
  // Says on a terminal what is being measured; nothing in a pipe.
  void progress(const Problem& problem);
  Status add(const Row& row);
  // Prints the totals and writes the files that were asked for. `errors` counts over all ranks, `peak_bytes` is the
  // most memory that a process has had. Not ok if the bandwidth is less than was asked for, too.
  Status finish(std::int64_t errors, std::int64_t peak_bytes);

 private:
  Status print_header(const std::vector<std::string>& notes) const;
  void print_half(const Row& row, const std::optional<Measurement>& measurement) const;
  // Into the record.
  Status add(const Row& row, const Measurement& measurement, bool in_place);
  [[nodiscard]] double average_busbw_gbs() const;
  Status write_files(std::int64_t errors);

  const Options& options_;
  std::vector<RankPlace> ranks_;
  double total_gbs_ = 0;
  std::size_t measurements_ = 0;
  Record record_;
  ProgressLine progress_;
};

}  // namespace tutti::internal::perf
