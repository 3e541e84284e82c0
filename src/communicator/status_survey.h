// What the monitor of this process may ask of a communicator: where its ranks are, and what they do.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <vector>

#include "epoch/epoch.h"
#include "monitor/live_communicators.h"

namespace tutti::internal {

class StatusSurvey final : public monitor::Surveyor {
 public:
  // REQUIRES: the epoch is complete, and its tree does not leave before this is destroyed.
  explicit StatusSurvey(const Epoch& epoch) : epoch_(epoch), enlisted_(epoch.public_id(), *this) {}
  [[nodiscard]] monitor::PeerPlace place_of(int rank) const override;
  [[nodiscard]] std::vector<int> dead() const override;
  void ask_all(std::int64_t patience_ms) override;

 private:
  const Epoch& epoch_;
  const monitor::LiveCommunicator enlisted_;  // destroyed first
};

}  // namespace tutti::internal
