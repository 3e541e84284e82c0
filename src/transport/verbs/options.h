// TUTTI_VERBS: the user's settings of the verbs transport, one variable of key=value pairs.
//
// Threads: any; nothing here has state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tutti::internal::transport::verbs {

// A queue pair's address has eight bits for it.
inline constexpr int kMostGidIndex = 255;

enum class Connect : std::uint8_t {
  kAuto,      // by the device: iWARP through the connection manager, all others by exchange
  kExchange,  // queue pair numbers are exchanged over the ranks' TCP connection
  kManager,   // librdmacm
};

// "device=mlx5_0:1+mlx5_1,gid_index=3,queue_pairs=2": unset keys keep these defaults.
struct Options {
  // device=NAME[:PORT]+...: the ports to use, best first; a name alone means each active port. Empty: chosen.
  std::vector<std::string> devices;
  int gid_index = -1;   // gid_index=N; -1: chosen (RoCE v2 with an IPv4 address first)
  int rails = 0;        // rails=1..8: ports that one pair of ranks uses at once; 0: chosen
  int queue_pairs = 1;  // queue_pairs=1..8, per rail
  int mtu_bytes = 0;    // mtu=256|512|1024|2048|4096: path MTU at most this; 0: the ports' own
  int timeout = 16;     // timeout=1..31: local ACK timeout, 4.096 us * 2^timeout (InfiniBand spec. 9.7.6.1.3)
  // retries=0..7: retransmissions before the peer counts as lost; with the timeout, 2 to 8 seconds. Not 7: for
  // soft-RoCE that means without limit.
  int retries = 6;
  int traffic_class = 0;  // traffic_class=0..255: of the global route header; RoCE's DSCP is its upper six bits
  int service_level = 0;  // service_level=0..15
  int pkey = -1;          // pkey=0x8001: partition; -1: the port's first
  Connect connect = Connect::kAuto;  // connect=auto|exchange|cm
  bool cache = true;                 // cache=on|off: keep user memory registered between operations
};

// kInvalidUsage names the setting (`name`), the key and its valid values. Empty text: the defaults.
Result<Options> parse_options(const std::string& text, std::string_view name = "TUTTI_VERBS");

}  // namespace tutti::internal::transport::verbs
