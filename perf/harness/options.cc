#include "options.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/similar.h"
#include "base/standard_output.h"
#include "exit_status.h"
#include "help_formatter.h"
#include "nccl_tests.h"
#include "ranks.h"
#include "record.h"
#include "refusal.h"
#include "size_value.h"

namespace tutti::internal::perf {
namespace {

constexpr std::size_t kMostSizes = 100'000;  // each with its row

// The arguments as they were written, before they are given a meaning.
struct Words {
  std::string min_bytes = "8";
  std::string max_bytes = "64M";
  std::string step_bytes;
  std::optional<std::size_t> step_factor;
  std::string datatype = "float";
  std::string op = "sum";
  std::string root = "0";
  int blocking = 1;
  bool ping_pong = false;
  std::string unused;  // of a flag that says nothing about this subject
  NcclTestsWords nccl_tests;
};

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::size_t bytes_or_throw(const std::string& flag, const std::string& text) {
  const std::optional<std::size_t> bytes = parse_bytes(text);
  if (!bytes) throw CLI::ValidationError(flag, not_a_size(text));
  return *bytes;
}

std::string canonical_datatype(const std::string& text) {
  static const std::pair<const char*, const char*> kAliases[] = {
      {"char", "int8"},         {"int", "int32"},         {"float16", "half"}, {"float32", "float"},
      {"float64", "double"},    {"fp16", "half"},         {"fp32", "float"},   {"fp64", "double"},
      {"float8e4m3", "f8e4m3"}, {"float8e5m2", "f8e5m2"}, {"bf16", "bfloat16"}};
  for (const auto& [alias, name] : kAliases) {
    if (lower(text) == alias) return name;
  }
  return lower(text);
}

// All values of an enumeration of `size` values, or the one of that name.
template <class Enum>
std::vector<Enum> named_or_all(const std::string& flag, const std::string& name, int size) {
  std::vector<Enum> found;
  std::string known;
  std::vector<std::string_view> names{"all"};
  for (int i = 0; i < size; ++i) {
    const auto value = static_cast<Enum>(i);
    if (name == "all" || name == name_of(value)) found.push_back(value);
    known += fmt::format("{}, ", name_of(value));
    names.emplace_back(name_of(value));
  }
  if (found.empty()) {
    throw CLI::ValidationError(flag, fmt::format("'{}' is not one of {}all{}", name, known, meant_text(name, names)));
  }
  return found;
}

std::vector<std::size_t> sizes_from(const Words& words, bool max_given) {
  const std::size_t low = bytes_or_throw("--minbytes", words.min_bytes);
  std::size_t high = bytes_or_throw("--maxbytes", words.max_bytes);
  if (!max_given) high = std::max(low, high);
  if (high < low) throw CLI::ValidationError("--maxbytes", "is smaller than --minbytes");
  std::vector<std::size_t> sizes{low};
  const bool steps = words.step_factor ? *words.step_factor < 2 : !words.step_bytes.empty();
  if (steps) {
    const std::size_t step = bytes_or_throw("--stepbytes", words.step_bytes.empty() ? "1M" : words.step_bytes);
    if (step == 0) throw CLI::ValidationError("--stepbytes", "must be at least 1");
    if ((high - low) / step >= kMostSizes) {
      throw CLI::ValidationError(
          "--stepbytes", fmt::format("{} gives more than {} sizes: take more, or a smaller -e", step, kMostSizes));
    }
    while (high - sizes.back() >= step) sizes.push_back(sizes.back() + step);
    return sizes;
  }
  const std::size_t factor = words.step_factor.value_or(2);
  if (low == 0 && high > 0) throw CLI::ValidationError("--minbytes", "0 cannot be multiplied; use --stepbytes");
  while (low > 0 && sizes.back() <= high / factor) sizes.push_back(sizes.back() * factor);
  return sizes;
}

void add_size_flags(CLI::App& app, Words& words) {
  app.add_option("-b,--minbytes", words.min_bytes, "Smallest size: 8, 4K, 64M, 1G (default 8)")->type_name("SIZE");
  app.add_option("-e,--maxbytes", words.max_bytes, "Largest size (default 64M, or -b if that is larger)")
      ->type_name("SIZE");
  app.add_option("-i,--stepbytes", words.step_bytes, "Add this between sizes, unless -f says otherwise (-f 1: 1M)")
      ->type_name("SIZE");
  app.add_option("-f,--stepfactor", words.step_factor, "Multiply by this between sizes (default 2); 0 and 1: add -i")
      ->check(CLI::Range(0, 1 << 30));
}

void add_flags(CLI::App& app, Words& words, Options& options) {
  const int many = 1'000'000'000;
  app.add_option(
         "-n,--iters", options.iterations,
         "Timed iterations; 0 (default): as many as take about 0.1 s, and more until the median is certain, for 0.5 s")
      ->check(CLI::Range(0, many));
  app.add_option("-w,--warmup_iters", options.warmup_iterations, "Untimed iterations first (default 5)")
      ->check(CLI::Range(0, many));
  app.add_option("-c,--check", options.checks,
                 "Verify the results of each size and mode this many times (default 1; 0: never)")
      ->check(CLI::Range(0, many));
  app.add_option("-N,--run_cycles", options.cycles, "Repeat everything this many times (default 1; 0: endlessly)")
      ->check(CLI::Range(0, many));
  app.add_option("-p,--nprocs", options.processes, "Start this many processes on this machine (default 0: none)")
      ->check(CLI::Range(0, 4096));
  app.add_option("-t,--nthreads", options.threads, "Threads of each process, each one a rank (default 1)")
      ->check(CLI::Range(1, 4096));
  app.add_option("-z,--blocking", words.blocking, "1 (default): calls that block; 0: queue them on a stream")
      ->check(CLI::Range(0, 1));
  app.add_option("--memory", words.nccl_tests.memory,
                 "malloc (default), or tutti: memory that peers can map (tuttiMemAlloc); 0 and 1 are as in "
                 "--memory_report")
      ->type_name("malloc|tutti");
  app.add_option(
         "-g,--ngpus", options.devices,
         "Buffers on CUDA devices, assigned round-robin; this many ranks for each thread of -t, each in its own thread")
      ->check(CLI::Range(1, 4096));
  app.add_option("-G,--cudagraph", options.graph_launches,
                 "With -g: capture the timed iterations (-n, or 20) in a CUDA graph, and launch it this many times")
      ->check(CLI::Range(0, many));
  app.add_option("-J,--output_file,--json", options.json_path,
                 "Write the results to this file after every row, as JSON; if it has contents, to FILE.0, FILE.1, ...")
      ->type_name("FILE");
}

// Flags of nccl-tests, whose programs all take all of them, so that one command line serves all of these programs too.
struct DependentFlag {
  const char* names;
  const char* long_name;
  bool (*applies)(Subject);
};
constexpr auto kHasData = [](Subject subject) { return subject.has_data(); };
constexpr DependentFlag kDependentFlags[] = {
    {"-b,--minbytes", "--minbytes", kHasData},
    {"-e,--maxbytes", "--maxbytes", kHasData},
    {"-i,--stepbytes", "--stepbytes", kHasData},
    {"-f,--stepfactor", "--stepfactor", kHasData},
    {"-d,--datatype", "--datatype", kHasData},
    {"-o,--op", "--op", [](Subject subject) { return subject.reduces(); }},
    {"-r,--root", "--root", [](Subject subject) { return subject.has_root(); }},
};

void note_unused(const CLI::App& app, const Words& words, Options& options) {
  for (const DependentFlag& flag : kDependentFlags) {
    if (!flag.applies(options.subject) && app.count(flag.long_name) > 0) {
      options.notes.push_back(fmt::format("{} has no effect: {} has none", flag.long_name, options.subject.name()));
    }
  }
  if (!words.step_bytes.empty() && words.step_factor.value_or(0) >= 2) {
    options.notes.emplace_back("--stepbytes has no effect beside --stepfactor");
  }
}

void interpret_root(const Words& words, Options& options) {
  if (!options.subject.has_root()) return;
  options.all_roots = words.root == "all" || words.root == "-1";
  if (options.all_roots) return;
  const char* const end = words.root.data() + words.root.size();
  const auto [stop, error] = std::from_chars(words.root.data(), end, options.root);
  if (error != std::errc() || stop != end || options.root < 0) {
    throw CLI::ValidationError("--root", fmt::format("'{}' is neither a rank nor all", words.root));
  }
}

void interpret_plot(const Options& options) {
  if (options.plot_path.empty()) return;
  const std::string suffix = lower(std::filesystem::path(options.plot_path).extension().string());
  if (suffix != ".svg" && suffix != ".png" && suffix != ".pdf") {
    throw CLI::ValidationError("--plot", fmt::format("'{}' ends in none of .svg, .png and .pdf", options.plot_path));
  }
  if (options.sizes_bytes.back() == 0) {
    throw CLI::ValidationError("--plot", "has nothing to draw: no size has any bytes");
  }
}

void interpret(const CLI::App& app, const Words& words, Options& options) {
  if (options.cycles == 0 && !options.plot_path.empty()) {
    throw CLI::ValidationError("--run_cycles", "0 never ends, and --plot is drawn at the end");
  }
  if (options.graph_launches > 0 && options.devices == 0) {
    throw CLI::ValidationError("--cudagraph", "needs buffers on CUDA devices: -g 1");
  }
  if (words.ping_pong) options.subject = Transfers::kPingPong;
  if (options.skew != 0) options.subject = *varying_form(*options.subject.collective());
  interpret_nccl_tests(app, words.nccl_tests, options);
  options.blocking = words.blocking == 1 && options.devices == 0;
  options.wait_each = options.devices > 0 && words.blocking == 1 && app.count("--blocking") > 0;
  if (options.devices > 0) options.memory = Memory::kCuda;
  options.datatypes = named_or_all<DataType>("--datatype", canonical_datatype(words.datatype), kDataTypes);
  if (options.subject.reduces() && lower(words.op) == "mulsum") {
    throw CLI::ValidationError("--op", "mulsum, which multiplies by a number first, is not measured: take sum");
  }
  options.ops = named_or_all<ReduceOp>("--op", lower(words.op), kReduceOps);
  if (const DataType type = options.datatypes.front(); options.datatypes.size() == 1 && options.ops.size() == 1 &&
                                                       !is_defined(options.subject, type, options.ops.front())) {
    throw CLI::ValidationError("--op",
                               fmt::format("{} is not defined for {} of datatype {}", name_of(options.ops.front()),
                                           options.subject.name(), name_of(type)));
  }
  interpret_root(words, options);
  const int launched = launched_processes();
  if (launched > 1 && options.processes > 0) {
    throw CLI::ValidationError(
        "--nprocs", fmt::format("a launcher has started {} processes, which are the ranks: leave -p out", launched));
  }
  if (options.local_ranks() > 0 && launched <= 1) {
    if (const Status s = check_ranks(options, options.local_ranks()); !s.is_ok())
      throw CLI::ParseError(s.message(), kUsageStatus);
  }
  options.sizes_bytes =
      options.subject.has_data() ? sizes_from(words, app.count("--maxbytes") > 0) : std::vector<std::size_t>{0};
  interpret_plot(options);
  note_unused(app, words, options);
}

std::string described(Subject subject) {
  return subject.transfers() != nullptr ? "sends and receives" : subject.name();
}

// A command line whose values go to its own members.
struct Line {
  explicit Line(Subject subject);

  Options options;
  Words words;
  CLI::App app;
};

const char* const kFooter =
    "Without -p, -t and -g the ranks are those of tutti run, mpirun, mpiexec, srun or torchrun.\n"
    "With all, operators that are not defined for the datatype, or for the collective, are left out.\n"
    "A size is the larger of a rank's two buffers. Times are medians over batches of the slowest rank.\n"
    "Where a flag is given several times, the last one counts.\n"
    "Exit status: 0 measured and right, 1 wrong data or a failure, 2 invalid command line.";

Line::Line(Subject subject)
    : app(fmt::format("Times {} and checks the results.", described(subject)), fmt::format("{}_perf", subject.name())) {
  options.subject = subject;
  app.footer(kFooter);
  app.failure_message(refusal);
  app.formatter(std::make_shared<HelpFormatter>());
  app.option_defaults()->take_last();  // as getopt's users are used to
  app.set_version_flag("--version", [this] { return app.get_name() + ", tutti " + library_version(); });
  if (subject.has_data()) {
    add_size_flags(app, words);
    app.add_option("-d,--datatype", words.datatype,
                   "int8, uint8, int16, uint16, int32, uint32, int64, uint64, half, float (default), double, "
                   "bfloat16, f8e4m3, f8e5m2, complex64, complex128, bool, or all")
        ->type_name("DATATYPE|all");
    app.add_option(
           "--plot", options.plot_path,
           "Draw latency, time and bus bandwidth against size into this file: .svg, .png or .pdf (needs matplotlib)")
        ->type_name("FILE");
    app.add_option("--min-busbw", options.min_busbw_gbs,
                   "Fail if the average bus bandwidth is below this, in GB/s (default: 0.9 times NCCL_TESTS_MIN_BW)")
        ->check(CLI::Range(0.0, 1e9));
  }
  if (subject.reduces()) {
    const char* const average = subject.combines_prefixes() ? "" : " avg,";
    app.add_option("-o,--op", words.op,
                   fmt::format("sum (default), prod, max, min,{} band, bor, bxor, land, lor, lxor, or all", average))
        ->type_name("OPERATOR|all");
  }
  if (subject.has_root())
    app.add_option("-r,--root", words.root, "Root rank (default 0), or all")->type_name("RANK|all");
  if (subject == Transfers::kSendRecv) {
    app.add_flag("--ping-pong", words.ping_pong,
                 "With 2 ranks: rank 0 sends and then receives, rank 1 receives and then sends; the time is half of "
                 "both. Without it each rank sends to the next one and receives from the previous one, in one group");
  }
  const Collective* const collective = subject.collective();
  if (collective != nullptr && varying_form(*collective)) {
    app.add_option("--skew", options.skew,
                   "Use the call with a count for each rank: counts grow linearly with the rank, to this many times "
                   "the mean on the last rank (1: all equal; from about 2 on, the first ranks have count 0)")
        ->check(CLI::Range(1.0, 4096.0));
  }
  add_flags(app, words, options);
  add_nccl_tests_flags(app, words.nccl_tests, options);
  for (const DependentFlag& flag : kDependentFlags) {
    if (!flag.applies(subject)) app.add_option(flag.names, words.unused)->group("");
  }
}

}  // namespace

Status check_ranks(const Options& options, int ranks) {
  if (options.root >= ranks) return Status::invalid_usage(fmt::format("--root: there is no rank {}", options.root));
  if (options.subject == Transfers::kPingPong && ranks != 2) {
    return Status::invalid_usage(fmt::format("--ping-pong is between 2 ranks, and there are {}", ranks));
  }
  if (options.subject.varies() && !(options.skew <= ranks)) {
    return Status::invalid_usage(fmt::format("--skew: of {} blocks the largest is at most {} times the mean, not {}",
                                             ranks, ranks, options.skew));
  }
  return Status::ok();
}

std::shared_ptr<const CLI::App> command_line(Subject subject) {
  const auto line = std::make_shared<const Line>(subject);
  return {line, &line->app};
}

std::variant<Options, int> parse_options(Subject subject, int argc, char** argv) {
  Line line(subject);
  line.options.arguments.assign(argv, argv + argc);
  CLI::App& app = line.app;
  try {
    app.parse(argc, argv);
    interpret(app, line.words, line.options);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kUsageStatus;
    const Status printed = flush_standard_output();
    if (printed.is_ok()) return 0;
    std::fprintf(stderr, "error: %s\n", printed.message().c_str());
    return kFailureStatus;
  }
  return std::move(line.options);
}

}  // namespace tutti::internal::perf
