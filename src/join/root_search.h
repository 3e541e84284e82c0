// How a rank finds the root service of its job.
//
// Threads: the one that joins.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "join/tree_builder.h"
#include "net/address.h"
#include "net/auth.h"
#include "os/unique_fd.h"

namespace tutti::internal {

// In messages.
inline constexpr const char* kRootService =
    "the root service (in the process of rank 0, or of the caller of tuttiGetUniqueId)";

// Where the root may be: at addresses, or at any of several ports of a host. The host's name is looked up until the
// root is found: names of hosts that have just started appear late, and change.
struct RootPlace {
  std::vector<net::Address> addresses;
  std::string host;
  std::vector<std::uint16_t> ports;
  std::function<Result<std::vector<net::Address>>(const std::string&, std::uint16_t)> resolve = net::resolve;
};

// What the root's silence means.
struct RootKind {
  bool came_first;  // it was there before the ranks: refusal for some time is final
  bool alone;       // no other job's root may be at these addresses: neither does another secret pass
};

// An authenticated connection to the root, before the member's deadline.
Result<UniqueFd> find_root(const RootPlace& place, const net::Secret& secret, RootKind kind, const Member& member);

}  // namespace tutti::internal
