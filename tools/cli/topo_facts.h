// The facts of this machine that tutti topo prints beside the graph.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "facts.h"
#include "topology/gpus.h"
#include "topology/host_graph.h"
#include "transport/verbs/ports/devices.h"

namespace tutti::internal::tools {

struct Rdma {
  std::string settings;  // TUTTI_VERBS
  Status status;         // why there are no ports at all
  std::vector<transport::verbs::Finding> findings;
  std::vector<transport::verbs::Reason> reasons;
  Status choice;  // why none is chosen
};

struct TopoFacts {
  Facts machine;
  Rdma rdma;
  topology::Gpus gpus;
};

// kInvalidUsage if TUTTI_VERBS cannot be read; all else is in the result.
Result<TopoFacts> read_topo_facts();
// The facts that become part of the graph.
topology::HostFacts host_facts(const TopoFacts& facts);
void print_facts(const TopoFacts& facts);
nlohmann::json facts_json(const TopoFacts& facts);

}  // namespace tutti::internal::tools
