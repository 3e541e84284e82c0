// The command line of all_reduce_perf and its siblings.
#include "perf/harness/options.h"

#include <cstdlib>
#include <string>

#include "catch_compat.h"

namespace tutti::internal::perf {
namespace {

std::variant<Options, int> parse(Subject subject, std::vector<std::string> words) {
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_options(subject, static_cast<int>(argv.size()), argv.data());
}

Options accepted(Subject subject, const std::vector<std::string>& words) {
  const auto result = parse(subject, words);
  std::string line;
  for (const std::string& word : words) line += word + " ";
  INFO(line);
  REQUIRE(std::holds_alternative<Options>(result));
  return std::get<Options>(result);
}

using Sizes = std::vector<std::size_t>;

}  // namespace

TEST_CASE("without arguments: nccl-tests' defaults") {
  const Options options = accepted(Collective::kAllReduce, {});
  CHECK(options.subject == Collective::kAllReduce);
  CHECK(options.sizes_bytes.front() == 8);
  CHECK(options.sizes_bytes.back() == std::size_t{64} << 20);
  CHECK(options.sizes_bytes.size() == 24);
  CHECK(options.datatypes == std::vector{DataType::kFloat32});
  CHECK(options.ops == std::vector{ReduceOp::kSum});
  CHECK(options.root == 0);
  CHECK(options.checks == 1);
  CHECK(options.cycles == 1);
  CHECK(options.blocking);
  CHECK(options.local_ranks() == 0);
}

TEST_CASE("sizes") {
  CHECK(accepted(Collective::kAllReduce, {"-b", "1K", "-e", "8k"}).sizes_bytes == Sizes{1024, 2048, 4096, 8192});
  CHECK(accepted(Collective::kAllReduce, {"-b", "1", "-e", "100", "-f", "10"}).sizes_bytes == Sizes{1, 10, 100});
  CHECK(accepted(Collective::kAllReduce, {"-b", "0", "-e", "9", "-i", "4"}).sizes_bytes == Sizes{0, 4, 8});
  CHECK(accepted(Collective::kAllReduce, {"-b", "1G", "-e", "1G"}).sizes_bytes == Sizes{std::size_t{1} << 30});
  // -b alone may lie above the default end.
  CHECK(accepted(Collective::kAllReduce, {"-b", "128M"}).sizes_bytes == Sizes{std::size_t{128} << 20});
  CHECK(accepted(Collective::kBarrier, {"-p", "2"}).sizes_bytes == Sizes{0});
  // No more than memory holds.
  CHECK(accepted(Collective::kAllReduce, {"-b", "1", "-e", "100000", "-i", "1"}).sizes_bytes.size() == 100'000);
  CHECK(std::get<int>(parse(Collective::kAllReduce, {"-b", "1", "-e", "100001", "-i", "1"})) == 2);
  CHECK(std::get<int>(parse(Collective::kAllReduce, {"-b", "0", "-e", "1000G", "-i", "1"})) == 2);
}

TEST_CASE("what to run") {
  const Options options = accepted(Collective::kReduce,
                                   {"-d", "all", "-o", "all", "-r", "all", "-p", "3", "-t", "2",     "-n", "7",
                                    "-w", "0",   "-c", "0",   "-N", "4",   "-z", "0", "-m", "tutti", "-J", "out.json"});
  CHECK(options.datatypes.size() == static_cast<std::size_t>(kDataTypes));
  CHECK(options.ops.size() == static_cast<std::size_t>(kReduceOps));
  CHECK(options.all_roots);
  CHECK(options.local_ranks() == 6);
  CHECK(options.iterations == 7);
  CHECK(options.warmup_iterations == 0);
  CHECK(options.checks == 0);
  CHECK(options.cycles == 4);
  CHECK_FALSE(options.blocking);
  CHECK(options.memory == Memory::kTutti);
  CHECK(options.json_path == "out.json");
}

TEST_CASE("scans have no average") {
  for (const Collective collective : {Collective::kScan, Collective::kExscan}) {
    CHECK(std::get<int>(parse(collective, {"-o", "avg"})) == 2);
    CHECK(accepted(collective, {"-o", "max"}).ops == std::vector{ReduceOp::kMax});
    CHECK_FALSE(is_defined(collective, DataType::kFloat32, ReduceOp::kAvg));
    CHECK(is_defined(collective, DataType::kFloat32, ReduceOp::kMax));
    CHECK_FALSE(is_defined(collective, DataType::kFloat32, ReduceOp::kBand));
  }
  CHECK(is_defined(Collective::kReduce, DataType::kFloat32, ReduceOp::kAvg));
  CHECK(is_defined(Collective::kAllToAll, DataType::kBool, ReduceOp::kAvg));  // where it has no meaning
}

TEST_CASE("datatypes have nccl-tests' names and others") {
  const std::pair<const char*, DataType> names[] = {
      {"int8", DataType::kInt8},         {"char", DataType::kInt8},         {"half", DataType::kFloat16},
      {"float16", DataType::kFloat16},   {"Float", DataType::kFloat32},     {"double", DataType::kFloat64},
      {"bfloat16", DataType::kBfloat16}, {"f8e4m3", DataType::kFloat8E4M3}, {"float8e5m2", DataType::kFloat8E5M2}};
  for (const auto& [name, type] : names) {
    CHECK(accepted(Collective::kAllReduce, {"-d", name}).datatypes == std::vector{type});
  }
}

TEST_CASE("unknown flags and unreadable values end with status 2") {
  const std::vector<std::vector<std::string>> bad = {{"--nonsense"},
                                                     {"-b"},
                                                     {"-b", "x"},
                                                     {"-b", "1E"},
                                                     {"-b", "-1"},
                                                     {"-b", "1KK"},
                                                     {"-e", "99999999999999999999"},
                                                     {"-e", "99999999999999999G"},
                                                     {"-b", "8", "-e", "4"},
                                                     {"-b", "0"},
                                                     {"-i", "0"},
                                                     {"-d", "float128"},
                                                     {"-o", "median"},
                                                     {"-n", "-1"},
                                                     {"-c", "1.5"},
                                                     {"-z", "2"},
                                                     {"-p", "-1"},
                                                     {"-b", "1.K"},
                                                     {"-b", "1.5KK"},
                                                     {"-b", "0.x"},
                                                     {"-m", "device"},
                                                     {"stray"}};
  for (const auto& words : bad) {
    std::string line;
    for (const std::string& word : words) line += word + " ";
    INFO(line);
    const auto result = parse(Collective::kAllReduce, words);
    REQUIRE(std::holds_alternative<int>(result));
    CHECK(std::get<int>(result) == 2);
  }
  CHECK(std::get<int>(parse(Collective::kBroadcast, {"-p", "2", "-r", "2"})) == 2);
  CHECK(std::get<int>(parse(Collective::kBroadcast, {"-r", "-2"})) == 2);
  CHECK(std::get<int>(parse(Collective::kBarrier, {"--skew", "8"})) == 2);
}

TEST_CASE("a ping-pong is between two ranks") {
  CHECK(accepted(Transfers::kSendRecv, {"-p", "3"}).subject == Transfers::kSendRecv);
  CHECK(accepted(Transfers::kSendRecv, {"-p", "2", "--ping-pong"}).subject == Transfers::kPingPong);
  // The job determines the number of ranks that a launcher starts.
  const Options launched = accepted(Transfers::kSendRecv, {"--ping-pong"});
  CHECK(check_ranks(launched, 2).is_ok());
  CHECK(check_ranks(launched, 3).code() == Code::kInvalidUsage);
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"-t", "3", "--ping-pong"})) == 2);
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"-t", "1", "--ping-pong"})) == 2);
  CHECK(std::get<int>(parse(Collective::kAllReduce, {"-p", "2", "--ping-pong"})) == 2);
}

TEST_CASE("a skew makes counts that vary") {
  const std::pair<Collective, Collective> forms[] = {{Collective::kAllGather, Collective::kAllGatherV},
                                                     {Collective::kReduceScatter, Collective::kReduceScatterV},
                                                     {Collective::kAllToAll, Collective::kAllToAllV},
                                                     {Collective::kGather, Collective::kGatherV},
                                                     {Collective::kScatter, Collective::kScatterV}};
  for (const auto& [uniform, varying] : forms) {
    INFO(name_of(uniform));
    CHECK(accepted(uniform, {"-p", "4"}).subject == uniform);
    CHECK(accepted(uniform, {"-p", "4", "--skew", "1"}).subject == varying);
    const Options options = accepted(uniform, {"-p", "4", "--skew", "4"});
    CHECK(options.subject == varying);
    CHECK(options.skew == 4);
    for (const char* bad : {"0", "0.9", "4.1", "-1", "x", "nan"}) {
      CHECK(std::get<int>(parse(uniform, {"-p", "4", "--skew", bad})) == 2);
    }
    // The job determines the number of ranks that a launcher starts.
    CHECK(check_ranks(accepted(uniform, {"--skew", "2.5"}), 3).is_ok());
    CHECK(check_ranks(accepted(uniform, {"--skew", "2.5"}), 2).code() == Code::kInvalidUsage);
  }
  for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce,
                                      Collective::kBarrier, Collective::kScan, Collective::kExscan}) {
    CHECK(std::get<int>(parse(collective, {"-p", "4", "--skew", "2"})) == 2);
  }
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"-p", "4", "--skew", "2"})) == 2);
}

// The rows of the table in docs/benchmarks.md.
TEST_CASE("nccl-tests' flags that are supported") {
  const auto reduce = [](const std::vector<std::string>& words) { return accepted(Collective::kReduce, words); };
  for (const char* flag : {"-b", "--minbytes"}) CHECK(reduce({flag, "16"}).sizes_bytes.front() == 16);
  for (const char* flag : {"-e", "--maxbytes"}) CHECK(reduce({flag, "16"}).sizes_bytes.back() == 16);
  for (const char* flag : {"-i", "--stepbytes"}) {
    CHECK(reduce({flag, "4", "-e", "16"}).sizes_bytes == Sizes{8, 12, 16});
    CHECK(reduce({flag, "4", "-f", "1", "-e", "16"}).sizes_bytes == Sizes{8, 12, 16});
    const Options both = reduce({flag, "4", "-f", "2", "-e", "16"});
    CHECK(both.sizes_bytes == Sizes{8, 16});
    CHECK(both.notes.size() == 1);
  }
  for (const char* flag : {"-f", "--stepfactor"}) {
    CHECK(reduce({flag, "4", "-e", "32"}).sizes_bytes == Sizes{8, 32});
    CHECK(reduce({flag, "0", "-b", "1M", "-e", "2M"}).sizes_bytes == Sizes{1 << 20, 2 << 20});
  }
  for (const char* flag : {"-n", "--iters"}) CHECK(reduce({flag, "9"}).iterations == 9);
  for (const char* flag : {"-w", "--warmup_iters"}) CHECK(reduce({flag, "9"}).warmup_iterations == 9);
  for (const char* flag : {"-m", "--agg_iters"}) {
    const Options options = reduce({flag, "9"});
    CHECK(options.aggregate == 9);
    CHECK(options.memory == Memory::kMalloc);
    CHECK(reduce({flag, "tutti"}).memory == Memory::kTutti);
    CHECK(reduce({flag, "9", "--memory", "tutti"}).memory == Memory::kTutti);
  }
  for (const char* flag : {"-N", "--run_cycles"}) CHECK(reduce({flag, "0"}).cycles == 0);
  for (const char* flag : {"-c", "--check"}) CHECK(reduce({flag, "0"}).checks == 0);
  for (const char* flag : {"-o", "--op"}) CHECK(reduce({flag, "max"}).ops == std::vector{ReduceOp::kMax});
  for (const char* flag : {"-d", "--datatype"}) {
    CHECK(reduce({flag, "half"}).datatypes == std::vector{DataType::kFloat16});
  }
  for (const char* flag : {"-r", "--root"}) {
    CHECK(reduce({flag, "3"}).root == 3);
    CHECK(reduce({flag, "-1"}).all_roots);
  }
}

TEST_CASE("nccl-tests' flags that are supported: where ranks run, and output") {
  const auto reduce = [](const std::vector<std::string>& words) { return accepted(Collective::kReduce, words); };
  for (const char* flag : {"-t", "--nthreads"}) CHECK(reduce({flag, "3"}).local_ranks() == 3);
  for (const char* flag : {"-g", "--ngpus"}) {
    CHECK(reduce({flag, "3", "-t", "2"}).local_ranks() == 6);
    CHECK(reduce({flag, "1"}).memory == Memory::kCuda);
    CHECK(reduce({flag, "1"}).local_ranks() == 1);
  }
  for (const char* flag : {"-z", "--blocking"}) {
    CHECK_FALSE(reduce({flag, "0"}).blocking);
    CHECK(reduce({flag, "1"}).blocking);
    CHECK(reduce({flag, "1", "-g", "1"}).wait_each);
    CHECK_FALSE(reduce({flag, "0", "-g", "1"}).wait_each);
  }
  for (const char* flag : {"-G", "--cudagraph"}) CHECK(reduce({flag, "3", "-g", "1"}).graph_launches == 3);
  for (const char* flag : {"-T", "--timeout"}) CHECK(reduce({flag, "3"}).timeout_s == 3);
  for (const char* flag : {"-C", "--report_cputime"}) CHECK(reduce({flag, "1"}).calling_time);
  for (const char* flag : {"-S", "--report_timestamps"}) CHECK(reduce({flag, "1"}).timestamps);
  for (const char* flag : {"-J", "--output_file", "--json"}) CHECK(reduce({flag, "x"}).json_path == "x");
  for (const char* flag : {"-a", "--average"}) {
    CHECK(reduce({flag, "0"}).average == Average::kRank0);
    CHECK(reduce({flag, "1"}).average == Average::kMean);
    CHECK(reduce({flag, "2"}).average == Average::kFastest);
    CHECK(reduce({flag, "3"}).average == Average::kSlowest);
  }
  CHECK(reduce({}).average == Average::kSlowest);
  for (const char* flag : {"-R", "--local_register"}) {
    CHECK(reduce({flag, "0"}).memory == Memory::kMalloc);
    CHECK(reduce({flag, "1"}).memory == Memory::kTutti);
    CHECK(reduce({flag, "2"}).memory == Memory::kTutti);
  }
  for (const char* flag : {"-M", "--memory_report", "--memory"}) {
    CHECK(reduce({flag, "1"}).memory_report);
    CHECK_FALSE(reduce({flag, "0"}).memory_report);
  }
  // The only value that they can have here.
  for (const char* flag : {"-p", "--parallel_init", "-y", "--stream_null", "-x", "--cta_policy", "-D",
                           "--device_implementation", "-V", "--device_cta_count"}) {
    CHECK(reduce({flag, "0"}).local_ranks() == 0);
  }
  CHECK(reduce({"--parallel_init", "1"}).local_ranks() == 0);
  CHECK(reduce({"-p", "1", "-t", "4"}).local_ranks() == 4);
}

TEST_CASE("sizes and datatypes as people write them") {
  for (const char* size : {"2K", "2k", "2KB", "2kib", "2048", "2048B"}) {
    CHECK(accepted(Collective::kReduce, {"-b", size, "-e", size}).sizes_bytes == std::vector<std::size_t>{2048});
  }
  for (const char* size : {"2KK", "2KiBs", "K", "2i", "2Kb/s"}) {
    CHECK(std::get<int>(parse(Collective::kReduce, {"-b", size})) == 2);
  }
  CHECK(accepted(Collective::kReduce, {"-d", "fp32"}).datatypes == std::vector<DataType>{DataType::kFloat32});
  CHECK(accepted(Collective::kReduce, {"-d", "BF16"}).datatypes == std::vector<DataType>{DataType::kBfloat16});
}

TEST_CASE("nccl-tests' flags that are refused") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"-y", "1"},
                                                                                     {"--stream_null", "1"},
                                                                                     {"-x", "1"},
                                                                                     {"--cta_policy", "2"},
                                                                                     {"-D", "1"},
                                                                                     {"-V", "16"},
                                                                                     {"-o", "mulsum"},
                                                                                     {"--memory", "device"},
                                                                                     {"-m", "0"},
                                                                                     {"-m", "10001"},
                                                                                     {"-a", "4"},
                                                                                     {"-R", "3"},
                                                                                     {"-T", "-1"},
                                                                                     {"-C", "2"},
                                                                                     {"-S", "2"},
                                                                                     {"-M", "2"},
                                                                                     {"-G", "2"},
                                                                                     {"--min-busbw", "-1"}}) {
    INFO(words.front() + " " + words.back());
    CHECK(std::get<int>(parse(Collective::kAllReduce, words)) == 2);
  }
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"-p", "2", "--ping-pong", "-m", "2"})) == 2);
}

TEST_CASE("the last of a flag counts") {
  CHECK(accepted(Collective::kAllReduce, {"-b", "8", "--minbytes=16", "-e", "16"}).sizes_bytes == Sizes{16});
  CHECK(accepted(Collective::kAllReduce, {"-m", "tutti", "-m", "2"}).memory == Memory::kMalloc);
  CHECK(accepted(Collective::kAllReduce, {"-n", "3", "-n4"}).iterations == 4);
}

TEST_CASE("sizes may have a part") {
  CHECK(accepted(Collective::kAllReduce, {"-b", "1.5K", "-e", "0.5M", "-f", "1000"}).sizes_bytes == Sizes{1536});
}

TEST_CASE("flags without meaning for the subject have no effect") {
  const Options options = accepted(Collective::kAllGather, {"-o", "max", "-r", "7", "-p", "2"});
  CHECK(options.root == 0);
  CHECK(options.notes.size() == 2);
  CHECK(accepted(Collective::kBarrier, {"-b", "8", "-e", "1M", "-f", "2", "-d", "half", "-o", "sum"}).notes.size() ==
        5);
}

TEST_CASE("variables of nccl-tests") {
  ::unsetenv("NCCL_TESTS_MIN_BW");
  CHECK_FALSE(accepted(Collective::kAllReduce, {}).min_busbw_gbs);
  ::setenv("NCCL_TESTS_MIN_BW", "10", 1);
  CHECK(*accepted(Collective::kAllReduce, {}).min_busbw_gbs == Approx(9));
  CHECK(*accepted(Collective::kAllReduce, {"--min-busbw", "10"}).min_busbw_gbs == 10);
  CHECK_FALSE(accepted(Collective::kBarrier, {}).min_busbw_gbs);
  ::setenv("NCCL_TESTS_MIN_BW", "fast", 1);
  CHECK(std::get<int>(parse(Collective::kAllReduce, {})) == 2);
  ::unsetenv("NCCL_TESTS_MIN_BW");
  for (const char* variable : {"NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK", "NCCL_TESTS_DEVICE"}) {
    ::setenv(variable, "1", 1);
    CHECK(std::get<int>(parse(Collective::kAllReduce, {})) == 2);
    ::unsetenv(variable);
  }
}

TEST_CASE("processes that a launcher has started are the ranks") {
  ::setenv("TUTTI_WORLD_SIZE", "2", 1);
  CHECK(std::get<int>(parse(Collective::kBroadcast, {"-p", "2"})) == 2);
  // The job determines their total number of ranks.
  CHECK(accepted(Collective::kBroadcast, {"-t", "2", "-r", "3"}).root == 3);
  ::unsetenv("TUTTI_WORLD_SIZE");
  CHECK(std::get<int>(parse(Collective::kBroadcast, {"-t", "2", "-r", "3"})) == 2);
}

TEST_CASE("help ends with status 0") {
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"--help"})) == 0);
  CHECK(std::get<int>(parse(Collective::kAllReduce, {"--help"})) == 0);
}

}  // namespace tutti::internal::perf
