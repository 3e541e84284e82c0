#include "communicator/status_survey.h"

#include <cstddef>
#include <utility>

#include "control/control_tree.h"

namespace tutti::internal {

monitor::PeerPlace StatusSurvey::place_of(int rank) const {
  if (rank < 0 || rank >= epoch_.ranks()) return {};
  const PeerInfo& peer = epoch_.membership().peers[static_cast<std::size_t>(rank)];
  return {peer.hostname, peer.pid};
}

std::vector<int> StatusSurvey::dead() const {
  std::vector<int> ranks;
  if (epoch_.tree() == nullptr) return ranks;
  if (const auto dead = epoch_.tree()->dead(); dead.is_ok()) {
    dead.value().each([&](int rank) { ranks.push_back(rank); });
  }
  return ranks;
}

void StatusSurvey::ask_all(std::int64_t patience_ms) {
  if (epoch_.tree() == nullptr) return;
  Question question;
  question.sequence = static_cast<std::uint32_t>(epoch_.ranks());
  question.patience_ms = patience_ms;
  question.all = true;
  epoch_.tree()->ask(std::move(question));
}

}  // namespace tutti::internal
