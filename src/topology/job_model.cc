#include "topology/job_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "topology/cluster.h"
#include "topology/prediction.h"

namespace tutti::internal::topology {
namespace {

using algorithms::AlgorithmEntry;
using algorithms::World;

constexpr double kNever = std::numeric_limits<double>::infinity();
// Fitted together with the costs of shared memory (transport/shm/costs.cc).
const LocalCosts kHost = {PerByte({5.2e-5, 5e-7, 9e-6, 8.8e-5}), PerByte({7.8e-5, 3.5e-5, 4.2e-5, 6.4e-5})};
// Of jobs with more than are simulated: each of their ranks does this, and has the memory for it. A simulation takes
// both with the square of their number.
constexpr int kSmallerRanks = 32;
constexpr int kManyHosts = 8;  // with up to as many ranks each
// Of an algorithm that somebody has brought.
constexpr std::size_t kMostSteps = 200'000;

// Of small vectors it matters how calls follow each other; of many ranks what a simulation takes.
int calls_of(int ranks, std::size_t bytes) {
  if (ranks > 16) return 1;
  return bytes <= 65536 ? 100 : 4;
}

// The largest smaller job, or one with a half or a quarter (`part` 1, 2, 4) of its ranks. Of many hosts fewer, with so
// many ranks each; of few hosts and of one those with fewer ranks.
World smaller(const World& world, int part) {
  const int hosts = std::max(1, static_cast<int>(world.hosts.size()));
  const int size = world.hosts.empty() ? world.ranks : static_cast<int>(world.hosts.largest());
  int few = hosts;
  int fewer = std::max(1, std::min(size, kSmallerRanks / hosts) / part);
  if (hosts >= kManyHosts) {
    fewer = std::min(size, kManyHosts);
    few = std::max(kManyHosts, std::min(hosts, kSmallerRanks / fewer)) / part;
  }
  if (few == 1) return {fewer, {}};
  algorithms::Hosts::Lists lists;
  int next = 0;
  for (int h = 0; h < few; ++h) {
    lists.emplace_back();
    for (int i = 0; i < fewer; ++i) lists.back().push_back(next++);
  }
  return {next, std::move(lists)};
}

// What so many further doublings add, where the last two have added these: each adds as many times what the one before
// has as the last one did. So it is for constants, logarithms, powers of the number of ranks, and sums of a constant
// and one of these.
double added(double before_last, double last, double doublings) {
  constexpr double kMostGrowth = 2;  // nothing grows faster than the number of ranks
  if (last <= 0) return 0;
  const double growth = before_last > 0 ? std::min(kMostGrowth, last / before_last) : 1;
  if (std::abs(growth - 1) < 1e-6) return last * doublings;
  return last * growth * (std::pow(growth, doublings) - 1) / (growth - 1);
}

struct Registry {
  Mutex mutex;
  std::vector<std::weak_ptr<const JobModel>> models TUTTI_GUARDED_BY(mutex);
};
Registry& registry() {
  static auto* const all = new Registry();
  return *all;
}

}  // namespace

struct JobModel::Simulated {
  World world;
  Graph graph;
  std::unique_ptr<Routes> routes;
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
  costs.sharing.one_machine = one_machine && world.hosts.size() > 1;
  // Beside other jobs, ranks that are alone on a machine have less of it, but no other rank to wait for.
  if (ranks_per_cpu > 1 && most > 1)
    costs.sharing.cores = std::max(1, static_cast<int>(std::lround(most / ranks_per_cpu)));
  return costs;
}

void use_fitted(const TunedJob* fitted, JobCosts& costs) {
  if (fitted == nullptr) return;
  const MessageCosts devices = costs.machine.between_devices;
  const LocalCosts device = costs.machine.device;
  costs.machine = *fitted->costs;
  costs.machine.between_devices = devices;
  costs.machine.device = device;
  costs.port = {fitted->port_gbytes_per_second, 0};
}

std::shared_ptr<const JobModel> JobModel::of(const World& world, const JobCosts& costs) {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  auto& models = all.models;
  models.erase(std::remove_if(models.begin(), models.end(), [](const auto& one) { return one.expired(); }),
               models.end());
  for (const auto& one : models) {
    auto model = one.lock();
    if (model != nullptr && model->costs_ == costs && model->world_.ranks == world.ranks &&
        model->world_.hosts == world.hosts) {
      return model;
    }
  }
  auto model = std::make_shared<const JobModel>(world, costs);
  models.push_back(model);
  return model;
}

JobModel::JobModel(const World& world, const JobCosts& costs) : world_(world), costs_(costs) {}
JobModel::~JobModel() = default;

std::unique_ptr<JobModel::Simulated> JobModel::make(const World& world) const {
  auto job = std::make_unique<Simulated>();
  job->world = world;
  if (job->world.hosts.size() == 1) job->world.hosts = {};
  job->graph = graph_of(job->world, costs_.port);
  Sharing sharing = costs_.sharing;
  if (sharing.cores > 0 && world.ranks < world_.ranks) {
    const auto most = [&](const World& w) {
      return sharing.one_machine || w.hosts.empty() ? static_cast<double>(w.ranks)
                                                    : static_cast<double>(w.hosts.largest());
    };
    sharing.cores = std::max(1, static_cast<int>(std::lround(sharing.cores * most(world) / most(world_))));
  }
  job->routes = std::make_unique<Routes>(job->graph, costs_.machine, sharing);
  return job;
}

double JobModel::simulate(const Simulated& job, const AlgorithmEntry& entry, std::size_t bytes) const {
  if (!entry.supports(job.world)) return kNever;
  std::vector<schedule::Schedule> schedules;
  std::size_t steps = 0;
  for (int rank = 0; rank < job.world.ranks; ++rank) {
    auto schedule = make_schedule(entry, job.world, rank, 0);
    if (!schedule.is_ok()) return kNever;
    steps += (*schedule).steps.size();
    if (steps > kMostSteps) return kNever;
    schedules.push_back(std::move(*schedule));
  }
  // No rank is without an element.
  const std::size_t least = schedules.front().shape.blocks;
  const auto us = simulate_calls(schedules, std::max(bytes, least), 1, calls_of(world_.ranks, bytes), *job.routes);
  return us.is_ok() ? us.value() : kNever;
}

double JobModel::predict_us(const AlgorithmEntry& entry, std::size_t bytes) const {
  if (world_.ranks == 1) return 0;
  const MutexLock lock(mutex_);
  const auto [known, is_new] = known_.try_emplace({&entry, bytes}, kNever);
  if (!is_new) return known->second;
  const bool all = world_.ranks <= kSimulatedRanks;
  if (jobs_[0] == nullptr) {
    jobs_[0] = make(all ? world_ : smaller(world_, 1));
    if (!all) jobs_[1] = make(smaller(world_, 2));
    if (!all) jobs_[2] = make(smaller(world_, 4));
  }
  const double us = simulate(*jobs_[0], entry, bytes);
  if (all || us == kNever) return known->second = us;
  const double half = simulate(*jobs_[1], entry, bytes);
  const double quarter = simulate(*jobs_[2], entry, bytes);
  if (half == kNever || quarter == kNever) return kNever;
  const double doublings = std::log2(world_.ranks / static_cast<double>(jobs_[0]->world.ranks));
  return known->second = us + added(half - quarter, us - half, doublings);
}

}  // namespace tutti::internal::topology
