#include "selection/tuning.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/json_file.h"
#include "base/version.h"
#include "selection/costs_json.h"
#include "topology/detect.h"

namespace tutti::internal::selection {
namespace {

constexpr std::int64_t kMostRanks = 1 << 22;
constexpr double kAlikeRanksPerCpu = 0.25;

std::vector<TunedChoice> read_choices(JsonReading& reading, const JsonValue& list, Collective collective) {
  std::vector<TunedChoice> choices;
  if (!reading.is_list(list)) return choices;
  for (const JsonValue& one : list.items) {
    if (!reading.is_object(one)) return choices;
    reading.allow(one, {"from_bytes", "algorithm"});
    reading.require(one, {"from_bytes", "algorithm"});
    TunedChoice choice;
    choice.from_bytes = static_cast<std::size_t>(reading.integer(one, "from_bytes", 0, INT64_MAX, 0));
    const bool measured = reading.status().is_ok() && one.find("algorithm")->kind != JsonValue::Kind::kNull;
    if (measured) choice.algorithm = reading.text(one, "algorithm", "");
    if (!reading.status().is_ok()) return choices;
    const bool first = choices.empty();
    if (first ? choice.from_bytes != 0 : choice.from_bytes <= choices.back().from_bytes) {
      reading.fail(*one.find("from_bytes"), first ? "is not 0; the first choice must begin at 0"
                                                  : "is not larger than that of the choice before");
    }
    if (measured && algorithms::find(collective, choice.algorithm) == nullptr) {
      reading.fail(*one.find("algorithm"),
                   fmt::format("{} has no algorithm \"{}\"", name_of(collective), choice.algorithm));
    }
    choices.push_back(std::move(choice));
  }
  if (choices.empty()) reading.fail(list, "is empty");
  return choices;
}

TunedJob read_job(JsonReading& reading, const JsonValue& object) {
  TunedJob job;
  if (!reading.is_object(object)) return job;
  reading.allow(object, {"hosts", "transports", "ranks_per_cpu", "choices", "costs", "port_gbytes_per_second"});
  reading.require(object, {"hosts", "transports", "choices"});
  for (const JsonValue& host : reading.list(object, "hosts")) {
    if (host.kind != JsonValue::Kind::kInteger || host.integer < 1 || host.integer > kMostRanks) {
      reading.fail(host, fmt::format("is not a number of ranks from 1 to {}", kMostRanks));
      return job;
    }
    job.kind.hosts.push_back(static_cast<int>(host.integer));
  }
  std::sort(job.kind.hosts.begin(), job.kind.hosts.end(), std::greater<>());
  job.kind.transports = reading.text(object, "transports", "");
  job.kind.ranks_per_cpu = reading.number(object, "ranks_per_cpu", 1, 1e6, 1);
  if (const JsonValue* costs = reading.object(object, "costs"); costs != nullptr) {
    job.costs = read_costs(reading, *costs);
  }
  job.port_gbytes_per_second = reading.number(object, "port_gbytes_per_second", 0, 1e6, 0);
  const JsonValue* choices = reading.object(object, "choices");
  for (std::size_t i = 0; choices != nullptr && i < choices->names.size(); ++i) {
    const auto collective = collective_named(choices->names[i]);
    if (!collective) {
      reading.fail(choices->items[i], "is not a collective");
      return job;
    }
    job.choices[*collective] = read_choices(reading, choices->items[i], *collective);
  }
  return job;
}

Result<Tuning> read_tuning_of(const JsonFile& file, bool of_here) {
  JsonReading reading(file);
  const JsonValue& root = *file.root;
  reading.allow(root, {"format", "version", "machine", "library", "jobs"});
  reading.require(root, {"machine", "library", "jobs"});
  Tuning tuning;
  tuning.machine = reading.text(root, "machine", "");
  tuning.library = reading.text(root, "library", "");
  const auto compare = [&](const char* name, const std::string& found, const std::string& here) {
    if (of_here && reading.status().is_ok() && found != here) {
      reading.fail(*root.find(name),
                   fmt::format("is \"{}\", but here it is \"{}\". Measure again with tutti tune", found, here));
    }
  };
  compare("machine", tuning.machine, machine_name());
  compare("library", tuning.library, library_version());
  for (const JsonValue& job : reading.list(root, "jobs")) tuning.jobs.push_back(read_job(reading, job));
  if (!reading.status().is_ok()) return reading.status().with_code(Code::kInvalidUsage);
  return tuning;
}

}  // namespace

JobKind kind_of(const algorithms::World& world, const std::string& within, const std::string& between,
                double ranks_per_cpu) {
  JobKind kind;
  if (world.hosts.empty()) kind.hosts = {world.ranks};
  for (const auto& host : world.hosts) kind.hosts.push_back(static_cast<int>(host.size()));
  std::sort(kind.hosts.begin(), kind.hosts.end(), std::greater<>());
  const bool some_within = kind.hosts.front() > 1;
  const bool some_between = kind.hosts.size() > 1;
  if (some_within) kind.transports = within;
  if (some_between) kind.transports += (some_within ? "+" : "") + between;
  kind.ranks_per_cpu = std::max(1.0, ranks_per_cpu);
  return kind;
}

const algorithms::AlgorithmEntry* TunedJob::choose(Collective collective, std::size_t bytes) const {
  const auto known = choices.find(collective);
  if (known == choices.end()) return nullptr;
  const std::vector<TunedChoice>& all = known->second;
  const auto behind = std::upper_bound(all.begin(), all.end(), bytes,
                                       [](std::size_t b, const TunedChoice& one) { return b < one.from_bytes; });
  if (behind == all.begin() || std::prev(behind)->algorithm.empty()) return nullptr;
  return algorithms::find(collective, std::prev(behind)->algorithm);
}

const TunedJob* Tuning::find(const JobKind& kind) const {
  const TunedJob* nearest = nullptr;
  double least = kAlikeRanksPerCpu;
  for (const TunedJob& job : jobs) {
    if (job.kind.hosts != kind.hosts || job.kind.transports != kind.transports) continue;
    const double apart = std::abs(job.kind.ranks_per_cpu / kind.ranks_per_cpu - 1);
    if (apart > least || (nearest != nullptr && apart == least)) continue;
    nearest = &job;
    least = apart;
  }
  return nearest;
}

const TunedJob* Tuning::nearest_costs(const JobKind& kind) const {
  const auto ranks_of = [](const JobKind& of) { return std::accumulate(of.hosts.begin(), of.hosts.end(), 0.0); };
  const auto apart = [](double a, double b) { return std::max(a / b, b / a); };
  // The same hosts first, then by load, then by their number and their ranks.
  const auto distance = [&](const TunedJob& job) {
    return std::tuple(job.kind.hosts != kind.hosts, apart(job.kind.ranks_per_cpu, kind.ranks_per_cpu),
                      apart(static_cast<double>(job.kind.hosts.size()), static_cast<double>(kind.hosts.size())),
                      apart(ranks_of(job.kind), ranks_of(kind)));
  };
  const TunedJob* nearest = nullptr;
  for (const TunedJob& job : jobs) {
    if (!job.costs.has_value() || job.kind.transports != kind.transports) continue;
    if (nearest == nullptr || distance(job) < distance(*nearest)) nearest = &job;
  }
  return nearest;
}

std::string text_of(const JobKind& kind) {
  const int ranks = std::accumulate(kind.hosts.begin(), kind.hosts.end(), 0);
  const std::size_t hosts = kind.hosts.size();
  return fmt::format("{} rank{} on {} host{} over {}", ranks, ranks == 1 ? "" : "s", hosts, hosts == 1 ? "" : "s",
                     kind.transports.empty() ? "memory" : kind.transports);
}

std::string machine_name() {
  const topology::Machine& machine = topology::this_machine();
  const std::size_t processors = machine.processors.count();
  return fmt::format("{}, {} processor{}", machine.processor_model.empty() ? "unknown" : machine.processor_model,
                     processors, processors == 1 ? "" : "s");
}

Result<Tuning> read_tuning(const std::string& path) {
  auto file = read_json_file(path, kTuningFormat, kTuningVersion);
  if (!file.is_ok()) return file.status().with_code(Code::kInvalidUsage);
  return read_tuning_of(*file, true);
}

Result<Tuning> parse_tuning(const std::string& text, const std::string& name) {
  auto file = parse_json(text, name, kTuningFormat, kTuningVersion);
  if (!file.is_ok()) return file.status().with_code(Code::kInvalidUsage);
  return read_tuning_of(*file, false);
}

std::string to_json(const Tuning& tuning) {
  using Json = nlohmann::ordered_json;
  Json all = {{"format", kTuningFormat},
              {"version", kTuningVersion},
              {"machine", tuning.machine},
              {"library", tuning.library},
              {"jobs", Json::array()}};
  for (const TunedJob& job : tuning.jobs) {
    Json choices = Json::object();
    for (const auto& [collective, list] : job.choices) {
      for (const TunedChoice& one : list) {
        Json choice = {{"from_bytes", one.from_bytes}, {"algorithm", one.algorithm}};
        if (one.algorithm.empty()) choice["algorithm"] = nullptr;
        choices[name_of(collective)].push_back(std::move(choice));
      }
    }
    Json one = {{"hosts", job.kind.hosts},
                {"transports", job.kind.transports},
                {"ranks_per_cpu", job.kind.ranks_per_cpu},
                {"choices", std::move(choices)}};
    if (job.costs.has_value()) one["costs"] = json_of(*job.costs);
    if (job.port_gbytes_per_second > 0) one["port_gbytes_per_second"] = job.port_gbytes_per_second;
    all["jobs"].push_back(std::move(one));
  }
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tutti::internal::selection
