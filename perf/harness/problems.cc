#include "problems.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <sstream>

namespace tutti::internal::perf {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

Problem problem_of(const Options& options, int ranks, std::size_t bytes, DataType datatype, ReduceOp op, int root) {
  Problem problem;
  problem.subject = options.subject;
  problem.datatype = datatype;
  problem.op = op;
  problem.ranks = ranks;
  problem.root = root;
  problem.skew = options.skew;
  problem.count = bytes / size_of(datatype);
  if (problem.subject.has_blocks()) problem.count /= static_cast<std::size_t>(ranks);
  problem.seed = bytes;
  return problem;
}

// Sizes that are left out, by why.
using LeftOut = std::map<std::string, std::vector<std::size_t>>;

void leave_out(LeftOut& left_out, const std::string& why, std::size_t bytes) {
  std::vector<std::size_t>& sizes = left_out[why];
  if (std::find(sizes.begin(), sizes.end(), bytes) == sizes.end()) sizes.push_back(bytes);
}

std::string note_of(const std::string& why, const std::vector<std::size_t>& sizes) {
  constexpr std::size_t kMostNamed = 8;
  std::string note = fmt::format("left out, {}: ", why);
  for (std::size_t i = 0; i < std::min(sizes.size(), kMostNamed); ++i) {
    note += fmt::format("{}{}", i == 0 ? "" : ", ", sizes[i]);
  }
  return note + (sizes.size() > kMostNamed ? ", ... bytes" : " bytes");
}

// A number alone in a file.
std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

}  // namespace

std::size_t stride_bytes(const Problem& problem) {
  constexpr std::size_t kLine = 64;
  return (problem.vector_bytes() + kLine - 1) / kLine * kLine;
}

Problems problems_of(const Options& options, int ranks, std::size_t memory_bytes) {
  const std::vector<ReduceOp> one_op{options.ops.front()};
  const std::vector<ReduceOp>& ops = options.subject.reduces() ? options.ops : one_op;
  const bool all_roots = options.all_roots && options.subject.has_root();
  const int first_root = all_roots ? 0 : options.root;
  const int last_root = all_roots ? ranks - 1 : options.root;
  // Two buffers, which each call of an iteration has for itself.
  const std::size_t most_bytes = memory_bytes / 2 / static_cast<std::size_t>(options.aggregate);
  Problems problems;
  LeftOut left_out;
  for (const DataType datatype : options.datatypes) {
    for (const ReduceOp op : ops) {
      if (!is_defined(options.subject, datatype, op)) continue;
      for (int root = first_root; root <= last_root; ++root) {
        for (const std::size_t bytes : options.sizes_bytes) {
          const Problem problem = problem_of(options, ranks, bytes, datatype, op, root);
          if (problem.subject.has_data() && problem.count == 0) {
            leave_out(left_out, fmt::format("as ranks would have no element of {}", name_of(datatype)), bytes);
          } else if (bytes > most_bytes) {
            leave_out(left_out, "as their buffers do not fit into memory", bytes);
          } else {
            problems.of_cycle.push_back(problem);
          }
        }
      }
    }
  }
  for (const auto& [why, sizes] : left_out) problems.notes.push_back(note_of(why, sizes));
  return problems;
}

std::size_t available_memory_bytes(const std::string& root) {
  std::size_t bytes = kUnlimited;
  std::ifstream machine(root + "/proc/meminfo");
  for (std::string line; std::getline(machine, line);) {
    std::istringstream words(line);
    std::string name;
    std::size_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:") bytes = kibibytes * 1024;
  }
  // "0::/user.slice/session": its group, and those around it.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    for (std::string group = line.substr(3);; group.resize(group.rfind('/'))) {
      const std::string folder = fmt::format("{}/sys/fs/cgroup{}", root, group);
      const auto most = number_in(folder + "/memory.max");
      const auto now = number_in(folder + "/memory.current");
      if (most && now) bytes = std::min(bytes, *most - std::min(*most, *now));
      if (group.find('/') == std::string::npos) break;
    }
  }
  return bytes;
}

}  // namespace tutti::internal::perf
