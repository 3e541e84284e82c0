// The frames of agreements (agreements.h). Ranks are the job's.
//
// Threads: any; no function here has state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "control/agreement.h"
#include "control/control_messages.h"
#include "control/rank_set.h"
#include "net/frame.h"

namespace tutti::internal::control {

// The longest wait of the members in a frame. In nanoseconds after now, it fits 64 bits.
inline constexpr std::int64_t kMaxWaitMs = std::int64_t{1} << 40;

struct AgreementName {
  CommName comm;
  RankSet excluded;  // members that take no part
  std::uint32_t series = 0;
  std::uint32_t number = 0;  // among those of the communicator with the same `excluded` and series
  // Equal for equal agreements only; the communicator's members follow from its id.
  [[nodiscard]] std::string key() const;
  [[nodiscard]] std::uint64_t hash() const;
  // The members that take part. `ranks`: of the job.
  [[nodiscard]] RankSet members(int ranks) const;
};

// Contributions of members at and below the sender.
struct Proposals {
  AgreementName name;
  int ballot = 0;
  Tally tally;
  RankSet left;              // the members that left the communicator without contributing, as far as the sender knows
  std::int64_t wait_ms = 0;  // how long the members wait at most from now on
  std::optional<Decision> decision;  // taken by the sender, or reported to it
};

struct Agreed {
  AgreementName name;
  int ballot = 0;
  Decision decision;
};

std::string pack_proposals(const Proposals& proposals);
std::string pack_agreed(const Agreed& agreed);
// The contents after the header. False if they are damaged. `ranks`: of the job.
bool unpack_proposals(const Header& header, net::Unpacker* unpacker, int ranks, Proposals* proposals);
bool unpack_agreed(const Header& header, net::Unpacker* unpacker, int ranks, Agreed* agreed);

}  // namespace tutti::internal::control
