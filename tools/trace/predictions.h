// What the simulator predicts for the collectives of a trace, from the description of the job in it
// (selection/job_text.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "observe/trace_reader.h"
#include "schedule/schedule.h"
#include "schedule/simulate.h"
#include "selection/job_text.h"
#include "tools/trace/members.h"

namespace tutti::internal::tools {

// One collective of some size: the schedules of all ranks, and when each of their steps would run if all ranks began at
// the same time.
struct Predicted {
  std::string algorithm;
  std::vector<schedule::Schedule> schedules;
  schedule::Timing timing;
};

// Of one communicator, which outlives this. Threads: one.
class Predictions {
 public:
  explicit Predictions(const Members& members);
  // Null: there is none; why() has the reason, unless an earlier one was found. `steps`: of any of the ranks.
  const Predicted* of(const observe::TracedOperation& operation, const observe::TracedRank& rank,
                      const observe::TracedSteps& steps);
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t, std::uint32_t>;
  std::optional<Predicted> predict(Collective collective, const std::string& plan, int root,
                                   const observe::TracedSteps& steps);
  std::nullopt_t give_up(const std::string& why);

  std::optional<selection::DescribedJob> job_;
  std::string why_;
  std::size_t steps_ = 0;  // of all predictions
  std::map<Key, std::optional<Predicted>> known_;
};

// Whether the steps are those of the schedule. It is another one if another version of tutti wrote it.
bool matches(const observe::TracedSteps& steps, const schedule::Schedule& schedule);

}  // namespace tutti::internal::tools
