// What hwloc finds, and frees with it.
#pragma once

#include <hwloc.h>

#include <memory>

namespace tutti::internal::topology {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

}  // namespace tutti::internal::topology
