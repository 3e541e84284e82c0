#include "selection/prediction.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace tutti::internal::selection {
namespace {

using algorithms::AlgorithmEntry;
using algorithms::World;
using schedule::Schedule;
using schedule::Step;

// The number of other hosts whose schedules are compared with those of the first one. If a generator treats some hosts
// differently, these are the first ones, the last ones, or those at powers of two.
constexpr std::size_t kSomeHosts = 24;
// Among this number of steps, one may have other dependencies than its counterpart: if a range has more chunks than one
// step can have, all hosts cut it at the same chunks, but a host's own chunk may be in another part.
constexpr std::size_t kStepsForOneUnlike = 1000;
constexpr std::size_t kFewSteps = 4'000'000;

// The number of simulated calls in a row; later calls take as long as the last one.
constexpr int kSimulatedCalls = 8;

Result<std::size_t> elements_of(const schedule::Shape& shape, std::size_t bytes, std::size_t element_bytes) {
  if (!info_of(shape.collective).has_data) return std::size_t{0};
  const std::size_t elements = bytes / element_bytes / shape.blocks;
  if (elements > 0) return elements;
  return Status::invalid_argument(
      fmt::format("{} bytes are less than one element of {} bytes for each rank", bytes, element_bytes));
}

// From the second half of the simulated calls, because the first ones are not in a steady state yet. No call takes less
// than the work of the busiest rank, processor or link for it.
double us_of_call(const schedule::Timing& timing, int calls) {
  const auto simulated = static_cast<int>(timing.calls_us.size());
  if (calls <= simulated) return timing.total_us / calls;
  const int half = simulated / 2;
  double each = (timing.total_us - timing.calls_us[static_cast<std::size_t>(half) - 1]) / (simulated - half);
  for (const auto* works : {&timing.work_us, &timing.processor_us, &timing.resource_us}) {
    for (const double us : *works) each = std::max(each, us / simulated);
  }
  return (timing.total_us + (calls - simulated) * each) / calls;
}

std::size_t bytes_of(const Schedule& s) {
  return sizeof(Schedule) + s.steps.capacity() * sizeof(Step) + s.dependencies.capacity() * sizeof(std::uint32_t);
}

// Compares two ranks with the same position on their hosts.
class Comparison {
 public:
  Comparison(const Schedule& a, const Schedule& b, int per_host) : a_(a), b_(b), per_host_(per_host) {}

  // Whether their steps are the same: with the same positions on their own and on other hosts, and equal dependencies.
  [[nodiscard]] bool alike() const {
    if (a_.steps.size() != b_.steps.size() || a_.dependencies.size() != b_.dependencies.size()) return false;
    std::size_t unlike = 0;
    for (std::size_t i = 0; i < a_.steps.size(); ++i) {
      if (!same_step(a_.steps[i], b_.steps[i]) || a_.steps[i].dependencies != b_.steps[i].dependencies) return false;
      if (!like_dependencies(a_.steps[i], b_.steps[i])) ++unlike;
    }
    return unlike <= a_.steps.size() / kStepsForOneUnlike;
  }

 private:
  [[nodiscard]] bool same_step(const Step& s, const Step& t) const { return s.chunks == t.chunks && like_step(s, t); }
  [[nodiscard]] bool like_step(const Step& s, const Step& t) const {
    if (s.kind != t.kind || s.source != t.source || s.target != t.target) return false;
    if (is_local(s.kind)) return true;
    return s.peer % per_host_ == t.peer % per_host_ &&
           (s.peer / per_host_ == a_.rank / per_host_) == (t.peer / per_host_ == b_.rank / per_host_);
  }
  [[nodiscard]] bool like_dependencies(const Step& s, const Step& t) const {
    for (std::size_t i = 0; i < s.dependencies; ++i) {
      if (!like_step(a_.steps[a_.dependencies_of(s)[i]], b_.steps[b_.dependencies_of(t)[i]])) return false;
    }
    return true;
  }

  const Schedule& a_;
  const Schedule& b_;
  const int per_host_;
};

// The index of the host among the nodes around a rank, from the root on.
std::size_t depth_of_host(const topology::Graph& graph, const std::vector<std::int32_t>& nodes) {
  const auto host = std::find_if(nodes.begin(), nodes.end(), [&](std::int32_t node) {
    return graph.nodes[static_cast<std::size_t>(node)].kind == topology::NodeKind::kHost;
  });
  return static_cast<std::size_t>(host - nodes.begin());
}

class Predictor {
 public:
  Predictor(const topology::Graph& graph, const topology::MachineCosts& costs, const Question& question)
      : graph_(graph), costs_(costs), question_(question) {}

  Result<Prediction> run() {
    topology::Routes routes(graph_, costs_, question_.sharing, question_.slowed);
    world_ = world_of(graph_);
    const bool slowed = !question_.slowed.ranks.empty() || !question_.slowed.nodes.empty();
    if (!slowed && !question_.keeps_steps && !question_.sharing.one_machine && hosts_alike(graph_)) {
      auto simulated = simulate_first_host();
      if (!simulated.is_ok() || (*simulated).steps > 0) return simulated;
    }
    if (Status s = generate(0, world_.ranks); !s.is_ok()) return s;
    return simulate(routes, nullptr);
  }

 private:
  // Returns no steps if the hosts do not do the same.
  Result<Prediction> simulate_first_host() {
    const int hosts = static_cast<int>(world_.hosts.size());
    const int per_host = world_.ranks / hosts;
    if (Status s = generate(0, per_host); !s.is_ok()) return s;
    std::vector<int> others;
    const std::size_t all_steps = steps_ * static_cast<std::size_t>(hosts);
    if (all_steps <= kFewSteps) {
      for (int h = 1; h < hosts; ++h) others.push_back(h);
    } else {
      for (int h = 1; h < hosts && others.size() < kSomeHosts; h *= 2) others.insert(others.end(), {h, hosts - h});
    }
    bool alike = true;
    for (const int h : others) {
      for (int i = 0; i < per_host && alike; ++i) {
        auto other = make_schedule(*question_.entry, world_, h * per_host + i, question_.root);
        if (!other.is_ok()) return other.status();
        alike = Comparison(schedules_[static_cast<std::size_t>(i)], *other, per_host).alike();
      }
      if (!alike) break;
    }
    if (!alike) return Prediction{};
    const topology::Routes routes(graph_, costs_, question_.sharing, {}, true);
    auto simulated = simulate(routes, [per_host](int rank) { return rank % per_host; });
    // Hosts may still exchange messages in different orders.
    if (!simulated.is_ok() && simulated.status().code() == Code::kInvalidArgument) return Prediction{};
    return simulated;
  }

  Status generate(int from, int to) {
    schedules_.clear();
    steps_ = 0;
    std::size_t memory = 0;
    for (int rank = from; rank < to; ++rank) {
      auto schedule = make_schedule(*question_.entry, world_, rank, question_.root);
      if (!schedule.is_ok()) return schedule.status();
      steps_ += (*schedule).steps.size();
      memory += bytes_of(*schedule);
      schedules_.push_back(std::move(*schedule));
      // The estimate for the remaining ranks: as much for each as for the ranks so far.
      const double done = rank + 1.0 - from;
      const double all = static_cast<double>(memory + schedule::bytes_to_simulate(steps_)) * ((to - from) / done);
      if (all > static_cast<double>(question_.most_memory_bytes)) {
        return Status::invalid_argument(fmt::format("it would take about {:.1f} GiB of memory, more than {:.1f}",
                                                    all / (1 << 30),
                                                    static_cast<double>(question_.most_memory_bytes) / (1 << 30)));
      }
      if (rank % 256 == 0 && question_.interrupt) {
        if (Status s = question_.interrupt(); !s.is_ok()) return s;
      }
    }
    return {};
  }

  Result<Prediction> simulate(const topology::Routes& routes, std::function<int(int)> representative) {
    auto elements = elements_of(schedules_.front().shape, question_.bytes, question_.element_bytes);
    if (!elements.is_ok()) return elements.status();
    const schedule::Layout layout(schedules_.front().shape, *elements, question_.element_bytes);
    schedule::SimulationOptions options;
    options.calls = std::min(question_.calls, kSimulatedCalls);
    options.keeps_steps = question_.keeps_steps;
    options.interrupt = question_.interrupt;
    options.representative = std::move(representative);
    Prediction prediction;
    prediction.one_host = options.representative != nullptr;
    prediction.steps = steps_;
    auto timing = schedule::simulate(schedules_, layout, routes, options);
    if (!timing.is_ok()) return timing.status();
    prediction.timing = std::move(*timing);
    prediction.us_of_call = us_of_call(prediction.timing, question_.calls);
    return prediction;
  }

  const topology::Graph& graph_;
  const topology::MachineCosts& costs_;
  const Question& question_;
  World world_;
  std::vector<Schedule> schedules_;
  std::size_t steps_ = 0;
};

}  // namespace

World world_of(const topology::Graph& graph) {
  // The nodes around a rank that divide ranks: networks from the root on, host, package, NUMA node.
  const auto around = [&](std::int32_t node) {
    std::vector<std::int32_t> nodes;
    for (; node >= 0; node = graph.nodes[static_cast<std::size_t>(node)].parent) {
      const topology::NodeKind kind = graph.nodes[static_cast<std::size_t>(node)].kind;
      if (kind != topology::NodeKind::kGpu && kind != topology::NodeKind::kPciSwitch &&
          kind != topology::NodeKind::kPort)
        nodes.push_back(node);
    }
    return std::vector<std::int32_t>(nodes.rbegin(), nodes.rend());
  };
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> known;  // of places
  std::size_t most = 0;                                               // networks above a host
  std::size_t in_hosts = 0;                                           // levels in one
  for (const std::int32_t place : graph.ranks) {
    const auto [at, is_new] = known.try_emplace(place);
    if (!is_new) continue;
    at->second = around(place);
    const std::size_t host = depth_of_host(graph, at->second);
    most = std::max(most, host);
    in_hosts = std::max(in_hosts, at->second.size() - 1 - host);
  }
  // The divisions: networks of each depth, hosts, nodes in hosts of each depth. If a rank has no such node, the node
  // around it is used.
  std::vector<algorithms::Hosts> divisions;
  algorithms::Hosts hosts;
  for (std::size_t level = 0; level <= most + in_hosts; ++level) {
    algorithms::Hosts::Lists lists;
    std::unordered_map<std::int32_t, std::size_t> numbers;  // by node
    for (std::size_t rank = 0; rank < graph.ranks.size(); ++rank) {
      const std::vector<std::int32_t>& nodes = known.at(graph.ranks[rank]);
      const std::size_t host = depth_of_host(graph, nodes);
      const std::size_t depth = level < most ? std::min(level, host) : host + (level - most);
      const auto [at, is_new] = numbers.try_emplace(nodes[std::min(depth, nodes.size() - 1)], lists.size());
      if (is_new) lists.emplace_back();
      lists[at->second].push_back(static_cast<int>(rank));
    }
    divisions.emplace_back(std::move(lists));
    if (level == most && divisions.back().size() > 1) hosts = divisions.back();
  }
  return {static_cast<int>(graph.ranks.size()), std::move(hosts), algorithms::Hierarchy(std::move(divisions))};
}

Result<std::vector<Schedule>> write_schedules(const AlgorithmEntry& entry, const World& world, int root) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < world.ranks; ++rank) {
    auto schedule = make_schedule(entry, world, rank, root);
    if (!schedule.is_ok()) return schedule.status();
    schedules.push_back(std::move(*schedule));
  }
  return schedules;
}

Result<double> simulate_calls(std::span<const Schedule> schedules, std::size_t bytes, std::size_t element_bytes,
                              int calls, const schedule::Interconnect& net, double call_bytes) {
  const schedule::Shape& shape = schedules.front().shape;
  auto elements = elements_of(shape, bytes, element_bytes);
  if (!elements.is_ok()) return elements.status();
  schedule::SimulationOptions options;
  options.calls = std::min(calls, kSimulatedCalls);
  options.call_bytes = call_bytes;
  const auto timing = schedule::simulate(schedules, schedule::Layout(shape, *elements, element_bytes), net, options);
  if (!timing.is_ok()) return timing.status();
  return us_of_call(timing.value(), calls);
}

Result<Prediction> predict(const topology::Graph& graph, const topology::MachineCosts& costs,
                           const Question& question) {
  return Predictor(graph, costs, question).run();
}

}  // namespace tutti::internal::selection
