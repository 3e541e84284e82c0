// The network and RDMA hardware of this machine, read from the kernel's files. topology/detect.h has the rest of the
// machine.
#pragma once

#include <string>
#include <vector>

#include "topology/detect.h"
#include "transport/verbs/ports/machine.h"

namespace tutti::internal::tools {

struct Interface {
  std::string name;
  std::string state;                   // "up", "down", "unknown", ...: the kernel's operational state (RFC 2863)
  double gbits = 0;                    // 10^9 bits a second; 0: unknown
  int mtu_bytes = 0;                   // 0: unknown
  int numa_node = -1;                  // -1: unknown
  std::vector<std::string> addresses;  // "10.0.0.1/24"
};

struct Facts {
  std::string host;
  std::string kernel;  // "Linux 6.1.0"
  std::vector<Interface> interfaces;
};

Facts read_facts(const transport::verbs::Roots& roots);

// Numbers 0, 1, 2 and 8 as "0-2,8".
std::string range_text(const topology::ProcessorSet& numbers);

}  // namespace tutti::internal::tools
