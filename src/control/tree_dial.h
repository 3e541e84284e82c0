// How a rank of the control tree reaches another one beyond its neighbours, and what it makes of a refusal.
//
// Threads: the tree's alone.
#pragma once

#include <cstdint>
#include <memory>

#include "control/comm_table.h"
#include "control/job_view.h"
#include "net/auth.h"
#include "net/dial.h"

namespace tutti::internal::control {

// Why a rank dials another: the index of its claim in the handshake.
enum class DialPurpose : std::uint16_t {
  kSeek = 0,   // it looks for a parent
  kQuery = 1,  // it only asks whether the other one is there; that the handshake is done answers it
};

class TreeDialler {
 public:
  // All outlive it.
  TreeDialler(const JobView& view, const CommTable& comms, const net::Secret& secret)
      : view_(view), comms_(comms), secret_(secret) {}
  // Null: nobody has said where the rank listens.
  [[nodiscard]] std::unique_ptr<net::Dial> dial(int rank, DialPurpose purpose) const;
  // Of a rank whose host has refused connections since then. A rank that has left may refuse as well, if ranks have
  // just left the job, or every communicator that this rank shares with it.
  [[nodiscard]] bool counts_as_dead(int rank, std::int64_t refused_ns) const;

 private:
  const JobView& view_;
  const CommTable& comms_;
  const net::Secret secret_;
};

// A rank whose host refuses connections for so long has died. One that has left is heard of by then: it listens until
// its leave notice is on its way.
inline constexpr std::int64_t kRefusedMs = 300;

}  // namespace tutti::internal::control
