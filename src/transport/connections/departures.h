// For a rank that waits for connections: detects that an awaited rank has left and will not connect.
//
// Threads: one at a time.
#pragma once

#include <optional>
#include <vector>

#include "base/failure.h"
#include "base/rank_table.h"
#include "base/status.h"
#include "join/peer_info.h"
#include "os/clock.h"

namespace tutti::internal {

class Departures {
 public:
  // `book`: by rank. Both outlive this.
  Departures(const RankTable<PeerInfo>& book, const FailureState& failure) : book_(book), failure_(failure) {}
  // kRemoteError if one of these ranks left a while ago and has not connected since. (It may have connected before it
  // left, and the leave notice may overtake its connection.)
  Status look(const std::vector<int>& waited_for);
  // The deadline, or when look() will say so, if that is sooner.
  [[nodiscard]] Deadline or_sooner(Deadline deadline) const {
    return grace_ && grace_->at_ns() < deadline.at_ns() ? *grace_ : deadline;
  }

 private:
  const RankTable<PeerInfo>& book_;
  const FailureState& failure_;
  std::optional<Deadline> grace_;
};

}  // namespace tutti::internal
