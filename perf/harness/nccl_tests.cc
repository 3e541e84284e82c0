#include "nccl_tests.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/config.h"
#include "refusal.h"

namespace tutti::internal::perf {
namespace {

constexpr int kMostAggregated = 10'000;
constexpr int kMostTimeoutS = 2'000'000;  // in milliseconds, of an int
constexpr double kTolerance = 0.9;        // of NCCL_TESTS_MIN_BW, as nccl-tests has it
const char* const kGroup = "As in nccl-tests";

void refuse_unless(bool accepted, const char* flag, const std::string& remedy) {
  if (!accepted) throw CLI::ValidationError(flag, remedy);
}

int number_in(const std::string& text) {
  int value = -1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? value : -1;
}

void set_memory(const char* flag, const std::string& word, Options& options) {
  refuse_unless(word == "malloc" || word == "tutti", flag, fmt::format("'{}' is neither malloc nor tutti", word));
  options.memory = word == "tutti" ? Memory::kTutti : Memory::kMalloc;
}

// -m and --memory have had two meanings each: what is written tells which one is meant.
void interpret_memory(const CLI::App& app, const NcclTestsWords& words, Options& options) {
  if (words.local_register > 0) options.memory = Memory::kTutti;
  if (const int number = number_in(words.aggregate); number >= 0) {
    refuse_unless(number >= 1 && number <= kMostAggregated, "--agg_iters",
                  fmt::format("{} is not from 1 to {}", number, kMostAggregated));
    options.aggregate = number;
  } else {
    set_memory("-m", words.aggregate, options);
  }
  options.memory_report = words.memory_report == 1;
  if (app.count("--memory") == 0) return;
  if (const int number = number_in(words.memory); number == 0 || number == 1) {
    options.memory_report = number == 1;
  } else {
    set_memory("--memory", words.memory, options);
  }
}

void interpret_variables(Options& options) {
  for (const char* variable : {"NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK", "NCCL_TESTS_DEVICE"}) {
    refuse_unless(!environment_variable(variable), variable,
                  variable == std::string("NCCL_TESTS_DEVICE")
                      ? "is not known here: unset it, and choose devices with CUDA_VISIBLE_DEVICES"
                      : "is not known here: unset it, and start a job for each group of ranks");
  }
  const std::optional<std::string> least = environment_variable("NCCL_TESTS_MIN_BW");
  if (!least || options.min_busbw_gbs || !options.subject.has_data()) return;
  double gbs = -1;
  const char* const end = least->data() + least->size();
  const auto [stop, error] = std::from_chars(least->data(), end, gbs);
  refuse_unless(error == std::errc() && stop == end && std::isfinite(gbs) && gbs >= 0, "NCCL_TESTS_MIN_BW",
                fmt::format("'{}' is not a bandwidth in GB/s, such as 2.5", *least));
  options.min_busbw_gbs = kTolerance * gbs;
}

// Flags of versions and forks of nccl-tests (RCCL's, those of clusters) that these programs lack. There, one letter has
// several meanings.
void refuse_other_flags(CLI::App& app) {
  const auto refuse = [&](const char* names, const char* remedy) { refuse_option(app, names, remedy); };
  refuse("-H,--host,--hosts,--num_hosts,--hostfile,--machinefile",
         "the program starts ranks on this machine only (-p N): for several hosts take mpirun, srun or torchrun");
  refuse("-A,--per_coll_perf",
         "leave it out: every row is for one collective, and -a chooses which rank's time counts");
  refuse("-F,--csv,--cache_flush,--ft_test",
         "leave it out: for results in a file take -J FILE (JSON), and for operations on cold buffers -m N");
  refuse("-X,-Z,--output_format", "take -J FILE: results are written as JSON");
  refuse("-E,--rotating_tensor", "take -m N: each of N operations has its own buffers");
  refuse("-Y,--memory_type", "take --memory malloc or --memory tutti, or -g for memory of CUDA devices");
  refuse("-O,--out_of_place", "leave it out: each row has both, out of place and in place");
  refuse("-s,--stress_cycles,--tbytes", "take -N, which repeats everything");
  refuse("-I,-K,--per_iter_timing,--per_iter_skip",
         "leave it out: times are medians over batches, and -n is the number of iterations");
  refuse(
      "-q,-u,-k,-l,-B,-L,-P,--delay_inout_place,--cumask,--unalign,--side_comp,--replay,--commblocking,--ft_list,"
      "--split_comm,--split_share",
      "there is no such choice here: leave it out");
}

}  // namespace

void add_nccl_tests_flags(CLI::App& app, NcclTestsWords& words, Options& options) {
  const auto flag = [&](const char* names, int& value, int least, int most, const char* text) {
    app.add_option(names, value, text)->check(CLI::Range(least, most))->group(kGroup);
  };
  app.add_option("-m,--agg_iters", words.aggregate,
                 "Operations in each iteration, in one group, each with its own buffers (default 1); malloc and tutti "
                 "are as in --memory")
      ->type_name("INT")
      ->group(kGroup);
  flag("-a,--average", words.average, 0, 3,
       "Which rank's time counts: 0: rank 0's, 1: the mean of all, 2: the fastest's, 3 (default): the slowest's");
  flag("-T,--timeout", options.timeout_s, 0, kMostTimeoutS,
       "Fail when an operation has waited this many seconds, in place of TUTTI_TIMEOUT_MS (default 0: that variable "
       "applies)");
  flag(
      "-C,--report_cputime", words.report_cputime, 0, 1,
      "1: the time column shows how long a call takes to return (-z 0 and -g: to be queued); bandwidths do not change");
  flag("-S,--report_timestamps", words.report_timestamps, 0, 1, "1: each row ends with the date and time, in UTC");
  flag("-M,--memory_report", words.memory_report, 0, 1,
       "1: print at the end how much host memory the largest process has used");
  flag("-R,--local_register", words.local_register, 0, 2,
       "1 and 2: memory that peers can map, as --memory tutti; on devices tutti detects the memory itself");
  flag("--parallel_init", words.parallel_init, 0, 1, "Ranks are always made in parallel: 0 and 1 are the same");
  flag("-y,--stream_null", words.stream_null, 0, 1, "Only 0; calls without a stream are -z 1");
  flag("-x,--cta_policy", words.cta_policy, 0, 2, "Only 0");
  flag("-D,--device_implementation", words.device_implementation, 0, 1'000'000, "Only 0: the library's");
  flag("-V,--device_cta_count", words.device_cta_count, 0, 1'000'000, "Only 0");
  refuse_other_flags(app);
}

void interpret_nccl_tests(const CLI::App& app, const NcclTestsWords& words, Options& options) {
  refuse_unless(words.stream_null == 0, "--stream_null",
                "calls without a stream block here: leave it out, and take -z 1 for them");
  refuse_unless(words.cta_policy == 0, "--cta_policy", "there is no such choice here: leave it out");
  refuse_unless(words.device_implementation == 0, "--device_implementation",
                "the program has no kernels, only the library has: leave it out");
  refuse_unless(words.device_cta_count == 0, "--device_cta_count", "the program has no kernels: leave it out");
  options.average = static_cast<Average>(words.average);
  options.calling_time = words.report_cputime == 1;
  options.timestamps = words.report_timestamps == 1;
  interpret_memory(app, words, options);
  refuse_unless(options.aggregate == 1 || options.subject != Transfers::kPingPong, "--agg_iters",
                "a ping-pong waits for each answer: leave it out");
  interpret_variables(options);
}

}  // namespace tutti::internal::perf
