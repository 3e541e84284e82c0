// Machines as NCCL and RCCL describe them: the XML that NCCL_TOPO_DUMP_FILE writes and NCCL_TOPO_FILE reads. A file has
// one host, or several that differ in host_hash.
#pragma once

#include <string>

#include "base/status.h"
#include "topology/graph.h"

namespace tutti::internal::topology {

// Processors become NUMA nodes, PCI bridges with something below them PCI switches, GPUs and network devices GPUs and
// ports. NVLinks and xGMI links become cables between GPUs, or one crossbar of a host if they lead to switches. A GPU's
// rank is kept. Several hosts are joined by one network.
//
// What the file does not know is what NCCL takes for it: 8 GT/s and 16 lanes of a PCI link, 10 Gb/s of a network
// device. NUMA nodes without a number (-1, 0xffff) get one that is free. Links that lead to their own GPU or to none of
// the file's, and devices of other classes or of none, are passed over. A file in which nothing is left is refused.
// kInvalidArgument with file, line and attribute.
Result<Graph> read_nccl_topology(const std::string& path);
Result<Graph> parse_nccl_topology(const std::string& text, const std::string& name);

}  // namespace tutti::internal::topology
