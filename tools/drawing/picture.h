// Graphs of machines for people: as a tree of text, for Graphviz, and as a drawing.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "schedule/schedule.h"
#include "topology/graph.h"

namespace tutti::internal::tools {

// The traffic of a collective: the bytes from one rank to another.
struct Flow {
  int from = 0;
  int to = 0;
  double bytes = 0;
};
struct Overlay {
  std::string title;  // "all_reduce of 64 MiB, ring"; empty: there is none
  std::vector<Flow> flows;
};

// All end with a line break. REQUIRES: graph.check().
std::string to_tree(const topology::Graph& graph, const Overlay& overlay);
std::string to_dot(const topology::Graph& graph, const Overlay& overlay);
// kInvalidArgument: it has more nodes than a picture can show.
Result<std::string> to_svg(const topology::Graph& graph, const Overlay& overlay);

// Steps over time, which goes down: a column for each rank, an arrow for each message. Each message takes as long as
// any other. kInvalidArgument where sends and receives do not match.
Result<std::string> draw_schedules(const std::vector<schedule::Schedule>& schedules, const std::string& title);

// Into a file; "-" is standard output.
Status write_text(const std::string& path, const std::string& text);

// "12.5 GB/s, 2 us"; empty where nothing is known.
std::string text_of(const topology::Speed& speed);
// "64 MiB", "1000 B".
std::string text_of_bytes(double bytes);
// "0-3,8" of numbers in ascending order.
std::string text_of_ranks(const std::vector<int>& ranks);

}  // namespace tutti::internal::tools
