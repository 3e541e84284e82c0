#include "base/rank_list.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

namespace tutti::internal {
namespace {

constexpr std::size_t kMaxRanges = 12;

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t ranges = 0;
  for (std::size_t i = 0; i < ranks.size();) {
    if (ranges == kMaxRanges) return fmt::format("{} and {} more", text, ranks.size() - i);
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (ranges++ > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text.append(last == i + 1 ? ", " : "-").append(std::to_string(ranks[last]));
    i = last + 1;
  }
  return text;
}

std::string describe_rank(int rank, const std::string& host, std::int32_t pid) {
  return fmt::format("rank {} (host {}, pid {})", rank, host, pid);
}

std::vector<int> joined(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> both;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

}  // namespace tutti::internal
