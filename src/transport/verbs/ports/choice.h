// Which ports and GIDs of a machine a rank uses: rules on what was found.
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

// All ports of this machine, usable or not, for people: a port that is not usable has the reason in `trouble`.
struct Finding {
  Port port;
  std::string trouble;  // empty: usable
  std::string state;    // "active", "down", ...; empty: the device could not be opened
  int max_mtu_bytes = 0;
  std::vector<Gid> gids;
};
// The rule of choose_ports() (devices.h).
Result<std::vector<Port>> choose_among(const std::vector<Finding>& findings, const Options& options);
// For people: of each finding whether choose_among() takes it, and why.
struct Reason {
  int position = -1;  // among the chosen, from 0; -1: not chosen
  std::string why;
};
std::vector<Reason> reasons(const std::vector<Finding>& findings, const Options& options);

// The entry that stands for a port: wanted_index if that is not negative, else RoCE v2 of an IPv4 address, of a global
// IPv6 address, of a link-local one, RoCE v1; of equals one whose interface is in this network namespace, then the
// first. Null if there is none.
const Gid* choose_gid(const std::vector<Gid>& gids, int wanted_index);
// The IP address that a GID of RoCE stands for; empty for others (IPv6 link-local has one).
std::string address_of(const Gid& gid);

}  // namespace tutti::internal::transport::verbs
