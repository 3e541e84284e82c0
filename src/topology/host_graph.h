// One host as a graph: packages, NUMA nodes, PCI switches, GPUs and network ports, from hwloc, and from NVML for GPUs.
// The caller provides the facts about network ports that only other folders know.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "topology/gpus.h"
#include "topology/graph.h"

namespace tutti::internal::topology {

// A network interface or a port of an RDMA device of this machine.
struct PortFact {
  std::string name;   // "eth0", "mlx5_0"
  std::string about;  // "Ethernet", "InfiniBand"
  double gbits = 0;   // 10^9 bits a second; 0: unknown
  int numa_node = -1;
  bool everywhere = false;  // also if no PCI device with that name is found
};

struct HostFacts {
  std::string name;
  std::vector<PortFact> ports;
  Gpus gpus;
};

// Detects now, in about 10 to 50 ms. hwloc's variables apply (HWLOC_XMLFILE, HWLOC_SYNTHETIC): with another machine's
// description, only that is used. kSystemError if hwloc fails. REQUIRES: not in a child that was forked while another
// thread was in this function.
Result<Graph> host_graph(const HostFacts& facts);

// GB/s of an NVLink in one direction, by the compute capability of its GPU. Source: data sheets of P100, V100, A100,
// H100 and B200.
double gbytes_of_nvlink(int major);

}  // namespace tutti::internal::topology
