// Two links of this process over one RDMA port, and data through them: what no look at settings can replace.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "os/clock.h"
#include "transport/verbs/options.h"

namespace tutti::internal::tools {

struct Loopback {
  double connect_ms = 0;
  double transfer_ms = 0;  // of `bytes` each way, both at once, until all are checked
};

// `options` name one port. Errors as those of transport::verbs::RdmaContext and of links, and kInternalError if other
// bytes arrive than were sent.
Result<Loopback> run_loopback(const transport::verbs::Options& options, std::size_t bytes, Deadline deadline);

}  // namespace tutti::internal::tools
