// The rules for choosing a rank's ports and GIDs among those of its machine.
//
// Threads: any; nothing here has state.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "transport/verbs/options.h"
#include "transport/verbs/ports/ports.h"

namespace tutti::internal::transport::verbs {

// An entry of a port's GID table.
struct Gid {
  int index = 0;
  std::array<std::uint8_t, 16> bytes{};
  std::string type;    // as Port::gid_type
  std::string netdev;  // empty: none, or none in this network namespace
};

// A port of this machine, usable or not; `trouble` has the reason why it is not usable.
struct Finding {
  Port port;
  std::string trouble;  // empty: usable
  std::string state;    // "active", "down", ...; empty: the device could not be opened
  int max_mtu_bytes = 0;
  std::vector<Gid> gids;
};
// The rule of choose_ports() (devices.h).
Result<std::vector<Port>> choose_among(const std::vector<Finding>& findings, const Options& options);
// For messages: whether choose_among() takes a finding, and why.
struct Reason {
  int position = -1;  // among the chosen, from 0; -1: not chosen
  std::string why;
};
std::vector<Reason> reasons(const std::vector<Finding>& findings, const Options& options);

// The GID entry of a port: wanted_index if that is not negative; else RoCE v2 with an IPv4 address, with a global IPv6
// address, with a link-local one, RoCE v1. Among equals, one whose interface is in this network namespace, then the
// first. Null if there is no entry.
const Gid* choose_gid(const std::vector<Gid>& gids, int wanted_index);
// The IP address of a RoCE GID, also if it is IPv6 link-local; empty for other GIDs.
std::string address_of(const Gid& gid);

}  // namespace tutti::internal::transport::verbs
