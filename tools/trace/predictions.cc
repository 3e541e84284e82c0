#include "tools/trace/predictions.h"

#include <algorithm>
#include <utility>

#include "algorithms/catalog.h"
#include "executor/fingerprint.h"
#include "selection/prediction.h"

namespace tutti::internal::tools {
namespace {

// Of all predictions of a communicator: they are kept, about 100 bytes for each step.
constexpr std::size_t kMostSteps = 10'000'000;
constexpr std::size_t kMostMemoryBytes = std::size_t{2} << 30;

// "by ring, 8 chunks, ..." is of "ring". Empty: the text was too long to be kept.
std::string algorithm_of(const std::string& plan) {
  constexpr std::string_view kBy = "by ";
  const std::size_t end = plan.find(", ");
  if (!plan.starts_with(kBy) || end == std::string::npos) return {};
  return plan.substr(kBy.size(), end - kBy.size());
}

}  // namespace

Predictions::Predictions(const Members& members) {
  for (const auto& [rank, member] : members) {
    if (member.rank->job.empty()) continue;
    auto job = selection::read_job(member.rank->job);
    if (!job.is_ok()) {
      why_ = job.status().message();
    } else if (job->graph.ranks.size() != static_cast<std::size_t>(member.rank->ranks)) {
      why_ = "the description of the job in the trace is of other ranks";
    } else {
      job_ = std::move(*job);
      return;
    }
  }
  if (why_.empty()) why_ = "the trace of rank 0, which describes the job, is missing";
}

const Predicted* Predictions::of(const observe::TracedOperation& operation, const observe::TracedRank& rank,
                                 const observe::TracedSteps& steps) {
  const transport::Fingerprint call = fingerprint_of(operation);
  const Key key{executor::kCollectiveMask & call.call, steps.plan, call.root, steps.bytes, steps.element_bytes};
  const auto [at, is_new] = known_.try_emplace(key);
  if (is_new && job_) {
    const auto plan = rank.plans.find(steps.plan);
    at->second = predict(executor::collective_of(call.call), plan == rank.plans.end() ? "" : plan->second,
                         static_cast<int>(call.root), steps);
  }
  return at->second ? &*at->second : nullptr;
}

std::nullopt_t Predictions::give_up(const std::string& why) {
  if (why_.empty()) why_ = why;
  return std::nullopt;
}

std::optional<Predicted> Predictions::predict(Collective collective, const std::string& plan, int root,
                                              const observe::TracedSteps& steps) {
  if (steps.uneven) return give_up("blocks of different sizes are not simulated");
  Predicted predicted;
  predicted.algorithm = algorithm_of(plan);
  selection::Question question;
  question.entry = algorithms::find(collective, predicted.algorithm);
  if (question.entry == nullptr) return give_up("the algorithm \"" + plan + "\" is not one of this program");
  question.root = has_root(collective) ? root : 0;
  question.bytes = steps.bytes;
  question.element_bytes = steps.element_bytes;
  question.sharing = job_->sharing;
  question.keeps_steps = true;
  question.most_memory_bytes = kMostMemoryBytes;
  if (question.root < 0 || static_cast<std::size_t>(question.root) >= job_->graph.ranks.size()) {
    return give_up("a root is not a rank");
  }
  if (steps_ > kMostSteps) return give_up("there are too many different collectives to predict all of them");
  auto prediction = selection::predict(job_->graph, job_->costs, question);
  if (!prediction.is_ok()) return give_up(prediction.status().message());
  steps_ += prediction->steps;
  auto schedules = selection::write_schedules(*question.entry, selection::world_of(job_->graph), question.root);
  if (!schedules.is_ok()) return give_up(schedules.status().message());
  predicted.schedules = std::move(*schedules);
  predicted.timing = std::move(prediction->timing);
  return predicted;
}

bool matches(const observe::TracedSteps& steps, const schedule::Schedule& schedule) {
  return std::all_of(steps.steps.begin(), steps.steps.end(), [&](const observe::TracedStep& one) {
    if (one.step >= schedule.steps.size()) return false;
    const schedule::Step& step = schedule.steps[one.step];
    const auto kind = static_cast<schedule::StepKind>(one.kind);
    // A receive may have run together with the kReduce behind it.
    return step.peer == one.peer && schedule::is_local(kind) == schedule::is_local(step.kind) &&
           schedule::is_recv(kind) == schedule::is_recv(step.kind);
  });
}

}  // namespace tutti::internal::tools
