// The choice of the algorithm for a size: the one that the simulator predicts to be fastest in this job. Evaluated when
// a communicator first uses a size class, never for each call. Every rank must get the same result, so the inputs are
// the same on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/catalog.h"
#include "base/status.h"
#include "selection/job_model.h"
#include "selection/tuning.h"

namespace tutti::internal::selection {

// `forced`: TUTTI_ALGORITHM, a comma-separated list of NAME (for every collective that has it) and COLLECTIVE:NAME; a
// NAME may have a parameter that the catalog does not list. kInvalidUsage if it names an algorithm that does not exist
// or does not support this world. `order`: the required order of combination. If that is the order of ranks, a NAME
// without COLLECTIVE is ignored unless the algorithm keeps this order. bytes: of the whole vector, all blocks together.
// `tuned`: the measurements for such a job, used if they apply and nothing is forced; null: none. Predictions are for
// the largest power of two that is not above bytes.
Result<const algorithms::AlgorithmEntry*> select(Collective collective, const JobModel& job, std::size_t bytes,
                                                 const std::string& forced,
                                                 schedule::Order order = schedule::Order::kAny,
                                                 const TunedJob* tuned = nullptr);

// The reason for the choice of select().
enum class Because : std::uint8_t {
  kForced,
  kMeasured,
  kPredicted,  // to be fastest
  kNearly,     // predicted to be about as fast as the fastest, and earlier in the catalog
};
// "predicted to be fastest".
const char* text_of(Because because);
struct Candidate {
  const algorithms::AlgorithmEntry* entry = nullptr;
  double predicted_us = 0;  // of the largest power of two that is not above bytes; infinity: it cannot be known
};
struct Explanation {
  const algorithms::AlgorithmEntry* chosen = nullptr;
  Because because = Because::kPredicted;
  std::vector<Candidate> candidates;  // of the catalog, and the forced one; the fastest first
  std::optional<JobKind> fitted_to;   // the job whose fitted costs the predictions use; empty: published costs
};
// Of the same arguments.
Result<Explanation> explain(Collective collective, const JobModel& job, std::size_t bytes, const std::string& forced,
                            schedule::Order order = schedule::Order::kAny, const TunedJob* tuned = nullptr);

// The choice of select() without a prediction, because it is forced or was measured; else null. Same arguments.
Result<const algorithms::AlgorithmEntry*> decided_entry(Collective collective, const algorithms::World& world,
                                                        std::size_t bytes, const std::string& forced,
                                                        schedule::Order order = schedule::Order::kAny,
                                                        const TunedJob* tuned = nullptr);
// The choice that `forced` determines, or null; errors as select(). Predicts nothing.
Result<const algorithms::AlgorithmEntry*> forced_entry(Collective collective, const algorithms::World& world,
                                                       const std::string& forced, schedule::Order order);
// The names in `forced` that support no collective with these ranks, with their needs: "NAME does not support ...".
// REQUIRES: check_forced().
std::vector<std::string> idle_names(const algorithms::World& world, const std::string& forced);
// Whether all names in `forced` exist, for any ranks. kInvalidUsage quotes it with the setting's name (`name`) and says
// what is wrong.
Status check_forced(const std::string& forced, std::string_view name = "TUTTI_ALGORITHM");

}  // namespace tutti::internal::selection
