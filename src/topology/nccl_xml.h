// Machines as NCCL describes them: the XML that NCCL_TOPO_DUMP_FILE writes and NCCL_TOPO_FILE reads. One file is one
// host.
#pragma once

#include <string>

#include "base/status.h"
#include "topology/graph.h"

namespace tutti::internal::topology {

// Processors become NUMA nodes, PCI bridges with something below them PCI switches, GPUs and network devices GPUs and
// ports. NVLinks are joined to cables between GPUs, or, where they lead to switches, to one crossbar. A GPU's rank is
// kept. What else there is (NVLinks that lead to their own GPU, devices of other classes) is passed over.
// kInvalidArgument with file, line and attribute.
Result<Graph> read_nccl_topology(const std::string& path);
Result<Graph> parse_nccl_topology(const std::string& text, const std::string& name);

}  // namespace tutti::internal::topology
