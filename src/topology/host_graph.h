// One host as a graph: packages, NUMA nodes, PCI switches, GPUs and network ports, as hwloc finds them, with what NVML
// says of GPUs. Whoever asks gives what only other folders know of network ports.
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
  bool everywhere = false;  // also where no PCI device of that name is found
};

struct HostFacts {
  std::string name;
  std::vector<PortFact> ports;
  Gpus gpus;
};

// Looks now; some 10 to 50 ms. hwloc's own variables hold (HWLOC_XMLFILE, HWLOC_SYNTHETIC): with another machine's
// description nothing but that counts. kSystemError where hwloc fails. Not in a forked child while others look.
Result<Graph> host_graph(const HostFacts& facts);

// GB/s of an NVLink in one direction, by the compute capability of its GPU. Source: data sheets of P100, V100, A100,
// H100 and B200.
double gbytes_of_nvlink(int major);

}  // namespace tutti::internal::topology
