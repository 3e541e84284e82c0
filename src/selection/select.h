// Which algorithm for which size: the one that the simulator finds fastest in this job.
// Evaluated when a communicator first meets a size class, never per call. Every rank must come to the
// same answer, so only what all ranks know alike goes in.
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

// `forced`: TUTTI_ALGORITHM, a comma-separated list of NAME (where a collective has it) and
// COLLECTIVE:NAME, where a NAME may have a parameter that the catalog does not list. kInvalidUsage if that names what
// does not exist or does not serve this world. `order`: in which the algorithm must combine. Where that is the ranks',
// a NAME without COLLECTIVE counts only if the algorithm keeps it. bytes: of the whole vector, all blocks together.
// `tuned`: what was measured for such a job, which counts where it serves and nothing is forced; null: nothing was.
// Predictions are those for the largest power of two that is not above bytes.
Result<const algorithms::AlgorithmEntry*> select(Collective collective, const JobModel& job, std::size_t bytes,
                                                 const std::string& forced,
                                                 schedule::Order order = schedule::Order::kAny,
                                                 const TunedJob* tuned = nullptr);

// Why select() takes what it does.
enum class Because : std::uint8_t {
  kForced,
  kMeasured,
  kPredicted,  // to be fastest
  kNearly,     // to be as fast as a prediction can tell, and it comes before the fastest in the catalog
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
  std::vector<Candidate> candidates;  // of the catalog, with what is forced; the fastest first
  std::optional<JobKind> fitted_to;   // whose fitted costs the predictions are made of; none: those that are published
};
// Of the same arguments.
Result<Explanation> explain(Collective collective, const JobModel& job, std::size_t bytes, const std::string& forced,
                            schedule::Order order = schedule::Order::kAny, const TunedJob* tuned = nullptr);

// What select() takes without a prediction, because it is forced or was measured, or null. Of the same arguments.
Result<const algorithms::AlgorithmEntry*> decided_entry(Collective collective, const algorithms::World& world,
                                                        std::size_t bytes, const std::string& forced,
                                                        schedule::Order order = schedule::Order::kAny,
                                                        const TunedJob* tuned = nullptr);
// What `forced` makes select() take, or null; its errors. Predicts nothing.
Result<const algorithms::AlgorithmEntry*> forced_entry(Collective collective, const algorithms::World& world,
                                                       const std::string& forced, schedule::Order order);
// What of `forced` counts for no collective, since it serves none with these ranks, and what it needs: "NAME does not
// serve ...". REQUIRES: check_forced().
std::vector<std::string> idle_names(const algorithms::World& world, const std::string& forced);
// Whether `forced` names only what exists, for any ranks. kInvalidUsage quotes it after `name`, what the setting is
// called, and says what is wrong.
Status check_forced(const std::string& forced, std::string_view name = "TUTTI_ALGORITHM");

}  // namespace tutti::internal::selection
