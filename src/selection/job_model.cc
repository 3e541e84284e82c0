#include "selection/job_model.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/first_use.h"
#include "os/fork.h"
#include "selection/prediction.h"
#include "topology/cluster.h"

namespace tutti::internal::selection {
namespace {

using algorithms::AlgorithmEntry;
using algorithms::Hierarchy;
using algorithms::World;

constexpr double kNever = std::numeric_limits<double>::infinity();
// Fitted together with the costs of shared memory (transport/shm/costs.cc).
const topology::LocalCosts kHost = {PerByte({5.36e-05, 7.67e-06, 8.31e-06, 1.95e-05}),
                                    PerByte({5.03e-05, 2.86e-05, 3e-05, 5.23e-05})};
constexpr double kMemoryUsPerByte = 2e-5;  // for a host with this number of processors; with more processors it is
                                           // faster in proportion:
constexpr double kProcessorsOfMemory = 16;
// Limit for larger jobs, in which each rank simulates and needs the memory. Time and memory grow with the square of
// this number.
constexpr int kSmallerRanks = 32;
constexpr int kManyHosts = 8;
constexpr int kMostOfHost = 16;  // ranks; with more, the sharing of ports is unknown
// For a user-defined algorithm.
constexpr std::size_t kMostSteps = 200'000;
// For jobs with more than kSimulatedRanks that are simulated completely: trees of thousands of ranks.
constexpr std::size_t kMostStepsOfMany = 4'000;

// For small vectors the overlap of calls matters; for many ranks, the cost of the simulation.
int calls_of(int ranks, std::size_t bytes) {
  if (ranks > 16) return 1;
  if (bytes > 65536) return 4;
  return ranks <= 8 ? 100 : 8;
}

// `count` of them, evenly spread.
template <class T>
std::vector<T> some_of(const std::vector<T>& all, std::size_t count) {
  std::vector<T> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
  return some;
}

// The ranks of a smaller job, or about a half or a quarter of it (`part` 1, 2, 4). It has fewer hosts, or fewer ranks
// on each, depending on which exceeds the limits. If hosts have several ranks, so do those of the smaller job: one for
// each port, two for each group in a host. Ascending.
std::vector<int> smaller(const World& world, int ports, int part) {
  const int hosts = std::max(1, static_cast<int>(world.hosts.size()));
  const int size = world.hosts.empty() ? world.ranks : static_cast<int>(world.hosts.largest());
  const Hierarchy groups = world.groups();
  const int in_host = groups.empty() ? 1 : static_cast<int>(groups[groups.size() - 1].size()) / hosts;
  const int least = std::min({size, kMostOfHost, std::max({2, ports, 2 * in_host})});
  int fewer = std::min(size, hosts < kManyHosts ? std::max(2, kSmallerRanks / hosts) : kMostOfHost);
  int few = std::min(hosts, std::max(kManyHosts, kSmallerRanks / fewer));
  if (hosts >= kManyHosts && hosts * fewer >= few * size) {
    few /= part;
    fewer = std::max(fewer, least);
  } else {
    fewer = std::min(size, std::max(fewer, 4 * least)) / part;
    fewer = std::max(std::min(size, 2), fewer);
  }
  if (world.hosts.empty()) {
    std::vector<int> all(static_cast<std::size_t>(world.ranks));
    std::iota(all.begin(), all.end(), 0);
    return some_of(all, static_cast<std::size_t>(fewer));
  }
  // Hosts with as many ranks as that, if there are enough.
  std::vector<std::size_t> large;
  for (std::size_t h = 0; h < world.hosts.size(); ++h) {
    if (world.hosts[h].size() >= static_cast<std::size_t>(fewer)) large.push_back(h);
  }
  if (large.size() < static_cast<std::size_t>(few)) {
    large.resize(world.hosts.size());
    std::iota(large.begin(), large.end(), std::size_t{0});
  }
  std::vector<int> ranks;
  for (const std::size_t h : some_of(large, static_cast<std::size_t>(few))) {
    const std::vector<int> here =
        some_of(world.hosts[h], std::min(world.hosts[h].size(), static_cast<std::size_t>(fewer)));
    ranks.insert(ranks.end(), here.begin(), here.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// For three jobs: the logarithms (base 2) of their numbers of ranks, and their times; ascending.
struct Growth {
  std::array<double, 3> doublings{};
  std::array<double, 3> us{};

  // The time added until `until` doublings: each doubling adds the time of the one before, times the last observed
  // ratio. This is exact for constants, logarithms, powers of the number of ranks, and sums of a constant and one of
  // these. Uses only multiplication, which gives the same result on all machines.
  [[nodiscard]] double added(double until) const {
    constexpr double kMostGrowth = 2.5;  // little more than the number of ranks
    const double before = (us[1] - us[0]) / (doublings[1] - doublings[0]);
    double each = (us[2] - us[1]) / (doublings[2] - doublings[1]);
    if (each <= 0) return 0;
    const double growth = before > 0 ? std::min(kMostGrowth, each / before) : 1;
    double sum = 0;
    for (double left = until - doublings[2]; left > 0; left -= 1) {
      each *= growth;
      sum += each * std::min(1.0, left);
    }
    return sum;
  }
};
// Chunks or blocks, whichever are more.
double parts_of(const AlgorithmEntry& entry, const World& world) {
  const schedule::Shape shape = entry.shape(world, 0);
  return std::max({1.0, static_cast<double>(shape.chunks), static_cast<double>(shape.blocks)});
}

struct KnownModels {
  ForkMutex mutex;
  // A forked child does not use its parent's models: a thread that does not exist in the child may have been using
  // them.
  std::vector<std::pair<pid_t, std::weak_ptr<const JobModel>>> models TUTTI_GUARDED_BY(mutex);
};
KnownModels& registry() {
  static constinit FirstUse<KnownModels, Surplus::kKept> all;
  return all.get();
}

}  // namespace

struct JobModel::Simulated {
  World world;
  topology::Graph graph;
  std::unique_ptr<topology::Routes> routes;
};

JobCosts default_costs(const World& world, const TransportCosts& within_host, const TransportCosts& between_hosts,
                       double ranks_per_cpu, bool one_machine) {
  JobCosts costs;
  costs.machine.within_host = within_host.messages;
  costs.machine.between_hosts = between_hosts.messages;
  costs.machine.host = kHost;
  // Of those that the job uses.
  const bool between = world.hosts.size() > 1;
  const bool within = !between || world.hosts.largest() > 1;
  for (const TransportCosts* used : {within ? &within_host : nullptr, between ? &between_hosts : nullptr}) {
    if (used == nullptr) continue;
    costs.machine.turn_us = std::max(costs.machine.turn_us, used->turn_us);
    costs.machine.call_us = std::max(costs.machine.call_us, used->call_us);
  }
  if (between && !one_machine) costs.port = {between_hosts.port_gbytes_per_second, between_hosts.port_latency_us};
  const bool together = one_machine || world.hosts.empty();
  const auto most = together ? static_cast<double>(world.ranks) : static_cast<double>(world.hosts.largest());
  const double processors = most / std::max(1.0, ranks_per_cpu);
  costs.machine.memory_us_per_byte = kMemoryUsPerByte * std::min(1.0, kProcessorsOfMemory / processors);
  costs.sharing.one_machine = one_machine && world.hosts.size() > 1;
  // Beside other jobs, a single rank on a machine gets less processor time, but waits for no other rank.
  if (ranks_per_cpu > 1 && most > 1)
    costs.sharing.cores = std::max(1, static_cast<int>(std::lround(most / ranks_per_cpu)));
  return costs;
}

void use_fitted(const TunedJob* fitted, JobCosts& costs) {
  if (fitted == nullptr) return;
  const MessageCosts devices = costs.machine.between_devices;
  const topology::LocalCosts device = costs.machine.device;
  costs.machine = *fitted->costs;
  costs.fitted_to = fitted->kind;
  costs.machine.between_devices = devices;
  costs.machine.device = device;
  if (fitted->port_gbytes_per_second <= 0) return;
  costs.port = {fitted->port_gbytes_per_second, 0};
  costs.measured = true;
}

void set_ports(topology::Graph& graph, const JobCosts& costs) {
  for (topology::Node& node : graph.nodes) {
    if (node.kind == topology::NodeKind::kPort && node.leads_to >= 0 &&
        (costs.measured || node.out == topology::Speed{}))
      node.out = costs.port;
  }
}

std::shared_ptr<const JobModel> JobModel::of(topology::Graph graph, const JobCosts& costs) {
  set_ports(graph, costs);
  KnownModels& all = registry();
  const MutexLock lock(all.mutex);
  auto& models = all.models;
  models.erase(std::remove_if(models.begin(), models.end(), [](const auto& one) { return one.second.expired(); }),
               models.end());
  const pid_t process = ::getpid();
  for (const auto& [owner, one] : models) {
    if (owner != process) continue;
    auto model = one.lock();
    if (model != nullptr && model->costs_ == costs && model->graph_ == graph) return model;
  }
  auto model = std::make_shared<const JobModel>(std::move(graph), costs);
  models.emplace_back(process, model);
  return model;
}

namespace {

topology::Graph with_ports(topology::Graph graph, const JobCosts& costs) {
  set_ports(graph, costs);
  return graph;
}

}  // namespace

JobModel::JobModel(topology::Graph graph, const JobCosts& costs)
    : graph_(with_ports(std::move(graph), costs)),
      world_(world_of(graph_)),
      ports_(least_ports(graph_)),
      costs_(costs) {}
JobModel::~JobModel() = default;

std::unique_ptr<JobModel::Simulated> JobModel::make(const std::vector<int>& ranks) const {
  auto job = std::make_unique<Simulated>();
  job->graph = ranks.empty() ? graph_ : part_of(graph_, ranks);
  job->world = world_of(job->graph);
  // With fewer ranks, the shared resources of a host are reduced in proportion.
  topology::Sharing sharing = costs_.sharing;
  topology::MachineCosts machine = costs_.machine;
  if (job->world.ranks < world_.ranks) {
    const auto most = [&](const World& w) {
      return sharing.one_machine || w.hosts.empty() ? static_cast<double>(w.ranks)
                                                    : static_cast<double>(w.hosts.largest());
    };
    const double part = most(job->world) / most(world_);
    if (sharing.cores > 0) sharing.cores = std::max(1, static_cast<int>(std::lround(sharing.cores * part)));
    machine.memory_us_per_byte /= part;
  }
  job->routes = std::make_unique<topology::Routes>(job->graph, machine, sharing);
  return job;
}

// The schedules of all ranks; empty if that is not possible, or if they have more steps.
std::vector<schedule::Schedule> JobModel::write(const Simulated& job, const AlgorithmEntry& entry,
                                                std::size_t most_steps) {
  std::vector<schedule::Schedule> schedules;
  std::size_t steps = 0;
  for (int rank = 0; rank < job.world.ranks; ++rank) {
    auto schedule = make_schedule(entry, job.world, rank, 0);
    if (!schedule.is_ok()) return {};
    steps += (*schedule).steps.size();
    if (steps > most_steps) return {};
    schedules.push_back(std::move(*schedule));
  }
  return schedules;
}

double JobModel::simulate(const Simulated& job, const std::vector<schedule::Schedule>& schedules, std::size_t bytes,
                          std::size_t call_bytes) const {
  // No rank is without an element.
  const std::size_t least = schedules.front().shape.blocks;
  const auto us = simulate_calls(schedules, std::max(bytes, least), 1, calls_of(world_.ranks, bytes), *job.routes,
                                 static_cast<double>(call_bytes));
  return us.is_ok() ? us.value() : kNever;
}

double JobModel::predict_us(const AlgorithmEntry& entry, std::size_t bytes) const {
  if (world_.ranks == 1) return 0;
  const MutexLock lock(mutex_);
  const std::pair<const AlgorithmEntry*, std::size_t> key{&entry, bytes};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  return known_[key] = predict(entry, bytes);
}

double JobModel::predict(const AlgorithmEntry& entry, std::size_t bytes) const {
  if (whole_ == nullptr) whole_ = make({});
  auto all = write(*whole_, entry, world_.ranks <= kSimulatedRanks ? kMostSteps : kMostStepsOfMany);
  if (!all.empty()) return simulate(*whole_, all, bytes, bytes);
  if (world_.ranks <= kSimulatedRanks) return kNever;
  Growth growth;
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    if (jobs_[i] == nullptr) jobs_[i] = make(smaller(world_, ports_, 4 >> i));
    if (!entry.supports(jobs_[i]->world)) return kNever;
    const auto schedules = write(*jobs_[i], entry, kMostSteps);
    if (schedules.empty()) return kNever;
    // If the algorithm cuts the vector into blocks, the smaller job uses blocks of the same length.
    const double part = parts_of(entry, jobs_[i]->world) / parts_of(entry, world_);
    const auto as_long = static_cast<std::size_t>(static_cast<double>(bytes) * std::min(1.0, part));
    growth.us[i] = simulate(*jobs_[i], schedules, as_long, bytes);
    if (growth.us[i] == kNever) return kNever;
    growth.doublings[i] = log2_by_parts(jobs_[i]->world.ranks);
  }
  return growth.us.back() + growth.added(log2_by_parts(world_.ranks));
}

}  // namespace tutti::internal::selection
