// Graphs as files: docs/topology.md has the format.
#pragma once

#include <string>

#include "base/json_file.h"
#include "base/status.h"
#include "topology/graph.h"

namespace tutti::internal::topology {

inline constexpr const char* kTopologyFormat = "tutti topology";
inline constexpr int kTopologyVersion = 1;
// Nodes, and ranks, of a graph that a file may describe: counts multiply.
inline constexpr std::int64_t kMostNodes = 1 << 23;

// kInvalidArgument with file, line and field.
Result<Graph> read_graph(const std::string& path);
Result<Graph> graph_of(const JsonFile& file);

// Ends with a line break. Alike neighbours, whose names differ by their numbers alone, are written once. Read again it
// is the same graph. REQUIRES: graph.check().
std::string to_json(const Graph& graph);

}  // namespace tutti::internal::topology
