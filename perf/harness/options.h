// The command line of all_reduce_perf and its siblings: nccl-tests' flags, and a few more.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "subject.h"

namespace CLI {
class App;
}

namespace tutti::internal::perf {

enum class Memory { kMalloc, kTutti, kCuda };

// The summary of a batch's times, one time for each rank. The values are those of nccl-tests.
enum class Average { kRank0 = 0, kMean = 1, kFastest = 2, kSlowest = 3 };

struct Options {
  Subject subject = Collective::kAllReduce;
  std::vector<std::size_t> sizes_bytes;  // ascending, at least one; {0} for the barrier
  std::vector<DataType> datatypes;
  std::vector<ReduceOp> ops;
  bool all_roots = false;
  int root = 0;
  double skew = 0;         // of blocks with counts of their own; 0: all are equal
  int processes = 0;       // 0: not given
  int threads = 0;         // 0: not given
  int devices = 0;         // ranks of each thread, whose buffers are on CUDA devices; 0: all are on the host
  int graph_launches = 0;  // of CUDA graphs that hold the calls; 0: there is no graph
  int iterations = 0;      // 0: as many as fit a fixed time
  int warmup_iterations = 5;
  int aggregate = 1;  // operations of each iteration, in one group
  Average average = Average::kSlowest;
  int checks = 1;  // verifications per size and mode
  int cycles = 1;  // 0: until interrupted
  bool blocking = true;
  bool wait_each = false;               // of what is on devices: calls are waited for one by one
  bool calling_time = false;            // the table shows how long calls take to return
  bool timestamps = false;              // at the end of each row
  bool memory_report = false;           // at the end
  int timeout_s = 0;                    // 0: as the environment says
  std::optional<double> min_busbw_gbs;  // an average below is a failure
  Memory memory = Memory::kMalloc;
  std::string json_path;
  std::string plot_path;
  std::vector<std::string> arguments;  // the command line
  std::vector<std::string> notes;      // on what was given and has no effect

  // Ranks that this program starts by itself; 0: a launcher has started them.
  [[nodiscard]] int local_ranks() const {
    if (processes == 0 && threads == 0 && devices == 0) return 0;
    return (processes == 0 ? 1 : processes) * ranks_of_process();
  }
  [[nodiscard]] int ranks_of_process() const { return (threads == 0 ? 1 : threads) * (devices == 0 ? 1 : devices); }
};

// Whether the collective, where it combines elements, does so with `op` of this datatype.
constexpr bool is_defined(Subject subject, DataType datatype, ReduceOp op) {
  if (!subject.reduces()) return true;
  return supports(datatype, op) && !(subject.combines_prefixes() && op == ReduceOp::kAvg);
}

// Whether a job of `ranks` ranks can run the options. The error names the flag and its values.
Status check_ranks(const Options& options, int ranks);

// The options, or the exit status after --help or --version (0; 1 if they could not be printed) or a usage
// error (2), which has been printed.
std::variant<Options, int> parse_options(Subject subject, int argc, char** argv);

// The parser of the options, for the generators of manual pages and completions.
std::shared_ptr<const CLI::App> command_line(Subject subject);

}  // namespace tutti::internal::perf
