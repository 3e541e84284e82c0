// Readers of user-written files with arbitrary input: no input may crash them, or take long.
//
// The first byte selects the reader. A file that is read is written, and read again: the result must be the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/program.h"
#include "schedule/verify.h"
#include "selection/tuning.h"
#include "topology/graph_json.h"
#include "topology/nccl_xml.h"

using namespace tutti::internal;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

Result<topology::Graph> graph_of_text(const std::string& text) {
  auto file = parse_json(text, "file", topology::kTopologyFormat, topology::kTopologyVersion);
  if (!file.is_ok()) return file.status();
  return topology::graph_of(*file);
}

void read_graph(const Result<topology::Graph>& graph) {
  if (!graph.is_ok() || graph.value().nodes.size() > 5000) return;
  require(graph.value().check().is_ok());
  const auto again = graph_of_text(to_json(graph.value()));
  require(again.is_ok());
  require(again.value().nodes.size() == graph.value().nodes.size());
}

void read_tuning(const std::string& text) {
  const auto tuning = selection::parse_tuning(text, "file");
  if (!tuning.is_ok()) return;
  const auto again = selection::parse_tuning(to_json(tuning.value()), "file");
  require(again.is_ok() && again.value() == tuning.value());
}

void read_program(const std::string& text) {
  auto file = parse_json(text, "file", algorithms::kScheduleFormat, algorithms::kScheduleVersion);
  if (!file.is_ok()) return;
  const auto program = algorithms::Program::parse(std::move(*file));
  if (!program.is_ok()) return;
  for (const algorithms::World& world :
       {algorithms::World{1, {}}, {2, {}}, {3, {}}, {2, {{0}, {1}}}, {3, {{0, 2}, {1}}}, {4, {{0, 1}, {2, 3}}}}) {
    if (!program.value()->serves(world)) continue;
    std::vector<schedule::Schedule> schedules;
    for (int rank = 0; rank < world.ranks; ++rank) {
      auto schedule = program.value()->write(world, rank, 0);
      if (!schedule.is_ok()) return;
      if (schedule.value().steps.size() > 2000) return;
      schedules.push_back(std::move(*schedule));
    }
    (void)schedule::verify(schedules, program.value()->order()).is_ok();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: read_graph(graph_of_text(text)); break;
    case 1: read_tuning(text); break;
    case 2: read_program(text); break;
    case 3: read_graph(topology::parse_nccl_topology(text, "file")); break;
    default: break;
  }
  return 0;
}
