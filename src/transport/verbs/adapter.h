// Ranks connected by RDMA (src/transport/verbs).
#pragma once

#include "transport/adapter.h"
#include "transport/verbs/ports/ports.h"

namespace tutti::internal {

// The description that a rank sends to all others.
struct RdmaTold {
  std::vector<transport::verbs::Port> ports;  // empty: none
  std::string trouble;                        // then why
  // Rank 0's values apply to all; see verbs::Options.
  int rails = 0;
  int queue_pairs = 1;

  [[nodiscard]] std::string pack() const;
  static Result<RdmaTold> unpack(const std::string& bytes);
};

// See TransportEntry.
std::shared_ptr<Transport> make_verbs_transport(const std::optional<std::string>& option, bool asked);

}  // namespace tutti::internal
