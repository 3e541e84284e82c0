// What the members of a communicator agree on when each has contributed: the same result for all that live.
//
// Values and pure functions. Ranks are those of the job (agreements.h), or of one process (join/in_process.cc).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "control/rank_set.h"

namespace tutti::internal {

// What one rank contributes. The calls of all members must be equal.
struct Proposal {
  std::string call;           // the text of the call, for errors
  std::vector<int> excluded;  // members that take no part: ascending ranks of the communicator, equal on all others
  std::uint64_t flags = ~std::uint64_t{0};
  std::string offer{};      // an id; empty: none
  bool takes_late = false;  // members that are late, or have left, are a result (Agreement::late), not an error
  // Agreements of different series are counted separately: a member that has missed one takes part in a later series.
  std::uint32_t series = 0;
};

struct Agreement {
  std::uint64_t flags = 0;    // the bits that all contributions have
  std::string offer{};        // of the lowest rank that has contributed one; empty: none
  std::vector<int> failed{};  // the members that have died, ascending
  // The members that did not contribute in time, perhaps with this one, or those that left the communicator without
  // contributing: ascending. If there are any, the fields above are empty.
  std::vector<int> late{};
  Status why{};  // if there are any: the error. kTimeout, or kRemoteError if they left
};

// Whether no member takes part in an agreement of `series` any more when one of `newest` begins. The last few are kept,
// because members may still wait there.
inline bool is_past_series(std::uint32_t series, std::uint32_t newest) {
  return series + 2 < newest;
}

namespace control {

// A member, and the call in which it is.
struct Caller {
  int rank = -1;  // -1: none
  std::string call;
};

// The longest offer.
inline constexpr std::size_t kMaxOfferBytes = 160;

// What a member offers.
struct Offer {
  int rank = -1;  // whose; -1: none
  std::string bytes;
  bool operator==(const Offer&) const = default;
};

// The contributions of some members.
struct Tally {
  RankSet given;                            // whose
  std::uint64_t flags = ~std::uint64_t{0};  // their bitwise AND
  Offer offer;                              // of the lowest of them that has one
  Caller caller;                            // the lowest of them
  Caller other;                             // one whose call differs

  // The contribution of one member. `rank`: of the job.
  static Tally of(int rank, const Proposal& own);
  // Associative and commutative, except the choice of `other`; adding a contribution twice changes nothing.
  void add(const Tally& more);
};

enum class Outcome : std::uint8_t {
  kAgreed = 0,    // ranks: those that have died
  kMismatch = 1,  // two members have made different calls
  kLeft = 2,      // ranks: those that left the communicator and did not contribute
  // ranks: those that did not contribute in time; other: one of them that is in another call. No ranks: `caller` has
  // waited for its whole timeout.
  kLate = 3,
};

struct Decision {
  Outcome outcome = Outcome::kAgreed;
  std::uint64_t flags = 0;
  Offer offer;
  RankSet ranks;
  Caller caller;
  Caller other;
  // Whether the members see the same: the same result, or errors with the same code.
  bool operator==(const Decision& as) const;
};

// Nothing while members are missing that live and may still contribute, unless time is over (`late`). `left`: the
// members that left the communicator and did not contribute. REQUIRES: no rank is in both `dead` and `left`.
std::optional<Decision> decide(const Tally& tally, const RankSet& members, const RankSet& dead, const RankSet& left,
                               bool late);

inline bool is_error(const std::optional<Decision>& decision) {
  return decision && decision->outcome != Outcome::kAgreed;
}

// Whether members wait in it, or did until their time was over.
inline bool may_hold_members(const std::optional<Decision>& decision) {
  return !decision || decision->outcome == Outcome::kLate;
}

// The result for a member that has proposed `own`.
Result<Agreement> result_for(const Proposal& own, Result<Agreement> result);

// The result for members that take late ones as a result. rank_of(rank) is the rank in the
// communicator, in which `decision` names no others.
Result<Agreement> result_of(const Decision& decision, const std::function<int(int)>& rank_of);

}  // namespace control
}  // namespace tutti::internal
