// Machine descriptions of NCCL and RCCL: the XML that NCCL_TOPO_DUMP_FILE writes and NCCL_TOPO_FILE reads. A file has
// one host, or several that differ in host_hash.
#pragma once

#include <string>

#include "base/status.h"
#include "topology/graph.h"

namespace tutti::internal::topology {

// Processors become NUMA nodes; PCI bridges with devices below them become PCI switches; GPUs and network devices
// become GPUs and ports. NVLinks and xGMI links become cables between GPUs, or one crossbar of a host if they lead to
// switches. A GPU's rank is kept. Several hosts are joined by one network.
//
// Unknown values are NCCL's defaults: 8 GT/s and 16 lanes for a PCI link, 10 Gb/s for a network device. NUMA nodes
// without a number (-1, 0xffff) get a free one. Links to the same GPU or to an unknown one, and devices of other
// classes or without a class, are skipped. A file without any device left is refused. kInvalidArgument with file, line
// and attribute.
Result<Graph> read_nccl_topology(const std::string& path);
Result<Graph> parse_nccl_topology(const std::string& text, const std::string& name);

}  // namespace tutti::internal::topology
