// How a rank of the control tree connects to a rank that is not its neighbour, and how it interprets a refusal.
//
// Threads: the tree's only.
#pragma once

#include <cstdint>
#include <memory>

#include "control/agreements.h"
#include "control/comm_table.h"
#include "control/job_view.h"
#include "net/auth.h"
#include "net/dial.h"

namespace tutti::internal::control {

// Why a rank connects to another: the index of its claim in the handshake.
enum class DialPurpose : std::uint16_t {
  kSeek = 0,   // it looks for a parent
  kQuery = 1,  // it only asks whether the other one is alive; the completed handshake is the answer
  kTell = 2,   // it has left, and sends its last messages
};

class TreeDialler {
 public:
  // All outlive it.
  TreeDialler(const JobView& view, const CommTable& comms, const Agreements& agreements, const net::Secret& secret,
              Encryption encryption)
      : view_(view), comms_(comms), agreements_(agreements), secret_(secret), encryption_(encryption) {}
  // Null: it is not known where the rank listens.
  [[nodiscard]] std::unique_ptr<net::Dial> dial(int rank, DialPurpose purpose) const;
  // For a rank whose host has refused connections since `refused_ns`. A rank that has left may refuse as well, if ranks
  // have just left the job, or every communicator that this rank shares with it, and no agreement waits for it.
  [[nodiscard]] bool counts_as_dead(int rank, std::int64_t refused_ns) const;

 private:
  const JobView& view_;
  const CommTable& comms_;
  const Agreements& agreements_;
  const net::Secret secret_;
  const Encryption encryption_;
};

// A rank whose host refuses connections for this time has died. If it had left, this rank would know by then: a rank
// listens until it has sent its leave notice.
inline constexpr std::int64_t kRefusedMs = 300;

}  // namespace tutti::internal::control
