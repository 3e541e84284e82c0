#include "calls/transfer.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

namespace tutti::internal {

std::string describe(const Transfer& t) {
  return fmt::format("{}(count {}, {}, {} rank {})", t.sends ? "send" : "recv", t.count, name_of(t.type, t.opaque),
                     t.sends ? "to" : "from", t.peer);
}

Status check_own(std::span<const Transfer> transfers, int rank) {
  std::vector<const Transfer*> pending[2];
  for (const Transfer& t : transfers) {
    if (t.peer == rank) pending[t.sends ? 0 : 1].push_back(&t);
  }
  const std::size_t both = std::min(pending[0].size(), pending[1].size());
  for (std::size_t i = 0; i < both; ++i) {
    const Transfer& from = *pending[0][i];
    const Transfer& to = *pending[1][i];
    if (from.count == to.count && from.type == to.type && from.opaque.bytes == to.opaque.bytes) continue;
    return Status::invalid_usage(
        fmt::format("rank {} to itself: {} does not fit {}", rank, describe(from), describe(to)));
  }
  if (pending[0].size() == pending[1].size()) return {};
  const bool sends = pending[0].size() > both;
  return Status::invalid_usage(fmt::format("{} is to the rank itself, and its {} is not in the same group",
                                           describe(*pending[sends ? 0 : 1][both]), sends ? "receive" : "send"));
}

}  // namespace tutti::internal
