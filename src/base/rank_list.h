// Ranks in messages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::internal {

// "rank 3", "ranks 1, 4-7, 9"; long lists end in "and N more". `ranks` in rising order.
std::string list_ranks(const std::vector<int>& ranks);
// The ranks that are in one of them. All lists are in rising order.
std::vector<int> joined(const std::vector<int>& a, const std::vector<int>& b);
// "rank 3 (host a, pid 77)".
std::string describe_rank(int rank, const std::string& host, std::int32_t pid);

}  // namespace tutti::internal
