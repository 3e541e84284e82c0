// tutti tune: measures which algorithm is fastest on this machine, or in this job, and writes that into a file.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/version.h"
#include "candidates.h"
#include "cluster_options.h"
#include "command.h"
#include "names.h"
#include "os/clock.h"
#include "perf/harness/options.h"
#include "perf/harness/progress_line.h"
#include "perf/harness/ranks.h"
#include "perf/harness/size_value.h"
#include "selection/fitting.h"
#include "selection/tuning.h"
#include "topology/cluster.h"

namespace tutti::internal::tools {
namespace {

struct Options {
  std::vector<int> ranks;
  std::string output = "tutti-tuning.json";
  std::vector<std::string> collectives;
  double seconds = 60;
  std::uint64_t most_bytes = std::uint64_t{64} << 20;
  std::string times;
  bool force = false;
};

constexpr std::size_t kStep = 4;  // from one size to the next
constexpr std::size_t kOfBytesAlone = std::size_t{16} << 20;
// An algorithm within this factor of the best counts as equal to it; then the algorithm of the previous size is kept.
constexpr double kAsGood = 1.03;
// Of more a simulation takes so long that a fit would last for minutes.
constexpr int kMostRanksToFit = 16;
constexpr std::int64_t kFitMs = 20'000;
// GB/s: what is measured within one machine has no port.
constexpr double kHindersNobody = 50;
constexpr std::uint64_t kLeastBytes = 8;
constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 30;

std::vector<std::size_t> sizes_up_to(std::size_t most) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 8; bytes <= most; bytes *= kStep) sizes.push_back(bytes);
  return sizes;
}

// The first of a new algorithm counts from halfway, in powers, behind the last size of the one before.
std::vector<selection::TunedChoice> choices_of(const Measurements& measured, Collective collective) {
  std::vector<selection::TunedChoice> choices;
  std::size_t last_bytes = 0;
  for (std::size_t i = 0; i < measured.times.size();) {
    if (measured.times[i].collective != collective) {
      ++i;
      continue;
    }
    const std::size_t bytes = measured.times[i].bytes;
    const MeasuredTime* best = &measured.times[i];
    const MeasuredTime* same = nullptr;
    for (; i < measured.times.size() && measured.times[i].collective == collective && measured.times[i].bytes == bytes;
         ++i) {
      const MeasuredTime& one = measured.times[i];
      if (one.us < best->us) best = &one;
      if (!choices.empty() && choices.back().algorithm == one.entry->name) same = &one;
    }
    if (same != nullptr && same->us <= kAsGood * best->us) best = same;
    if (choices.empty() || choices.back().algorithm != best->entry->name) {
      choices.push_back({choices.empty() ? 0 : 2 * last_bytes, best->entry->name});
    }
    last_bytes = bytes;
  }
  // Of larger ones nothing is known, unless they are so large that bytes alone count.
  if (!choices.empty() && last_bytes > 0 && last_bytes < kOfBytesAlone) choices.push_back({kStep * last_bytes, ""});
  return choices;
}

selection::TunedJob job_of(const Measurements& measured, const std::vector<Collective>& collectives) {
  selection::TunedJob job;
  job.kind = measured.kind;
  for (const Collective collective : collectives) {
    auto choices = choices_of(measured, collective);
    if (!choices.empty()) job.choices[collective] = std::move(choices);
  }
  return job;
}

// Before a minute is spent on it.
Status try_output(const Options& options) {
  std::error_code none;
  if (std::filesystem::exists(options.output, none) && !options.force) {
    if (auto before = selection::read_tuning(options.output); !before.is_ok()) {
      return Status::invalid_argument(before.status().message() + "; --force replaces it");
    }
  }
  const std::string part = options.output + ".part";
  if (!options.times.empty() && !std::ofstream(options.times, std::ios::app).is_open()) {
    return Status::invalid_argument(options.times + ": cannot be written");
  }
  const bool opens = std::ofstream(part, std::ios::binary).is_open();
  std::filesystem::remove(part, none);
  if (opens && !std::filesystem::is_directory(options.output, none)) return {};
  return Status::invalid_argument(options.output + ": cannot be written");
}

// Adds the measurement to a file of this machine and version; replaces a file of another machine or version. Keeps the
// file's entries for other jobs, and for other collectives of this job.
Status keep(const Options& options, const selection::TunedJob& job) {
  selection::Tuning tuning;
  std::error_code none;
  if (std::filesystem::exists(options.output, none)) {
    auto before = selection::read_tuning(options.output);
    if (!before.is_ok() && !options.force) {
      return Status::invalid_argument(before.status().message() + "; --force replaces it");
    }
    if (before.is_ok()) tuning = std::move(*before);
  }
  tuning.machine = selection::machine_name();
  tuning.library = library_version();
  const auto known = std::find_if(tuning.jobs.begin(), tuning.jobs.end(),
                                  [&](const selection::TunedJob& one) { return one.kind == job.kind; });
  if (known == tuning.jobs.end()) {
    tuning.jobs.push_back(job);
  } else {
    for (const auto& [collective, choices] : job.choices) known->choices[collective] = choices;
    // A fit to some collectives does not replace a fit to all.
    if (options.collectives.empty() || !known->costs.has_value()) {
      known->costs = job.costs;
      known->port_gbytes_per_second = job.port_gbytes_per_second;
    }
  }
  // Never half a file.
  const std::string part = options.output + ".part";
  std::ofstream file(part, std::ios::binary);
  file << to_json(tuning);
  file.close();
  if (!file) return Status::invalid_argument(part + ": cannot be written");
  std::filesystem::rename(part, options.output, none);
  return none ? Status::invalid_argument(options.output + ": " + none.message()) : Status();
}

// A line for each, behind what the file has.
Status append_times(const std::string& path, const Measurements& measured, const std::vector<double>& predicted) {
  std::ofstream file(path, std::ios::app);
  if (file.tellp() == 0) {
    file << "ranks,hosts,transports,ranks_per_cpu,collective,bytes,algorithm,calls,measured_us,predicted_us\n";
  }
  for (std::size_t i = 0; i < measured.times.size(); ++i) {
    const MeasuredTime& one = measured.times[i];
    file << fmt::format("{},{},{},{:g},{},{},{},{},{:.3f},{}\n", measured.world.ranks, measured.kind.hosts.size(),
                        measured.kind.transports, measured.kind.ranks_per_cpu, name_of(one.collective), one.bytes,
                        one.entry->name, one.calls, one.us,
                        predicted.empty() ? std::string() : fmt::format("{:.3f}", predicted[i]));
  }
  file.close();
  return file ? Status() : Status::invalid_argument(path + ": cannot be written");
}

// The simulator's costs, with which it comes nearest to what was measured.
Status fit(const Measurements& measured, selection::TunedJob& job, std::vector<double>& predicted) {
  if (measured.world.ranks > kMostRanksToFit) return {};
  selection::ObservedJob observed;
  observed.graph = topology::graph_of(measured.world, {}, {});
  observed.sharing = measured.sharing;
  std::vector<selection::Observation> observations;
  for (const MeasuredTime& one : measured.times) {
    observations.push_back({one.entry, one.bytes, one.calls, one.us});
  }
  const Deadline deadline = Deadline::after_ms(kFitMs);
  auto fitted = selection::fit_costs(
      observed, observations,
      default_costs(measured.world, job.kind.transports.find("verbs") != std::string::npos, measured.sharing).machine,
      [&] { return deadline.passed(); });
  if (!fitted.is_ok()) return fitted.status();
  job.costs = (*fitted).costs;
  const double port = (*fitted).port.gbytes_per_second;
  if (measured.world.hosts.size() > 1 && port < kHindersNobody) job.port_gbytes_per_second = port;
  predicted = std::move((*fitted).predicted_us);
  return {};
}

void print(const selection::TunedJob& job, const Measurements& measured, const std::vector<double>& predicted) {
  std::printf("%s\n", text_of(job.kind).c_str());
  for (const auto& [collective, choices] : job.choices) {
    std::string line;
    for (const selection::TunedChoice& one : choices) {
      const std::string& name = one.algorithm.empty() ? "what is predicted" : one.algorithm;
      line += line.empty() ? name : fmt::format(", from {} {}", one.from_bytes, name);
    }
    std::printf("  %-16s %s\n", name_of(collective), line.c_str());
  }
  if (predicted.empty()) {
    std::fflush(stdout);
    return;
  }
  std::vector<double> errors;
  for (std::size_t i = 0; i < predicted.size(); ++i) {
    errors.push_back(100 * std::abs(predicted[i] / measured.times[i].us - 1));
  }
  std::sort(errors.begin(), errors.end());
  std::printf(
      "  predictions of these %zu times are wrong by %.0f %% in the median, 90 %% of them by less than %.0f %%\n",
      errors.size(), errors[errors.size() / 2], errors[errors.size() * 9 / 10]);
  std::fflush(stdout);
}

int tune(tuttiComm_t comm, const Options& options, const std::vector<Collective>& collectives, double seconds) {
  MeasureOptions what;
  what.collectives = collectives;
  what.sizes = sizes_up_to(options.most_bytes);
  what.seconds = seconds;
  perf::ProgressLine progress;
  what.progress = [&](int percent) {
    if (progress.shows()) progress.show(fmt::format("measuring: {} %", percent));
  };
  auto measured = measure_candidates(comm, what);
  progress.clear();
  int rank = 0;
  (void)tuttiCommUserRank(comm, &rank);
  Status status = measured.status();
  if (status.is_ok() && rank == 0) {
    selection::TunedJob job = job_of(*measured, collectives);
    std::vector<double> predicted;
    status = job.choices.empty()
                 ? Status::invalid_argument("no size was measured: --most-bytes leaves ranks no element")
                 : fit(*measured, job, predicted);
    if (status.is_ok()) status = keep(options, job);
    if (status.is_ok() && !options.times.empty()) status = append_times(options.times, *measured, predicted);
    if (status.is_ok()) print(job, *measured, predicted);
  }
  if (status.is_ok()) return kExitOk;
  std::fprintf(stderr, "tutti tune: %s\n", status.message().c_str());
  return kExitFailure;
}

int run_tune(const Options& options) {
  std::vector<Collective> collectives;
  for (const std::string& name : options.collectives) {
    const auto collective = parse_collective(name);
    if (!collective.is_ok() || info_of(collective.value()).varies) {
      std::fprintf(
          stderr, "tutti tune: --collectives: %s\n",
          collective.is_ok() ? "blocks of different counts are not tuned" : collective.status().message().c_str());
      return kExitUsage;
    }
    collectives.push_back(collective.value());
  }
  for (const CollectiveInfo& info : kUniformTable) {
    if (options.collectives.empty()) collectives.push_back(info.collective);
  }
  if (options.most_bytes < kLeastBytes || options.most_bytes > kMostBytes) {
    std::fprintf(stderr, "tutti tune: --most-bytes must be from 8 to 4G\n");
    return kExitUsage;
  }
  if (const Status status = try_output(options); !status.is_ok()) {
    std::fprintf(stderr, "tutti tune: %s\n", status.message().c_str());
    return kExitFailure;
  }
  // Without numbers of ranks a launcher has started them.
  const std::vector<int> jobs = options.ranks.empty() ? std::vector<int>{0} : options.ranks;
  for (const int ranks : jobs) {
    perf::Options started;
    started.processes = ranks;
    const double seconds = options.seconds / static_cast<double>(jobs.size());
    const int status =
        perf::run_ranks(started, [&](tuttiComm_t comm) { return tune(comm, options, collectives, seconds); });
    if (status != 0) return status;
  }
  return kExitOk;
}

}  // namespace

Run add_tune(CLI::App& app, CLI::App** chosen) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tune", "Measure which algorithms are fastest here, and write them to a file");
  command
      ->add_option(
          "-n,--ranks", options->ranks,
          "Processes to start here; 2,4,8 measures three jobs one after the other (default: the launcher's ranks)")
      ->delimiter(',')
      ->check(CLI::Range(2, 1024));
  command->add_option("-o,--output", options->output, "The file; its entries for other jobs are kept")
      ->type_name("FILE")
      ->capture_default_str();
  command->add_option("--collectives,--collective", options->collectives, "Only these: " + uniform_collectives())
      ->type_name("COLLECTIVES")
      ->delimiter(',');
  command->add_option("--seconds", options->seconds, "Time budget in seconds")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->add_option("-e,--most-bytes", options->most_bytes, "The largest vector (64M)")->transform(perf::SizeValue());
  command->add_option("--times", options->times, "Append all measured times to this file, comma-separated")
      ->type_name("FILE");
  command->add_flag("--force", options->force, "Replace a file of another machine, or one that cannot be read");
  command->footer(
      "Jobs use the file if rank 0 has TUTTI_TUNING=FILE. The machine should be idle during the measurement.\n"
      "Exit status: 0 success, 1 something failed, 2 invalid arguments.");
  *chosen = command;
  return [options] { return run_tune(*options); };
}

}  // namespace tutti::internal::tools
