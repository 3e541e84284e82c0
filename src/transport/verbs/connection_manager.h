// Queue pairs connected by librdmacm, for devices that cannot connect by an exchange of queue pair numbers (iWARP, some
// RoCE set-ups). The library is opened at run time, when a device first needs it.
//
// Threads: the one that makes the link; manager_context() any.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/device.h"
#include "transport/verbs/exchange.h"

namespace tutti::internal::transport::verbs {

// librdmacm's context of a device: never closed. kSystemError if librdmacm or the device is missing.
Result<ibv_context*> manager_context(const std::string& device);

// Connects all queue pairs of one connection. The lower rank listens, the higher one connects.
class ManagedPairs {
 public:
  virtual ~ManagedPairs() = default;
  static Result<std::unique_ptr<ManagedPairs>> create();
  // Lower rank: listens on each rail's address; fills their ports into *own.
  virtual Status listen(Connection& connection, ConnectionInfo* own) = 0;
  // Both ranks, after the exchange: connects pair after pair, posts their receives. On return both sides may send.
  virtual Status connect(Connection& connection, bool lower, const std::vector<Port>& peer_ports,
                         const ConnectionInfo& peer, const Exchange& exchange) = 0;
};

}  // namespace tutti::internal::transport::verbs
