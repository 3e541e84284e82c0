#include "report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/standard_output.h"
#include "perf/plot/plot.h"

namespace tutti::internal::perf {
namespace {

std::string errors_text(std::int64_t errors) {
  return errors < 0 ? "N/A" : std::to_string(errors);
}

// Seven columns at most: fewer digits behind the point for larger times.
std::string time_text(double us) {
  char text[32];
  const int digits = us >= 100'000 ? 0 : us >= 10'000 ? 1 : us >= 1 ? 2 : 3;
  std::snprintf(text, sizeof text, "%.*f", digits, us);
  return text;
}

nlohmann::json to_json(const Row& row, const Measurement& measurement, bool in_place) {
  const Problem& p = row.problem;
  nlohmann::json entry = {{"collective", p.subject.name()},
                          {"bytes", row.problem.vector_bytes()},
                          {"count", p.count},
                          {"datatype", name_of(p.datatype)},
                          {"op", p.subject.reduces() ? name_of(p.op) : "none"},
                          {"root", p.subject.has_root() ? p.root : -1},
                          {"ranks", p.ranks},
                          {"in_place", in_place},
                          {"iterations", measurement.timing.iterations},
                          {"time_us",
                           {{"min", measurement.timing.min_us},
                            {"median", measurement.timing.median_us},
                            {"p99", measurement.timing.p99_us},
                            {"calling", measurement.timing.calling_us}}},
                          {"algbw_gbs", row.algbw_gbs(measurement)},
                          {"busbw_gbs", row.busbw_gbs(measurement)},
                          {"errors", nullptr},
                          {"algorithm", row.algorithm},
                          {"transport", row.transport}};
  if (p.subject.varies()) entry["skew"] = p.skew;
  if (measurement.errors >= 0) entry["errors"] = measurement.errors;
  return entry;
}

}  // namespace

double Row::algbw_gbs(const Measurement& measurement) const {
  const double us = measurement.timing.median_us;
  return us > 0 ? static_cast<double>(problem.vector_bytes()) / us / 1e3 : 0;
}

double Row::busbw_gbs(const Measurement& measurement) const {
  return algbw_gbs(measurement) * bus_factor(problem);
}

Report::Report(const Options& options, std::vector<RankPlace> ranks)
    : options_(options), ranks_(std::move(ranks)), record_(options, ranks_) {}

Status Report::begin(const std::vector<std::string>& notes) {
  if (!options_.plot_path.empty() && bus_factor(options_.subject, static_cast<int>(ranks_.size())) <= 0) {
    return Status::invalid_usage("--plot has nothing to draw: a rank alone has no bus bandwidth");
  }
  if (!options_.plot_path.empty()) {
    if (Result<OutputFile> plot = OutputFile::open(options_.plot_path); !plot.is_ok()) return plot.status();
    if (Status status = check_plot("--plot", "the file of -J"); !status.is_ok()) return status;
  }
  if (Status status = record_.begin(); !status.is_ok()) return status;
  return print_header(notes);
}

Status Report::print_header(const std::vector<std::string>& notes) const {
  const std::string iterations = options_.iterations == 0 ? "chosen by time" : std::to_string(options_.iterations);
  const std::string skew = options_.subject.varies() ? fmt::format(", skew {}", options_.skew) : "";
  const std::string aggregate = options_.aggregate > 1 ? fmt::format(", agg iters: {}", options_.aggregate) : "";
  std::printf("# tutti %s, %s%s\n", library_version().c_str(), options_.subject.name(), skew.c_str());
  std::printf("# ranks: %zu, sizes: %zu to %zu bytes, warmup iters: %d, iters: %s%s, checks: %d, memory: %s, %s\n",
              ranks_.size(), options_.sizes_bytes.front(), options_.sizes_bytes.back(), options_.warmup_iterations,
              iterations.c_str(), aggregate.c_str(), options_.checks, name_of(options_.memory),
              name_of_calls(options_));
  if (!record_.path().empty()) std::printf("# writing results to %s\n", record_.path().c_str());
  for (const std::vector<std::string>* some : {&options_.notes, &notes}) {
    for (const std::string& note : *some) std::printf("# note: %s\n", note.c_str());
  }
  std::printf("#\n# Using ranks\n");
  for (const RankPlace& place : ranks_) {
    std::printf("#  Rank %2d pid %6d on %s%s%s\n", place.rank, place.pid, place.host.c_str(),
                place.device.empty() ? "" : ", ", place.device.c_str());
  }
  const char* const time = options_.calling_time ? "cputime" : "time";
  std::printf("#\n# %78s%33s\n", "out-of-place", "in-place");
  std::printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s%s\n", "size", "count", "type",
              "redop", "root", time, "algbw", "busbw", "#wrong", time, "algbw", "busbw", "#wrong",
              options_.timestamps ? "  timestamp" : "");
  std::printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "(B)", "(elements)", "", "", "",
              "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
  return flush_standard_output();
}

void Report::print_half(const Row& row, const std::optional<Measurement>& measurement) const {
  if (!measurement) {
    std::printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
    return;
  }
  const double us = options_.calling_time ? measurement->timing.calling_us : measurement->timing.median_us;
  std::printf("  %7s  %6.2f  %6.2f  %6s", time_text(us).c_str(), row.algbw_gbs(*measurement),
              row.busbw_gbs(*measurement), errors_text(measurement->errors).c_str());
}

void Report::progress(const Problem& problem) {
  if (!progress_.shows()) return;
  progress_.show(fmt::format("# measuring {} x {} {}, root {}", problem.count, name_of(problem.datatype),
                             name_of(problem.op), problem.root));
}

Status Report::add(const Row& row) {
  progress_.clear();
  const Problem& p = row.problem;
  std::printf("%12zu  %12zu  %8s  %6s  %6d", row.problem.vector_bytes(), p.count,
              !p.subject.has_data() ? "-" : name_of(p.datatype), p.subject.reduces() ? name_of(p.op) : "none",
              p.subject.has_root() ? p.root : -1);
  print_half(row, row.out_of_place);
  print_half(row, row.in_place);
  if (options_.timestamps) std::printf("  %s", time_of_day().c_str());
  std::printf("\n");
  const Status printed = flush_standard_output();
  // The file is for who cannot have the table, too.
  Status status = add(row, row.out_of_place, false);
  if (status.is_ok() && row.in_place) status = add(row, *row.in_place, true);
  return status.is_ok() ? printed : status;
}

Status Report::add(const Row& row, const Measurement& measurement, bool in_place) {
  total_gbs_ += row.busbw_gbs(measurement);
  ++measurements_;
  return record_.add(to_json(row, measurement, in_place));
}

double Report::average_busbw_gbs() const {
  return measurements_ == 0 ? 0 : total_gbs_ / static_cast<double>(measurements_);
}

Status Report::write_files(std::int64_t errors) {
  if (Status status = record_.finish(errors, average_busbw_gbs()); !status.is_ok()) return status;
  return options_.plot_path.empty() ? Status::ok() : draw_plot(options_.plot_path, record_.text());
}

Status Report::finish(std::int64_t errors, std::int64_t peak_bytes) {
  const double average_gbs = average_busbw_gbs();
  const bool too_slow = options_.min_busbw_gbs && !(average_gbs >= *options_.min_busbw_gbs);
  std::printf("# Out of bounds values : %lld %s\n", static_cast<long long>(errors),
              errors > 0 ? "FAILED" : (options_.checks > 0 ? "OK" : "(not checked)"));
  std::printf("# Avg bus bandwidth    : %g %s\n", average_gbs,
              too_slow ? "FAILED" : (options_.min_busbw_gbs ? "OK" : ""));
  if (options_.memory_report) {
    constexpr double kMebi = 1024 * 1024;
    std::printf("# Peak host memory     : %.1f MiB of the largest process\n", static_cast<double>(peak_bytes) / kMebi);
  }
  std::printf("#\n");
  Status printed = flush_standard_output();
  // The files are for who cannot have the table, too.
  if (Status status = write_files(errors); !status.is_ok()) return status;
  if (!printed.is_ok() || !too_slow) return printed;
  return {Code::kSystemError, fmt::format("the average bus bandwidth, {:.6g} GB/s, is below {:.6g} GB/s", average_gbs,
                                          *options_.min_busbw_gbs)};
}

}  // namespace tutti::internal::perf
