// The measurements of a run, and those that are left out.
#include "perf/harness/problems.h"

#include <filesystem>
#include <fstream>
#include <limits>

#include "catch_compat.h"

namespace tutti::internal::perf {
namespace {

constexpr std::size_t kMuch = std::numeric_limits<std::size_t>::max();

Options options_of(Subject subject, std::vector<std::size_t> sizes_bytes) {
  Options options;
  options.subject = subject;
  options.sizes_bytes = std::move(sizes_bytes);
  options.datatypes = {DataType::kFloat32};
  options.ops = {ReduceOp::kSum};
  return options;
}

using Sizes = std::vector<std::size_t>;

Sizes sizes_of(const Problems& problems) {
  Sizes sizes;
  for (const Problem& problem : problems.of_cycle) sizes.push_back(problem.vector_bytes());
  return sizes;
}

}  // namespace

TEST_CASE("sizes that leave a rank without an element are left out") {
  const Problems reduced = problems_of(options_of(Collective::kAllReduce, {0, 2, 4, 8}), 4, kMuch);
  CHECK(sizes_of(reduced) == Sizes{4, 8});
  CHECK(reduced.notes == std::vector<std::string>{"left out, as ranks would have no element of float: 0, 2 bytes"});
  CHECK(sizes_of(problems_of(options_of(Collective::kAllGather, {8, 15, 16, 40}), 4, kMuch)) == Sizes{16, 32});
  CHECK(problems_of(options_of(Collective::kAllGather, {8}), 4, kMuch).of_cycle.empty());
  // Of blocks with different sizes some may be empty.
  Options skewed = options_of(Collective::kAllGatherV, {16});
  skewed.skew = 4;
  CHECK(problems_of(skewed, 4, kMuch).of_cycle.size() == 1);
  // A barrier has no elements in any case.
  CHECK(problems_of(options_of(Collective::kBarrier, {0}), 4, kMuch).of_cycle.size() == 1);
}

TEST_CASE("each size that is left out is named once, for each datatype") {
  Options options = options_of(Collective::kReduce, {4, 8});
  options.datatypes = {DataType::kFloat32, DataType::kFloat64};
  options.ops = {ReduceOp::kSum, ReduceOp::kMax};
  options.all_roots = true;
  const Problems problems = problems_of(options, 3, kMuch);
  CHECK(problems.of_cycle.size() == 2 * 3 * 3);
  CHECK(problems.notes == std::vector<std::string>{"left out, as ranks would have no element of double: 4 bytes"});
}

TEST_CASE("sizes that do not fit into memory are left out") {
  Options options = options_of(Collective::kAllReduce, {64, 128, 256, 512});
  CHECK(sizes_of(problems_of(options, 2, 512)) == Sizes{64, 128, 256});
  const Problems problems = problems_of(options, 2, 500);
  CHECK(sizes_of(problems) == Sizes{64, 128});
  CHECK(problems.notes ==
        std::vector<std::string>{"left out, as their buffers do not fit into memory: 256, 512 bytes"});
  options.aggregate = 2;
  CHECK(sizes_of(problems_of(options, 2, 512)) == Sizes{64, 128});
  CHECK(stride_bytes(problems_of(options, 2, 512).of_cycle.front()) == 64);
}

TEST_CASE("memory that programs can still have") {
  const std::filesystem::path root = std::filesystem::temp_directory_path() / "tutti-problems-test";
  std::filesystem::remove_all(root);
  const auto write = [&](const char* path, const char* text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  write("proc/meminfo", "MemTotal:       4000 kB\nMemAvailable:   3000 kB\n");
  CHECK(available_memory_bytes(root) == 3000 * 1024);
  write("proc/self/cgroup", "1:cpu:/other\n0::/outer/inner\n");
  write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  write("sys/fs/cgroup/outer/inner/memory.current", "10\n");
  CHECK(available_memory_bytes(root) == 3000 * 1024);
  write("sys/fs/cgroup/outer/memory.max", "1000\n");
  write("sys/fs/cgroup/outer/memory.current", "300\n");
  CHECK(available_memory_bytes(root) == 700);
  write("sys/fs/cgroup/outer/memory.current", "1300\n");
  CHECK(available_memory_bytes(root) == 0);
  std::filesystem::remove_all(root);
  CHECK(available_memory_bytes() > 0);
}

}  // namespace tutti::internal::perf
