// What this machine consists of, as far as communication is concerned: read from the kernel's files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/verbs/ports/machine.h"

namespace tutti::internal::tools {

struct NumaNode {
  int number = 0;
  std::string processors;  // "0-3,8"
  std::uint64_t memory_bytes = 0;
};

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
  std::string kernel;              // "Linux 6.1.0"
  int processors = 0;              // online
  std::string allowed_processors;  // of them this process may use these: "0-1"
  int allowed_count = 0;
  std::vector<NumaNode> numa_nodes;
  std::vector<Interface> interfaces;
};

Facts read_facts(const transport::verbs::Roots& roots);

// {0, 1, 2, 8} as "0-2,8". REQUIRES: ascending.
std::string range_text(const std::vector<int>& numbers);

}  // namespace tutti::internal::tools
