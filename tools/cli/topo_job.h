// The machines of a whole job, as its ranks see them.
#pragma once

#include <optional>

#include "base/status.h"
#include "topology/graph.h"

namespace tutti::internal::tools {

struct JobGraph {
  int rank = 0;  // this one's
  topology::Graph
      graph;  // on rank 0: of all hosts, each as its first rank has found it, with all ranks at their places
};

// Under a launcher: every rank calls it, with the graph of its host. Nothing where no launcher has started this
// process.
Result<std::optional<JobGraph>> gather_job(const topology::Graph& own);

}  // namespace tutti::internal::tools
