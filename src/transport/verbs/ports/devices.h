// Which RDMA ports this machine has.
//
// Threads: any; nothing here has state.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "transport/verbs/options.h"
#include "transport/verbs/ports/choice.h"
#include "transport/verbs/ports/machine.h"
#include "transport/verbs/ports/ports.h"

namespace tutti::internal::transport::verbs {

// kSystemError where libibverbs is missing or finds no device, with the remedy in the text. `far_nodes`: the NUMA nodes
// that have processors, but none that this rank may run on. Any thread.
Result<std::vector<Finding>> find_ports(const Options& options, const std::vector<int>& far_nodes,
                                        const Roots& roots = {});

// Whether this build has RDMA and libibverbs can be opened: kSystemError with the remedy if not. Any thread.
Status check_library();
// Whether the device's driver can register memory of other devices by a dmabuf; what stands against it is in *why.
// Opens the device. Any thread.
bool supports_dmabuf(const std::string& device, std::string* why);

// The ports that this rank offers its peers, best first, at most kMaxRails: those that the options name, in that
// order, else all usable ones of the best kind (near before far, fast before slow, then by name). Of the best kind is
// what has the fabric of the fastest port and at least half its rate: rails of a pair get equal shares. kSystemError
// with the remedy if there is none; kInvalidUsage if the options name what does not exist or is not active.
Result<std::vector<Port>> choose_ports(const Options& options, const std::vector<int>& far_nodes);

}  // namespace tutti::internal::transport::verbs
