#include "selection/fitting.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace tutti::internal::selection {
namespace {

using algorithms::AlgorithmEntry;

// Enough for a dozen numbers; each search evaluates all of them some hundred times.
constexpr std::size_t kMostObservations = 350;
constexpr int kMostSweeps = 25;
constexpr double kFirstStep = 0.7;  // of logarithms
constexpr double kLastStep = 0.02;
constexpr double kGain = 1e-6;  // a smaller gain counts as none, so that unused numbers do not change
constexpr double kMostNumber = 1e8;
constexpr double kLeastUsPerByte = 1e-7;  // not 0, because a factor could not change it
constexpr double kMostRate = 1e4;         // GB/s of a port that limits nothing
constexpr double kAwayMost = 1.5;         // limit for the weight of a disturbed measurement
constexpr std::size_t kElementBytes = 4;

// The processor time of both sides for a byte of a message.
struct Bytes {
  std::array<double, PerByte::kSizes> us{};  // by size
  double senders_part = 0.5;

  void begin(const MessageCosts& costs) {
    double sent = 0;
    double all = 0;
    for (std::size_t i = 0; i < us.size(); ++i) {
      us[i] = std::max(kLeastUsPerByte, costs.send_us_per_byte.values()[i] + costs.receive_us_per_byte.values()[i]);
      sent += costs.send_us_per_byte.values()[i];
      all += us[i];
    }
    if (sent > 0) senders_part = sent / all;
  }
  void apply(MessageCosts& costs) {
    senders_part = std::min(senders_part, 0.95);
    for (std::size_t i = 0; i < us.size(); ++i) {
      costs.send_us_per_byte.values()[i] = senders_part * us[i];
      costs.receive_us_per_byte.values()[i] = (1 - senders_part) * us[i];
    }
  }
};

// Schedules are written once; then costs change.
class Model {
 public:
  Model(const ObservedJob& job, const topology::MachineCosts& start)
      : costs(start), graph(job.graph), job_(job), world_(world_of(job.graph)) {}

  topology::MachineCosts costs;
  topology::Graph graph;  // whose ports' speeds change

  Status add(std::span<const Observation> observations) {
    for (const Observation& one : observations) {
      auto& schedules = schedules_[one.entry];
      if (!schedules.empty()) continue;
      auto written = write_schedules(*one.entry, world_, 0);
      if (!written.is_ok()) return written.status();
      schedules = std::move(*written);
    }
    return {};
  }

  // Calls f(one, predicted us).
  template <class F>
  Status for_each(std::span<const Observation> observations, F f) const {
    const topology::Routes routes(graph, costs, job_.sharing);
    for (const Observation& one : observations) {
      const auto us = simulate_calls(schedules_.at(one.entry), one.bytes, kElementBytes, one.calls, routes);
      if (!us.is_ok()) return us.status();
      f(one, us.value());
    }
    return {};
  }

  // The numbers on which the job depends. The cost of a byte on both sides has one number for each size, and one number
  // has the sender's share: measurements could not distinguish more. The sizes of pieces and lanes are fixed by the
  // transport.
  [[nodiscard]] std::vector<double*> numbers() {
    std::vector<double*> all;
    const auto add = [&](MessageCosts& of, Bytes& bytes) {
      all.insert(all.end(), {&of.message_us, &of.latency_us, &bytes.senders_part});
      for (double& each : bytes.us) all.push_back(&each);
    };
    const topology::Routes routes(graph, costs, job_.sharing);
    if (has_within_) {
      add(costs.within_host, within_);
      all.push_back(&costs.memory_us_per_byte);
    }
    if (has_between_) add(costs.between_hosts, between_);
    if (routes.processors() < graph.ranks.size()) all.push_back(&costs.turn_us);
    all.push_back(&costs.call_us);
    for (double& each : costs.host.combine_us_per_byte.values()) all.push_back(&each);
    all.push_back(&copy_);
    if (has_between_) all.push_back(&port_rate_);
    return all;
  }
  // Called after a change of the numbers.
  void apply() {
    if (has_within_) within_.apply(costs.within_host);
    if (has_between_) between_.apply(costs.between_hosts);
    const Bytes& moved = has_within_ ? within_ : between_;
    for (std::size_t i = 0; i < moved.us.size(); ++i) costs.host.copy_us_per_byte.values()[i] = copy_ * moved.us[i] / 2;
    port_rate_ = std::min(port_rate_, kMostRate);
    for (topology::Node& node : graph.nodes) {
      if (node.kind == topology::NodeKind::kPort && node.leads_to >= 0) node.out.gbytes_per_second = port_rate_;
    }
  }
  void begin() {
    has_within_ = world_.hosts.empty() || world_.hosts.largest() > 1;
    has_between_ = world_.hosts.size() > 1;
    within_.begin(costs.within_host);
    // From this value on, ranks that copy at the same time wait for the memory. Smaller values have no effect, so a
    // search from there would not find the limit.
    const auto most =
        static_cast<double>(world_.hosts.empty() ? world_.ranks : static_cast<int>(world_.hosts.largest()));
    const double begins = within_.us.back() / most;
    if (has_within_ && costs.memory_us_per_byte == 0) costs.memory_us_per_byte = begins;
    between_.begin(costs.between_hosts);
    port_rate_ = 1.25;
    for (const topology::Node& node : graph.nodes) {
      if (node.kind == topology::NodeKind::kPort && node.out.gbytes_per_second > 0)
        port_rate_ = node.out.gbytes_per_second;
    }
    apply();
  }
  [[nodiscard]] double port_rate() const { return port_rate_; }

 private:
  const ObservedJob& job_;
  const algorithms::World world_;
  std::map<const AlgorithmEntry*, std::vector<schedule::Schedule>> schedules_;
  bool has_within_ = false;
  bool has_between_ = false;
  Bytes within_;
  Bytes between_;
  double copy_ = 1;       // half of the cost of a byte of a message
  double port_rate_ = 0;  // GB/s
};

// Hooke and Jeeves' exploratory moves: changes each number separately, by a factor that grows after a success and
// shrinks otherwise.
class Search {
 public:
  Search(Model& model, std::span<const Observation> observations, const std::function<bool()>& enough)
      : model_(model), observations_(observations), enough_(enough) {}

  Status run() {
    auto first = loss();
    if (!first.is_ok()) return first.status();
    double best = *first;
    const std::vector<double*> numbers = model_.numbers();
    std::vector<double> steps(numbers.size(), kFirstStep);
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (steps[i] < kLastStep) continue;
        if (enough_ && enough_()) return {};
        auto better = improve(*numbers[i], steps[i], best);
        if (!better.is_ok()) return better.status();
        steps[i] *= *better ? 1.3 : 0.5;
      }
      if (std::all_of(steps.begin(), steps.end(), [](double step) { return step < kLastStep; })) break;
    }
    return {};
  }

 private:
  Result<bool> improve(double& number, double step, double& best) {
    const double before = number;
    for (const double change : {step, -step}) {
      number = std::min(kMostNumber, before * std::exp(change));
      model_.apply();
      auto changed = loss();
      if (!changed.is_ok()) return changed.status();
      if (*changed < best - kGain) {
        best = *changed;
        return true;
      }
    }
    number = before;
    model_.apply();
    return false;
  }
  Result<double> loss() const {
    double sum = 0;
    Status s = model_.for_each(observations_, [&](const Observation& one, double predicted) {
      sum += std::min(kAwayMost, std::abs(std::log(predicted / one.us)));
    });
    if (!s.is_ok()) return s;
    return sum / static_cast<double>(observations_.size());
  }

  Model& model_;
  std::span<const Observation> observations_;
  const std::function<bool()>& enough_;
};

}  // namespace

Result<FittedCosts> fit_costs(const ObservedJob& job, std::span<const Observation> observations,
                              const topology::MachineCosts& start, const std::function<bool()>& enough) {
  if (observations.empty()) return Status::invalid_argument("nothing was measured");
  Model model(job, start);
  if (Status s = model.add(observations); !s.is_ok()) return s;
  model.begin();
  // Chosen evenly from all collectives and sizes.
  std::vector<Observation> some;
  const std::size_t count = std::min(observations.size(), kMostObservations);
  for (std::size_t i = 0; i < count; ++i) some.push_back(observations[i * observations.size() / count]);
  if (Status s = Search(model, some, enough).run(); !s.is_ok()) return s;
  FittedCosts fitted{model.costs, {model.port_rate(), 0}, {}};
  Status s = model.for_each(observations,
                            [&](const Observation&, double predicted) { fitted.predicted_us.push_back(predicted); });
  if (!s.is_ok()) return s;
  return fitted;
}

}  // namespace tutti::internal::selection
