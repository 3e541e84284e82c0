// Checks of a host's network for problems that stop ranks from finding each other: name, chosen interface, ports.
//
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "check.h"
#include "net/address.h"

namespace tutti::internal::tools {

// Whether other hosts would find this one by `name`; `resolved`: what that is here, `own`: the addresses of the chosen
// interfaces.
Check check_host_name(const std::string& name, const Result<std::vector<net::Address>>& resolved,
                      const std::vector<net::Address>& own);
// Which address ranks tell each other, and why.
Check check_interface(const Result<std::vector<net::Address>>& own, const Settings& settings);
// Whether a port can be listened on and reached at that address, within `patience_ms`.
Check check_port(const net::Address& own, const Settings& settings, std::int64_t patience_ms);
// Which connections are encrypted, and whether that works here, within `patience_ms`.
Check check_encryption(const Settings& settings, std::int64_t patience_ms);

// All of them.
Checks check_network(const Settings& settings);

}  // namespace tutti::internal::tools
