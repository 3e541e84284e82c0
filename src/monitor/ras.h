// The duty that answers clients of NCCL's RAS protocol, version 2, about the communicators of this process:
//
//   CLIENT PROTOCOL 2         SERVER PROTOCOL 2
//   TIMEOUT 5                 OK (seconds; 0: none)
//   SET FORMAT json           OK (or text)
//   STATUS, VERBOSE STATUS    the report; the connection closes
//   MONITOR [lifecycle,trace] OK, then events as they come (or all; by default lifecycle)
//
// All else is answered by a line that begins with "ERROR:". No command changes anything but the client's own
// connection.
#pragma once

#include <memory>

#include "monitor/monitor.h"

namespace tutti::internal::monitor {

inline constexpr char kRasGreeting[] = "CLIENT PROTOCOL 2\n";

// For the address in TUTTI_RAS_ADDR. Null: there is none, or this process cannot listen there, which it has logged.
std::unique_ptr<Duty> make_ras();

}  // namespace tutti::internal::monitor
