#include "transport/connections/departures.h"

#include <algorithm>

#include "base/rank_list.h"

namespace tutti::internal {
namespace {

constexpr std::int64_t kGraceMs = 200;

}  // namespace

Status Departures::look(const std::vector<int>& waited_for) {
  const auto left = std::find_if(waited_for.begin(), waited_for.end(),
                                 [&](int peer) { return failure_.any_departed() && failure_.departed(peer); });
  if (left == waited_for.end()) {
    grace_.reset();
  } else if (!grace_) {
    grace_ = Deadline::after_ms(kGraceMs);
  } else if (grace_->passed()) {
    const PeerInfo& info = book_[static_cast<std::size_t>(*left)];
    return Status::remote(describe_rank(*left, info.hostname, info.pid) +
                          " has left the job and cannot be connected to");
  }
  return {};
}

}  // namespace tutti::internal
