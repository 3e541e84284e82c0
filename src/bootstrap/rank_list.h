// Ranks in messages.
#pragma once

#include <string>
#include <vector>

namespace tutti::internal {

// "rank 3", "ranks 1, 4-7, 9"; long lists end in "and N more". `ranks` in rising order.
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace tutti::internal
