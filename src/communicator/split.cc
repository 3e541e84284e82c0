#include "communicator/split.h"

#include <algorithm>

#include "control/tree_shape.h"

namespace tutti::internal {

static_assert(kMaxRanks <= 1 << 20);

bool is_possible(const SplitRequest& request, std::size_t job_rank) {
  const Code code = code_of(request.refused);
  if (static_cast<std::int32_t>(code) != request.refused) return false;
  const bool refuses = code != Code::kSuccess;
  if (!refuses && request.color < kNoColor) return false;  // which may be the reason of its refusal
  if (refuses && request.text_bytes == 0) return false;
  if (request.text_bytes > (refuses ? kMostReasonBytes : kMostSettingsBytes)) return false;
  const std::uint64_t drawn = request.id & ((std::uint64_t{1} << Listeners::kCountBits) - 1);
  return request.id >> Listeners::kCountBits == job_rank && drawn != 0 &&
         request.id != Listeners::shared_by(static_cast<int>(job_rank));
}

bool is_possible(const SplitOutcome& outcome) {
  return outcome.text_bytes() <= kMostReasonBytes && (outcome.text_bytes() != 0 || !outcome.of_another());
}

std::vector<int> members_of(std::span<const SplitRequest> requests, std::int32_t color) {
  std::vector<int> members;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    if (requests[r].color == color) members.push_back(static_cast<int>(r));
  }
  const auto by_key = [&](int a, int b) {
    return requests[static_cast<std::size_t>(a)].key < requests[static_cast<std::size_t>(b)].key;
  };
  if (!std::is_sorted(members.begin(), members.end(), by_key)) {
    std::stable_sort(members.begin(), members.end(), by_key);
  }
  return members;
}

}  // namespace tutti::internal
