// The agreements (control/agreement.h) of ranks that are threads of one process: their contributions are in shared
// memory, and the first rank that can decides for all.
//
// Threads: any, under one lock of the caller.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "control/agreement.h"
#include "control/rank_set.h"

namespace tutti::internal {

class ThreadAgreements {
 public:
  // The members that are left out, and the number among the agreements with these.
  using Name = std::pair<std::vector<int>, std::uint32_t>;
  // The contribution of a rank to its next agreement with this left_out.
  Name give(int rank, const Proposal& own);
  // The result, if it is known or all members have contributed that can. For the sets, see control::decide().
  std::optional<Result<Agreement>> look(const Name& name, RankSet members, const RankSet& dead, const RankSet& left,
                                        bool late);

 private:
  struct Round {
    control::Tally tally;
    std::optional<control::Decision> decision;
  };
  std::map<Name, Round> rounds_;
  std::map<std::pair<int, std::vector<int>>, std::uint32_t> next_;  // by rank and left_out
};

}  // namespace tutti::internal
