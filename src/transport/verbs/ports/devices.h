// The RDMA ports of this machine.
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

// kSystemError, with the fix, if libibverbs is missing or finds no device. `far_nodes`: the NUMA nodes with processors
// on none of which this rank may run. Any thread.
Result<std::vector<Finding>> find_ports(const Options& options, const std::vector<int>& far_nodes,
                                        const Roots& roots = {});

// Whether this build has RDMA and libibverbs can be opened: kSystemError with the fix if not. Any thread.
Status check_library();

// The ports that this rank offers its peers, best first, at most kMaxRails. These are the ports that the options name,
// in that order, or else all usable ports of the best kind (near before far, fast before slow, then by name). Ports of
// the best kind have the fabric of the fastest port and at least half its rate, because rails of a pair get equal
// shares. kSystemError with the fix if there is no such port; kInvalidUsage if the options name a port that does not
// exist or is not active.
Result<std::vector<Port>> choose_ports(const Options& options, const std::vector<int>& far_nodes);

}  // namespace tutti::internal::transport::verbs
