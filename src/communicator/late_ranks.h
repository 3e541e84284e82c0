// What the ranks have told of late ranks (survivor_mode.h): which are back, and which are invited to take part again.
//
// Threads: any, under a lock of the caller.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "control/rank_set.h"

namespace tutti::internal {

// A rank that was left out calls again.
struct LateReturn {
  int rank = 0;
  std::uint32_t phase = 0;  // in which it was left out
  std::uint64_t calls = 0;  // collectives that are over, as far as it knows
};

// A phase begins with the ranks that its invitation names. During the phase ranks may be left out, and none comes back.
// So a rank that knows the phase has missed none of its agreements, or is late and waits for a later phase.
struct Invitation {
  std::uint32_t phase = 0;
  std::uint64_t calls = 0;     // collectives that are over
  RankSet members;             // the ranks that take part
  RankSet late;                // late ranks that do not
  bool all_were_late = false;  // so none goes on without another that lives: it may be on time, with still others
};

class LateRanks {
 public:
  // `rank`: this one.
  explicit LateRanks(int rank) : rank_(rank) {}
  // Notices may come again, and late.
  void hear(const LateReturn& told);
  void hear(const Invitation& told);
  // The ranks of `late` to invite: those that are back, if all are, except the ones in `gone`, or if one of them has
  // been for `patience_ms`.
  [[nodiscard]] RankSet to_invite(const std::vector<int>& late, const RankSet& gone, std::int64_t patience_ms) const;
  // The one after `phase`, and after all of which is known here.
  [[nodiscard]] std::uint32_t next_phase(std::uint32_t phase) const;
  // The last invitation of all, if its phase is later. If it does not name this rank, an earlier one may have, which
  // did not arrive: then the others believe that this rank knows it.
  [[nodiscard]] std::optional<Invitation> invitation(std::uint32_t phase) const;
  // Whether a later phase is known: of ranks on time, or with this rank.
  [[nodiscard]] bool have_gone_on(std::uint32_t phase) const { return latest_ > phase; }
  [[nodiscard]] bool is_back(int rank) const { return find_back(rank) != nullptr; }
  // Whether all these ranks are back, so that none is on time. If so, the invitation for them.
  [[nodiscard]] std::optional<Invitation> invite_all(const RankSet& living) const;

 private:
  struct Known {
    bool has_told = false;
    LateReturn told;
    std::int64_t since_ns = 0;  // when it told
    std::uint32_t invited = 0;  // the phase of its last invitation
  };
  [[nodiscard]] const Known* find_back(int rank) const;

  const int rank_;
  std::map<int, Known> ranks_;
  Invitation last_;
  std::uint32_t latest_ = 0;  // the latest phase of ranks on time, or with this rank
};

}  // namespace tutti::internal
