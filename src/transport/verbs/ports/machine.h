// Properties of RDMA devices that the kernel shows without a library: names, NUMA nodes, rates, interfaces,
// permissions.
//
// Threads: any; nothing here has state.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tutti::internal::transport::verbs {

// The folders of the kernel's files; tests use other folders.
struct Roots {
  std::string sys = "/sys";
  std::string dev = "/dev";
};

// Names in a folder, sorted; empty if there is none.
std::vector<std::string> names_in(const std::string& folder);

// All RDMA devices, sorted by name.
std::vector<std::string> device_names(const Roots& roots);
// kSystemError with the fix if this machine has no RDMA device. Reads only one folder.
Status check_any_device(const Roots& roots);
// Why this process cannot open the device, with the fix; empty if it can.
std::string access_trouble(const Roots& roots, const std::string& device);

// Rate of a port in 10^9 bits a second; 0 if unknown.
double port_gbits(const Roots& roots, const std::string& device, int port);
// -1 if unknown.
int numa_node_of(const Roots& roots, const std::string& device);
// True if the device's NUMA node is not in `far_nodes`, or unknown.
bool is_near(const Roots& roots, const std::string& device, const std::vector<int>& far_nodes);
// The network interface of a port, for devices whose GIDs have none (iWARP). Empty if unknown.
std::string interface_of(const Roots& roots, const std::string& device, int port);

// An address of an interface and the subnet that it is in: "10.0.0.1", "10.0.0.0/24".
struct InterfaceAddress {
  std::string address;
  std::string subnet;
};
// The first IPv4 address, else the first global IPv6 address. Empty: it has neither.
std::optional<InterfaceAddress> address_of_interface(const std::string& interface);
// The subnet of one of this machine's addresses; empty for others and for link-local IPv6, where equal subnets say
// nothing.
std::string subnet_of(const std::string& address);

}  // namespace tutti::internal::transport::verbs
