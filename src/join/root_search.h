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

// The possible positions of the root: addresses, or several ports of a host. The host's name is looked up until the
// root is found, because names of new hosts appear late and change.
struct RootPlace {
  std::vector<net::Address> addresses;
  std::string host;
  std::vector<std::uint16_t> ports;
  std::function<Result<std::vector<net::Address>>(const std::string&, std::uint16_t)> resolve = net::resolve;
};

// How to interpret a root that does not answer.
struct RootKind {
  bool came_first;  // the root existed before the ranks: refusal for some time is final
  bool alone;       // no other job's root can be at these addresses: another secret is also final
};

// An authenticated connection to the root, before the member's deadline.
Result<net::ByteStream> find_root(const RootPlace& place, const net::Secret& secret, RootKind kind,
                                  const Member& member);

}  // namespace tutti::internal
