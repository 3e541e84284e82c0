#include "communicator/split.h"

#include <algorithm>

#include "bootstrap/root_service.h"

namespace tutti::internal {

static_assert(kMaxRanks <= 1 << 20);

std::vector<int> members_of(std::span<const SplitRequest> requests, std::int32_t color) {
  std::vector<int> members;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    if (requests[r].color == color) members.push_back(static_cast<int>(r));
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return requests[static_cast<std::size_t>(a)].key < requests[static_cast<std::size_t>(b)].key;
  });
  return members;
}

}  // namespace tutti::internal
