#include "trace.h"

#include <fmt/core.h>

#include <cstddef>
#include <cstdint>

#include "tools/trace/trace_events.h"

namespace tutti::internal::tools {
namespace {

using schedule::Step;

// Lanes of a rank are rows of their own: what is sent and what is received overlap.
constexpr int kRowsOfRank = 3;
int row_of(const Step& step) {
  return is_local(step.kind) ? 2 : is_recv(step.kind) ? 1 : 0;
}
constexpr const char* kRows[kRowsOfRank] = {"sends", "receives", "local"};

}  // namespace

Status write_timeline(const std::string& path, const algorithms::AlgorithmEntry& entry, const topology::Graph& graph,
                      const algorithms::Hosts& hosts, int root, const schedule::Timing& timing) {
  algorithms::World world{static_cast<int>(graph.ranks.size()), hosts};
  if (hosts.size() == 1) world.hosts = {};
  TraceEvents events(path);
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    const std::int32_t place = graph.host_of(graph.ranks[static_cast<std::size_t>(hosts[h].front())]);
    events.name_process(h, graph.path(place));
    for (const int rank : hosts[h]) {
      const auto schedule = make_schedule(entry, world, rank, root);
      if (!schedule.is_ok()) return schedule.status();
      for (int row = 0; row < kRowsOfRank; ++row) {
        events.name_row(h, rank * kRowsOfRank + row, fmt::format("rank {} {}", rank, kRows[row]));
      }
      const auto& times = timing.steps[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < times.size(); ++i) {
        const Step& step = schedule.value().steps[i];
        events.slice("step", title_of(step.kind, step.peer), h, rank * kRowsOfRank + row_of(step), times[i].begin_us,
                     times[i].end_us - times[i].begin_us, fmt::format(R"("step":{},"chunks":{})", i, step.chunks));
      }
    }
  }
  return events.finish().with_context("--trace");
}

}  // namespace tutti::internal::tools
