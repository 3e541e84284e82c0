// The agreements (control/agreement.h) of ranks that are threads of one process: their contributions are in its memory,
// and the first rank that can decides for all.
//
// Threads: any, under one lock of the caller.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "control/agreement.h"
#include "control/rank_set.h"

namespace tutti::internal {

class ThreadAgreements {
  struct Round {
    control::Tally tally;
    std::optional<control::Decision> decision;
  };
  struct Name {
    std::vector<int> excluded;
    std::uint32_t series = 0;
    std::uint32_t number = 0;  // among the agreements with the same `excluded` and series
    auto operator<=>(const Name&) const = default;
  };

 public:
  // An agreement to which a rank has contributed.
  struct Pending {
    Name name;
    std::shared_ptr<Round> round;
  };
  // The contribution of a rank to its next agreement with these excluded members.
  Pending give(int rank, const Proposal& own);
  // The result, if it is known or all members have contributed that can. For the sets, see control::decide(); `left`
  // may have ranks that are also in `dead`.
  std::optional<Result<Agreement>> look(const Pending& pending, RankSet members, const RankSet& dead,
                                        const RankSet& left, bool late);

 private:
  [[nodiscard]] control::Caller other_call(const Round& round, const RankSet& missing) const;

  std::map<Name, std::shared_ptr<Round>> rounds_;
  // By rank, excluded and series.
  std::map<std::tuple<int, std::vector<int>, std::uint32_t>, std::uint32_t> next_;
};

}  // namespace tutti::internal
