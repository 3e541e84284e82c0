// Graphs as files: docs/topology.md has the format.
#pragma once

#include <string>

#include "base/json_file.h"
#include "base/status.h"
#include "topology/graph.h"

namespace tutti::internal::topology {

inline constexpr const char* kTopologyFormat = "tutti topology";
inline constexpr int kTopologyVersion = 1;
// Limit of the nodes, and of the ranks, of a file's graph: counts multiply.
inline constexpr std::int64_t kMostNodes = 1 << 23;

// kInvalidArgument with file, line and field.
Result<Graph> read_graph(const std::string& path);
Result<Graph> graph_of(const JsonFile& file);

// Ends with a line break. Equal neighbours whose names differ only in their numbers are written once. Reading the text
// gives the same graph. REQUIRES: graph.check().
std::string to_json(const Graph& graph);

}  // namespace tutti::internal::topology
