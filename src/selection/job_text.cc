#include "selection/job_text.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_file.h"
#include "selection/costs_json.h"
#include "topology/graph_json.h"

namespace tutti::internal::selection {
namespace {

constexpr const char* kFormat = "tutti job";
constexpr int kVersion = 1;
constexpr const char* kName = "the job of the trace";
constexpr int kMostCores = 1 << 20;

}  // namespace

// The first line has the costs; the graph's own format follows.
std::string text_of(const JobModel& model) {
  const JobCosts& costs = model.costs();
  const nlohmann::ordered_json first = {{"format", kFormat},
                                        {"version", kVersion},
                                        {"cores", costs.sharing.cores},
                                        {"one_machine", costs.sharing.one_machine},
                                        {"costs", json_of(costs.machine)}};
  return first.dump() + "\n" + topology::to_json(model.graph());
}

Result<DescribedJob> read_job(const std::string& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return Status::invalid_argument("the trace has no description of the job");
  auto first = parse_json(text.substr(0, end), kName, kFormat, kVersion);
  if (!first.is_ok()) return first.status();
  auto second = parse_json(text.substr(end + 1), kName, topology::kTopologyFormat, topology::kTopologyVersion);
  if (!second.is_ok()) return second.status();
  DescribedJob job;
  JsonReading reading(*first);
  const JsonValue& root = *first->root;
  reading.require(root, {"costs"});
  job.sharing.cores = static_cast<int>(reading.integer(root, "cores", 0, kMostCores, 0));
  job.sharing.one_machine = reading.flag(root, "one_machine", false);
  if (const JsonValue* costs = reading.object(root, "costs"); costs != nullptr) job.costs = read_costs(reading, *costs);
  if (!reading.status().is_ok()) return reading.status();
  auto graph = topology::graph_of(*second);
  if (!graph.is_ok()) return graph.status();
  job.graph = std::move(*graph);
  return job;
}

}  // namespace tutti::internal::selection
