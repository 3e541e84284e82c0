// The command line of all_reduce_perf and its siblings.
#include "perf/options.h"

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
    CHECK(std::get<int>(parse(collective, {"-r", "0"})) == 2);
    CHECK(accepted(collective, {"-o", "max"}).ops == std::vector{ReduceOp::kMax});
    CHECK_FALSE(is_defined(collective, DataType::kFloat32, ReduceOp::kAvg));
    CHECK(is_defined(collective, DataType::kFloat32, ReduceOp::kMax));
    CHECK_FALSE(is_defined(collective, DataType::kFloat32, ReduceOp::kBand));
  }
  CHECK(is_defined(Collective::kReduce, DataType::kFloat32, ReduceOp::kAvg));
  CHECK(is_defined(Collective::kAllToAll, DataType::kBool, ReduceOp::kAvg));  // which is of no meaning there
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
                                                     {"-b", "1T"},
                                                     {"-b", "-1"},
                                                     {"-b", "1KK"},
                                                     {"-e", "99999999999999999999"},
                                                     {"-e", "99999999999999999G"},
                                                     {"-b", "8", "-e", "4"},
                                                     {"-b", "0"},
                                                     {"-i", "0"},
                                                     {"-i", "4", "-f", "2"},
                                                     {"-f", "1"},
                                                     {"-d", "float128"},
                                                     {"-o", "median"},
                                                     {"-n", "-1"},
                                                     {"-c", "1.5"},
                                                     {"-z", "2"},
                                                     {"-p", "0"},
                                                     {"-m", "device"},
                                                     {"-r", "0"},  // an all-reduce has no root
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
  CHECK(std::get<int>(parse(Collective::kBroadcast, {"-r", "-1"})) == 2);
  CHECK(std::get<int>(parse(Collective::kBroadcast, {"-o", "sum"})) == 2);
  CHECK(std::get<int>(parse(Collective::kBarrier, {"-b", "8"})) == 2);
}

TEST_CASE("a ping-pong is between two ranks") {
  CHECK(accepted(Transfers::kSendRecv, {"-p", "3"}).subject == Transfers::kSendRecv);
  CHECK(accepted(Transfers::kSendRecv, {"-p", "2", "--ping-pong"}).subject == Transfers::kPingPong);
  // How many a launcher starts, the job says.
  const Options launched = accepted(Transfers::kSendRecv, {"--ping-pong"});
  CHECK(check_ranks(launched, 2).is_ok());
  CHECK(check_ranks(launched, 3).code() == Code::kInvalidUsage);
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"-t", "3", "--ping-pong"})) == 2);
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"-t", "1", "--ping-pong"})) == 2);
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"-o", "sum"})) == 2);
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"-r", "0"})) == 2);
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
    // How many ranks a launcher starts, the job says.
    CHECK(check_ranks(accepted(uniform, {"--skew", "2.5"}), 3).is_ok());
    CHECK(check_ranks(accepted(uniform, {"--skew", "2.5"}), 2).code() == Code::kInvalidUsage);
  }
  for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce,
                                      Collective::kBarrier, Collective::kScan, Collective::kExscan}) {
    CHECK(std::get<int>(parse(collective, {"-p", "4", "--skew", "2"})) == 2);
  }
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"-p", "4", "--skew", "2"})) == 2);
}

TEST_CASE("help ends with status 0") {
  CHECK(std::get<int>(parse(Transfers::kSendRecv, {"--help"})) == 0);
  CHECK(std::get<int>(parse(Collective::kAllReduce, {"--help"})) == 0);
}

}  // namespace tutti::internal::perf
