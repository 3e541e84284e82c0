// Pairs of connected tcp links.
#pragma once

#include <memory>
#include <vector>

#include "conformance.h"
#include "net/byte_stream.h"
#include "socket_pairs.h"

namespace tutti::internal::transport::conformance {

// Ends the test on an error, as do all of these.
std::unique_ptr<Link> link_over(std::vector<net::ByteStream> streams, int peer, int buffer_bytes = 0);
// `buffer_bytes`: of the sockets; 0: the kernel chooses.
Pair tcp_pair(Family family = Family::kIpv4, int streams = 2, int buffer_bytes = 0);
// The same, encrypted.
Pair encrypted_tcp_pair(Family family = Family::kIpv4, int streams = 2, int buffer_bytes = 0);

}  // namespace tutti::internal::transport::conformance
